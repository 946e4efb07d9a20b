#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tools/kernel/check.h"
#include "tools/kernel/value_case.h"

namespace verbatim::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<Placing, const char*> kPlacingNames[] = {
    {Placing::kAligned, "aligned"}, {Placing::kOdd, "odd"}, {Placing::kAtEnd, "at-end"}};

const char* placing_name(Placing placing) {
    return std::ranges::find_if(kPlacingNames, [&](const auto& known) { return known.first == placing; })->second;
}

Result<SavedCase> read_json(const std::string& path, const Json& json) {
    SavedCase saved;
    saved.operation = json.value("op", "");
    const Operation* operation = find_operation(saved.operation);
    if (operation == nullptr)
        return error("{}: op {:?} is no operation (`verbatim kernel list`)", path, saved.operation);
    ASSIGN_OR_RETURN(saved.check.one.sizes, read_sizes(path, *operation, json.value("sizes", Json::object())));
    const std::string values = json.value("values", "");
    const auto known = value_class(values);
    if (!known) return error("{}: values {:?} is no class of values", path, values);
    saved.check.one.values = *known;
    saved.check.one.seed = json.value("seed", uint64_t{0});
    const std::string placing = json.value("placing", "aligned");
    const auto* place = std::ranges::find_if(kPlacingNames, [&](const auto& one) { return one.second == placing; });
    if (place == std::end(kPlacingNames))
        return error("{}: placing {:?} is none of aligned, odd, at-end", path, placing);
    saved.check.options.placing = place->first;
    saved.check.options.in_place = json.value("in_place", false);
    saved.property = json.value("property", "");
    return saved;
}

}  // namespace

Result<Sizes> read_sizes(const std::string& path, const Operation& operation, const Json& json) {
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
        const bool is_choice = spec.edges.size() <= 4 && spec.least != 1;
        if (is_choice && std::ranges::find(spec.edges, sizes[i]) == spec.edges.end()) {
            return error("{}: {} {} is none of {}", path, spec.name, sizes[i], Json(spec.edges).dump());
        }
    }
    double product = 1;
    for (const int64_t size : sizes) product *= static_cast<double>(std::max<int64_t>(size, 1));
    if (product > 1e9) return error("{}: sizes {} are too large to be tried", path, json.dump());
    if (json.size() != operation.sizes.size()) return error("{}: sizes has more than {} wants", path, operation.name);
    return sizes;
}

std::string case_file(const Operation& operation, const Failure& failure) {
    if (failure.one.given) return value_case_file(value_case_of(*failure.one.given, "exact", failure.detail));
    Json sizes = Json::object();
    for (size_t i = 0; i < operation.sizes.size(); ++i) sizes[operation.sizes[i].name] = failure.one.sizes[i];
    Json json = {{"op", operation.name},
                 {"sizes", sizes},
                 {"values", name(failure.one.values)},
                 {"seed", failure.one.seed},
                 {"placing", placing_name(failure.options.placing)},
                 {"in_place", failure.options.in_place}};
    if (!failure.property.empty()) json["property"] = failure.property;
    return json.dump(2) + "\n";
}

Result<SavedCase> read_case_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return error("{}: cannot be read", path);
    const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return error("{}: is no JSON object, as `verbatim kernel check` writes them", path);
    if (json.contains("tensors")) {
        ASSIGN_OR_RETURN(ValueCase values, read_value_case_text(path, text));
        SavedCase saved;
        saved.operation = values.call.operation->name;
        saved.check.one.sizes = values.call.sizes;
        saved.check.one.given = std::make_shared<const Arguments>(std::move(values.call));
        return saved;
    }
    try {
        return read_json(path, json);
    } catch (const Json::exception& wrong) {
        return error("{}: {}", path, wrong.what());
    }
}

}  // namespace verbatim::tools
