#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/strict_json.h"
#include "kernels/sandbox/case_json.h"
#include "kernels/sandbox/check.h"
#include "kernels/sandbox/value_case.h"

namespace verbatim::sandbox {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMostCallBytes = 0x1p30;  // of all tensors of a call that is tried

constexpr std::pair<Placing, const char*> kPlacingNames[] = {
    {Placing::kAligned, "aligned"}, {Placing::kOdd, "odd"}, {Placing::kAtEnd, "at-end"}};

constexpr int32_t kMostThreads = 1024;

const char* placing_name(Placing placing) {
    return std::ranges::find_if(kPlacingNames, [&](const auto& known) { return known.first == placing; })->second;
}

constexpr char kHexDigits[] = "0123456789abcdef";

std::string hex_of(std::span<const std::byte> bytes) {
    std::string text;
    text.reserve(2 * bytes.size());
    for (const std::byte byte : bytes) {
        text += kHexDigits[static_cast<size_t>(byte >> 4)];
        text += kHexDigits[static_cast<size_t>(byte & std::byte{15})];
    }
    return text;
}

Result<std::vector<std::byte>> bytes_of_hex(const std::string& where, const std::string& text) {
    const auto digit = [](char c) { return std::string_view(kHexDigits).find(c); };
    std::vector<std::byte> bytes(text.size() / 2);
    bool valid = text.size() % 2 == 0;
    for (size_t i = 0; valid && i < bytes.size(); ++i) {
        const size_t high = digit(text[2 * i]);
        const size_t low = digit(text[2 * i + 1]);
        valid = high < 16 && low < 16;
        bytes[i] = static_cast<std::byte>(high << 4 | low);
    }
    if (!valid) return error("{}: wanted pairs of the digits 0 ... 9 and a ... f", where);
    return bytes;
}

// Rows of items within what the sizes say; without "rows" one of each.
Result<std::vector<int64_t>> read_rows(const std::string& where, const Operation& operation, const Sizes& sizes,
                                       const nlohmann::json& json) {
    const bool has_sequences = std::string_view(operation.sizes[0].name) == "sequences";
    const int64_t most = has_sequences ? sizes[1] : 1;
    const auto found = json.find("rows");
    if (found == json.end()) return std::vector<int64_t>(static_cast<size_t>(sizes[0]), 1);
    const auto rows = found->get<std::vector<int64_t>>();
    if (rows.empty() || std::ssize(rows) > sizes[0]) {
        return error("{}: rows has {} numbers, wanted 1 ... {}", where, rows.size(), sizes[0]);
    }
    for (const int64_t count : rows) {
        if (count < 1 || count > most) return error("{}: rows has {}, which is not in 1 ... {}", where, count, most);
    }
    return rows;
}

Result<Captured> read_captured(const std::string& where, const Operation& operation, const Sizes& sizes,
                               const nlohmann::json& json) {
    Captured captured;
    ASSIGN_OR_RETURN(captured.item_rows, read_rows(where, operation, sizes, json));
    ASSIGN_OR_RETURN(const auto scalars, bytes_of_hex(where + ": scalars", json.at("scalars").get<std::string>()));
    if (scalars.size() != sizeof(captured.scalars)) {
        return error("{}: scalars has {} bytes, wanted {}", where, scalars.size(), sizeof(captured.scalars));
    }
    std::memcpy(captured.scalars.data(), scalars.data(), scalars.size());
    for (const auto& [name, text] : json.at("tensors").items()) {
        ASSIGN_OR_RETURN(auto bytes, bytes_of_hex(where + ": " + name, text.get<std::string>()));
        captured.tensors.push_back({name, std::move(bytes)});
    }
    return captured;
}

Json captured_json(const Captured& captured) {
    Json json = Json::object();
    json["rows"] = captured.item_rows;
    json["scalars"] = hex_of(std::as_bytes(std::span(captured.scalars)));
    std::map<std::string, std::string> tensors;  // in the order in which they are read
    for (const Captured::Values& values : captured.tensors) tensors[values.tensor] = hex_of(values.bytes);
    json["tensors"] = tensors;
    return json;
}

Result<SavedCase> read_json(const std::string& path, const nlohmann::json& json) {
    SavedCase saved;
    saved.operation = json.value("op", "");
    const Operation* operation = find_operation(saved.operation);
    if (operation == nullptr)
        return error("{}: op {:?} is no operation (`verbatim kernel list`)", path, saved.operation);
    ASSIGN_OR_RETURN(saved.check.one, read_case(path, *operation, json));
    const std::string placing = json.value("placing", "aligned");
    const auto* place = std::ranges::find_if(kPlacingNames, [&](const auto& one) { return one.second == placing; });
    if (place == std::end(kPlacingNames))
        return error("{}: placing {:?} is none of aligned, odd, at-end", path, placing);
    saved.check.options.placing = place->first;
    saved.check.options.in_place = json.value("in_place", false);
    saved.check.options.num_threads = json.value("num_threads", 1);
    if (saved.check.options.num_threads < 1 || saved.check.options.num_threads > kMostThreads) {
        return error("{}: num_threads {} is not in 1 ... {}", path, saved.check.options.num_threads, kMostThreads);
    }
    saved.property = json.value("property", "");
    return saved;
}

}  // namespace

