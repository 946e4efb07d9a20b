#include "reference/loader/config_fields.h"

#include <fmt/ranges.h>

#include <cmath>

#include "engine/base/check.h"
#include "files/strict_json.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

const Json kNull;

std::string list_text(ConfigFields::Keys keys) { return fmt::format("{}", fmt::join(keys, " or ")); }

}  // namespace

ConfigFields::ConfigFields(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
    CHECK(object.is_object());
}

bool ConfigFields::has(std::string_view key) const {
    const auto found = object_.find(key);
    return found != object_.end() && !found->is_null();
}

const Json& ConfigFields::value(std::string_view key) {
    understood_.emplace(key);
    const auto found = object_.find(key);
    return found == object_.end() ? kNull : *found;
}

const Json& ConfigFields::agreed(Keys keys, std::string& name) {
    CHECK_GT(keys.size(), size_t{0});
    const Json* first = &kNull;
    name = *keys.begin();
    for (const std::string_view key : keys) {
        const Json& here = value(key);
        if (here.is_null()) continue;
        if (first->is_null()) {
            first = &here;
            name = key;
        } else if (*first != here) {
            problem("{}{} = {} contradicts {}{} = {}", prefix_, key, quote_json(here), prefix_, name,
                    quote_json(*first));
        }
    }
    return *first;
}

void ConfigFields::wrong(std::string_view key, const Json& got, std::string_view wanted) {
    problem("{}{} = {}, wanted {}", prefix_, key, quote_json(got), wanted);
}

std::optional<int32_t> ConfigFields::optional_size(Keys keys, int32_t least) {
    std::string name;
    const Json& got = agreed(keys, name);
    if (got.is_null()) return std::nullopt;
    if (got.is_number_integer() && got >= least && got <= kMaxSize) return got.get<int32_t>();
    wrong(name, got, fmt::format("an integer from {} to {}", least, kMaxSize));
    return 1;
}

int32_t ConfigFields::size(Keys keys) {
    if (const auto got = optional_size(keys)) return *got;
    problem("{}{} is missing, wanted an integer", prefix_, list_text(keys));
    return 1;
}

std::optional<double> ConfigFields::optional_number(Keys keys) {
    std::string name;
    const Json& got = agreed(keys, name);
    if (got.is_null()) return std::nullopt;
    if (got.is_number() && std::isfinite(got.get<double>())) return got.get<double>();
    wrong(name, got, "a finite number");
    return 1.0;
}

double ConfigFields::number(Keys keys) {
    if (const auto got = optional_number(keys)) return *got;
    problem("{}{} is missing, wanted a number", prefix_, list_text(keys));
    return 1.0;
}

double ConfigFields::number_or(Keys keys, double otherwise) { return optional_number(keys).value_or(otherwise); }

bool ConfigFields::flag_or(Keys keys, bool otherwise) {
    std::string name;
    const Json& got = agreed(keys, name);
    if (got.is_null()) return otherwise;
    if (got.is_boolean()) return got.get<bool>();
    wrong(name, got, "true or false");
    return otherwise;
}

std::optional<std::string> ConfigFields::optional_text(Keys keys) {
    std::string name;
    const Json& got = agreed(keys, name);
    if (got.is_null()) return std::nullopt;
    if (got.is_string()) return got.get<std::string>();
    wrong(name, got, "a string");
    return std::nullopt;
}

std::optional<std::vector<double>> ConfigFields::optional_numbers(std::string_view key, size_t count) {
    const Json& got = value(key);
    if (got.is_null()) return std::nullopt;
    std::vector<double> numbers;
    if (got.is_array())
        for (const Json& item : got)
            if (item.is_number() && std::isfinite(item.get<double>())) numbers.push_back(item.get<double>());
    if (got.is_array() && got.size() == count && numbers.size() == count) return numbers;
    wrong(key, got, fmt::format("a list of {} finite numbers", count));
    return std::vector<double>(count, 1.0);
}

void ConfigFields::only_text(std::string_view key, Keys supported) {
    const Json& got = value(key);
    if (got.is_null()) return;
    for (const std::string_view text : supported)
        if (got.is_string() && got.get_ref<const std::string&>() == text) return;
    wrong(key, got, fmt::format("{} (nothing else is supported)", list_text(supported)));
}

void ConfigFields::only_flag(std::string_view key, bool supported) {
    const Json& got = value(key);
    if (!got.is_null() && got != supported) wrong(key, got, fmt::format("{} (nothing else is supported)", supported));
}

void ConfigFields::only_number(std::string_view key, double supported) {
    const Json& got = value(key);
    if (!got.is_null() && !(got.is_number() && got.get<double>() == supported))
        wrong(key, got, fmt::format("{} (nothing else is supported)", supported));
}

void ConfigFields::only_null(std::string_view key) {
    const Json& got = value(key);
    if (!got.is_null()) wrong(key, got, "null (it is not supported)");
}

void ConfigFields::only_empty(std::string_view key) {
    const Json& got = value(key);
    if (!got.is_null() && !(got.is_structured() && got.empty())) wrong(key, got, "null or empty (it is not supported)");
}

void ConfigFields::harmless(Keys keys) {
    for (const std::string_view key : keys) understood_.emplace(key);
}

void ConfigFields::absorb(const ConfigFields& inner) {
    for (std::string& text : inner.all_problems()) problems_.push_back(std::move(text));
}

std::vector<std::string> ConfigFields::all_problems() const {
    std::vector<std::string> all = problems_;
    for (const auto& [key, got] : object_.items())
        if (!understood_.contains(key))
            all.push_back(fmt::format("{}{} = {} is not understood and might change the arithmetic", prefix_,
                                      quote_text(key), quote_json(got)));
    return all;
}

Status ConfigFields::finish(std::string_view source) const {
    const std::vector<std::string> all = all_problems();
    if (all.empty()) return {};
    return error("{}: {}", source, fmt::join(all, "\n  and: "));
}

}  // namespace verbatim::reference
