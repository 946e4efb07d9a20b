#include "reference/records/description_json.h"

#include <nlohmann/json.hpp>

#include "engine/base/check.h"
#include "files/strict_json.h"

namespace verbatim::records {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <typename T>
ordered_json to_json(const T& value) {
    if constexpr (std::is_same_v<T, bool> || std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
        return value;
    } else if constexpr (std::is_enum_v<T>) {
        return static_cast<int64_t>(value);
    } else if constexpr (kIsOptional<T>) {
        return value ? to_json(*value) : ordered_json(nullptr);
    } else {
        ordered_json object = ordered_json::object();
        visit_fields(value,
                     [&](std::string_view name, const auto& field) { object[std::string(name)] = to_json(field); });
        return object;
    }
}

Status wrong(const std::string& where, const json& got, const char* wanted) {
    return error("{} is {}, wanted {}", where, quote_json(got), wanted);
}

template <typename T>
Status from_integer(const std::string& where, const json& from, T& value) {
    if (!from.is_number_integer()) return wrong(where, from, "a whole number");
    if constexpr (std::is_same_v<T, uint64_t>) {
        if (!from.is_number_unsigned()) return wrong(where, from, "a number of no sign");
        value = from.get<uint64_t>();
    } else {
        if (from.is_number_unsigned() && !std::in_range<int64_t>(from.get<uint64_t>()))
            return wrong(where, from, "a smaller number");
        const auto wide = from.get<int64_t>();
        if constexpr (std::is_enum_v<T>) {
            if (!std::in_range<std::underlying_type_t<T>>(wide)) return wrong(where, from, "one of its values");
            if constexpr (IsClosedEnum<T>) {
                if (wide < 0 || wide >= static_cast<int64_t>(T::kCount)) return wrong(where, from, "one of its values");
            }
        } else {
            if (!std::in_range<T>(wide)) return wrong(where, from, "a smaller number");
        }
        value = static_cast<T>(wide);
    }
    return {};
}

template <typename T>
Status from_json(const std::string& where, const json& from, T& value);

// Fields that are not there keep their values.
template <typename T>
Status from_object(const std::string& where, const json& from, T& value) {
    if (!from.is_object()) return wrong(where, from, "an object");
    for (auto item = from.begin(); item != from.end(); ++item) {
        const std::string& key = item.key();
        const json& part = item.value();
        Status status;
        bool known = false;
        visit_fields(value, [&](std::string_view name, auto& field) {
            if (known || key != name) return;
            known = true;
            status = from_json(where + "." + key, part, field);
        });
        RETURN_IF_ERROR(status);
        if (!known) {
            return error("{}.{}: this program does not know it; was it recorded by a later one?", where,
                         quote_text(key));
        }
    }
    return {};
}

template <typename T>
Status from_json(const std::string& where, const json& from, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
        if (!from.is_boolean()) return wrong(where, from, "true or false");
        value = from.get<bool>();
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        return from_integer(where, from, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        if (!from.is_string()) return wrong(where, from, "a text");
        value = from.get<std::string>();
    } else if constexpr (kIsOptional<T>) {
        value.reset();
        return from.is_null() ? Status{} : from_json(where, from, value.emplace());
    } else {
        return from_object(where, from, value);
    }
    return {};
}

// What a later step relies on.
Status validate(const RunDescription& run) {
    if (run.vocab_size <= 0) return error("run.vocab_size is {}, wanted at least one token", run.vocab_size);
    const auto lookup = static_cast<int>(run.engine.cache.lookup);
    if (lookup > static_cast<int>(LookupMode::kPrefix)) return error("run.engine.cache.lookup is {}", lookup);
    return verbatim::validate(run.engine);
}

}  // namespace

const char* name(DigestLevel level) {
    switch (level) {
        case DigestLevel::kNone: return "none";
        case DigestLevel::kHeads: return "heads";
        case DigestLevel::kLayers: return "layers";
        case DigestLevel::kOps: return "ops";
        case DigestLevel::kCount: break;
    }
    CHECK(false, "digest level {}", static_cast<int>(level));
}

std::string write_head(const RunDescription& run) {
    const ordered_json head = {{"format", kFormatVersion},
                               {"run", to_json(run)},
                               {"shapes",
                                {{"call", shape_of<Call>()},
                                 {"step", shape_of<StepRecord>()},
                                 {"told", shape_of<Reported>()},
                                 {"end", shape_of<RunEnd>()}}}};
    return head.dump(1, ' ', false, ordered_json::error_handler_t::replace);
}

Result<RecordHead> read_head(std::string_view text) {
    ASSIGN_OR_RETURN(const json parsed, parse_strict_json(text, "head"));
    if (!parsed.is_object() || !parsed.contains("format") || !parsed.contains("run") || !parsed.contains("shapes") ||
        !parsed["shapes"].is_object()) {
        return error("the head lacks format, run or shapes");
    }
    if (parsed["format"] != kFormatVersion) {
        return error("format version {}, this program reads {}", quote_json(parsed["format"]), kFormatVersion);
    }
    RecordHead head;
    RETURN_IF_ERROR(from_json("run", parsed["run"], head.run));
    RETURN_IF_ERROR(validate(head.run));
    const auto shape = [&](std::string_view name, Shape& into) -> Status {
        const auto& shapes = parsed["shapes"];
        if (!shapes.contains(name) || !shapes[name].is_string()) return error("shapes.{} is not there", name);
        ASSIGN_OR_RETURN(into, parse_shape(shapes[name].get<std::string>()));
        return {};
    };
    RETURN_IF_ERROR(shape("call", head.shapes.call));
    RETURN_IF_ERROR(shape("step", head.shapes.step));
    RETURN_IF_ERROR(shape("told", head.shapes.told));
    RETURN_IF_ERROR(shape("end", head.shapes.end));
    return head;
}

}  // namespace verbatim::records