Result<Sizes> read_sizes(const std::string& path, const Operation& operation, const nlohmann::json& json) {
    Sizes sizes{};
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        const SizeSpec& spec = operation.sizes[i];
        const auto found = json.find(spec.name);
        if (found == json.end() || !found->is_number_integer()) {
            return error("{}: sizes has no whole number {:?}, which {} wants", path, spec.name, operation.name);
        }
        sizes[i] = found->get<int64_t>();
        const int64_t most = 64 * *std::ranges::max_element(spec.edges) + (1 << 18);
        if (sizes[i] < spec.least || sizes[i] > most) {
            return error("{}: {} {} is not in {} ... {}", path, spec.name, sizes[i], spec.least, most);
        }
        if (spec.is_choice && std::ranges::find(spec.edges, sizes[i]) == spec.edges.end()) {
            return error("{}: {} {} is none of {}", path, spec.name, sizes[i], nlohmann::json(spec.edges).dump());
        }
    }
    if (!go_together(operation, sizes))
        return error("{}: sizes {} do not go together: `verbatim kernel list --contract {}` says how they do", path,
                     json.dump(), operation.name);
    double product = 1;
    for (const int64_t size : sizes) product *= static_cast<double>(std::max<int64_t>(size, 1));
    if (product > 1e9) return error("{}: sizes {} are too large to be tried", path, json.dump());
    if (json.size() != operation.sizes.size()) return error("{}: sizes has more than {} wants", path, operation.name);
    return sizes;
}

Json case_json(const Operation& operation, const KernelCase& one) {
    Json sizes = Json::object();
    for (size_t i = 0; i < operation.sizes.size(); ++i) sizes[operation.sizes[i].name] = one.sizes[i];
    Json json = {{"sizes", sizes}, {"values", name(one.values)}, {"seed", one.seed}};
    if (one.captured) json["captured"] = captured_json(*one.captured);
    return json;
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
    return json.dump(indent, ' ', /*ensure_ascii=*/false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<KernelCase> read_case(const std::string& where, const Operation& operation, const nlohmann::json& json) {
    KernelCase one;
    ASSIGN_OR_RETURN(one.sizes, read_sizes(where, operation, json.value("sizes", nlohmann::json::object())));
    const std::string values = json.value("values", "");
    const auto known = value_class(values);
    if (!known) return error("{}: values {:?} is no class of values", where, values);
    one.values = *known;
    one.seed = json.value("seed", uint64_t{0});
    Prng prng(one.seed);
    std::vector<int64_t> item_rows = operation.items(one.sizes, prng);
    const auto found = json.find("captured");
    if (found != json.end()) {
        ASSIGN_OR_RETURN(one.captured, read_captured(where, operation, one.sizes, *found));
        item_rows = one.captured->item_rows;
    }
    if (bytes_of_call(operation, one.sizes, item_rows) > kMostCallBytes) {
        return error("{}: sizes {} are too large to be tried", where, describe(operation, one.sizes));
    }
    if (!one.captured) return one;
    const Status admitted = check_captured(operation, one.sizes, *one.captured);
    if (!admitted) return error("{}: {}", where, admitted.error().message);
    return one;
}

std::string case_file(const Operation& operation, const Failure& failure) {
    Json json = {{"op", operation.name}};
    json.update(case_json(operation, failure.one));
    json["placing"] = placing_name(failure.options.placing);
    json["in_place"] = failure.options.in_place;
    if (failure.options.num_threads != 1) json["num_threads"] = failure.options.num_threads;
    if (!failure.property.empty()) json["property"] = failure.property;
    return json_text(json, 2) + "\n";
}

Result<SavedCase> read_case_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return error("{}: cannot be read", path);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    ASSIGN_OR_RETURN(const nlohmann::json json, parse_strict_json(text, path));
    if (!json.is_object()) return error("{}: is no JSON object, as `verbatim kernel check` writes them", path);
    if (json.contains("tensors")) {
        ASSIGN_OR_RETURN(const ValueCase values, read_value_case_text(path, text));
        SavedCase saved;
        saved.operation = values.call.operation->name;
        saved.check.one.sizes = values.call.sizes;
        saved.check.one.captured = captured_of(values.call);
        return saved;
    }
    try {
        return read_json(path, json);
    } catch (const nlohmann::json::exception& wrong) {
        return error("{}: {}", path, wrong.what());
    }
}

}  // namespace verbatim::sandbox
