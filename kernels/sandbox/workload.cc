#include "kernels/sandbox/workload.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/digest.h"
#include "files/regular_file.h"
#include "files/strict_json.h"
#include "kernels/sandbox/case_json.h"

namespace verbatim::sandbox {
namespace {

using Json = nlohmann::ordered_json;

// Of a file: values in hexadecimal, and what is around them.
constexpr int64_t kMostFileBytes = int64_t{16} << 20;

uint64_t digest_of(const CallSample::Shape& shape) {
    Digester digester;
    for (const int64_t size : shape.sizes) digester.add(size);
    digester.add(std::ssize(shape.item_rows));
    for (const int64_t rows : shape.item_rows) digester.add(rows);
    for (const int64_t position : shape.first_positions) digester.add(position);
    return digester.digest().low;
}

Result<std::string> text_of(const std::string& path) {
    ASSIGN_OR_RETURN(const RegularFile file, RegularFile::open(path));
    const int64_t num_bytes = file.state().num_bytes;
    if (num_bytes > kMostFileBytes) {
        return error("{}: {} bytes: a workload has at most {}", path, num_bytes, kMostFileBytes);
    }
    std::string text(static_cast<size_t>(num_bytes), '\0');
    RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(text))));
    return text;
}

Result<CapturedCall> read_call(const std::string& where, const Operation& operation, const nlohmann::json& json) {
    CapturedCall call;
    call.step = json.value("step", int64_t{0});
    call.layer = json.value("layer", int32_t{0});
    call.times = json.value("times", int64_t{1});
    if (call.times < 1) return error("{}: times {} is not 1 or more", where, call.times);
    ASSIGN_OR_RETURN(call.one, read_case(where, operation, json));
    if (!call.one.captured) return error("{}: has no \"captured\"", where);
    return call;
}

Result<Workload> read_json(const std::string& path, const Operation& operation, const nlohmann::json& json) {
    Workload workload;
    workload.operation = json.value("workload", "");
    if (workload.operation.empty()) {
        return error("{}: is no workload, as `verbatim replay --capture {}` writes them", path, operation.name);
    }
    if (workload.operation != operation.name) {
        return error("{}: is a workload of {}, not of {}", path, workload.operation, operation.name);
    }
    workload.from = json.value("from", "");
    workload.num_calls = json.value("calls", int64_t{0});
    workload.num_shapes = json.value("shapes", int64_t{0});
    const auto kept = json.find("kept");
    if (kept == json.end() || !kept->is_array() || kept->empty()) return error("{}: has no calls in \"kept\"", path);
    if (kept->size() > kMostCalls) return error("{}: {} calls: at most {} are taken", path, kept->size(), kMostCalls);
    for (size_t i = 0; i < kept->size(); ++i) {
        ASSIGN_OR_RETURN(CapturedCall call, read_call(fmt::format("{}: call {}", path, i), operation, (*kept)[i]));
        workload.calls.push_back(std::move(call));
    }
    return workload;
}

}  // namespace

void CallSample::add(int64_t step, int32_t layer, const Shape& shape, const std::function<Captured()>& captured) {
    ++num_calls_;
    const uint64_t digest = digest_of(shape);
    if (!met_.insert(digest).second) {
        if (const auto known = kept_.find(digest); known != kept_.end()) ++known->second.times;
        return;
    }
    if (kept_.size() == most_calls_ && digest > kept_.rbegin()->first) return;
    kept_[digest] = {step, layer, 1, {.sizes = shape.sizes, .seed = digest, .captured = captured()}};
    if (kept_.size() > most_calls_) kept_.erase(std::prev(kept_.end()));
    CHECK(kept_.size() <= most_calls_ && kept_.size() <= met_.size(), "{} calls of {} shapes are kept", kept_.size(),
          met_.size());
}

Workload CallSample::workload(std::string operation, std::string from) const {
    Workload workload{std::move(operation), std::move(from), num_calls_, std::ssize(met_), {}};
    for (const auto& [digest, call] : kept_) workload.calls.push_back(call);
    std::ranges::stable_sort(workload.calls, std::greater(), &CapturedCall::times);
    size_t left = kMostValueBytes;
    const auto takes = [&left](const Captured::Values& values) {
        if (values.bytes.size() > left) return false;
        left -= values.bytes.size();
        return true;
    };
    // Places come first: a call without them would be another one.
    std::erase_if(workload.calls, [&](const CapturedCall& call) {
        return !std::ranges::all_of(call.one.captured->tensors,
                                    [&](const Captured::Values& values) { return !values.is_place || takes(values); });
    });
    for (CapturedCall& call : workload.calls) {
        std::erase_if(call.one.captured->tensors,
                      [&](const Captured::Values& values) { return !values.is_place && !takes(values); });
    }
    return workload;
}

std::string workload_json(const Workload& workload) {
    const Operation& operation = *find_operation(workload.operation);
    Json json = {{"workload", workload.operation},
                 {"from", workload.from},
                 {"calls", workload.num_calls},
                 {"shapes", workload.num_shapes},
                 {"kept", Json::array()}};
    for (const CapturedCall& call : workload.calls) {
        Json one = {{"step", call.step}, {"layer", call.layer}, {"times", call.times}};
        one.update(case_json(operation, call.one));
        json["kept"].push_back(std::move(one));
    }
    return json_text(json, 1) + "\n";
}

Result<Workload> read_workload(const std::string& path, const Operation& operation) {
    ASSIGN_OR_RETURN(const std::string text, text_of(path));
    ASSIGN_OR_RETURN(const nlohmann::json json, parse_strict_json(text, path));
    if (!json.is_object()) return error("{}: is no JSON object", path);
    try {
        return read_json(path, operation, json);
    } catch (const nlohmann::json::exception& wrong) {
        return error("{}: {}", path, wrong.what());
    }
}

}  // namespace verbatim::sandbox
