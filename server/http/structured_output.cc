#include "server/http/structured_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "files/strict_json.h"
#include "server/http/field_values.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

constexpr std::array<std::string_view, 6> kFields = {"response_format", "structured_outputs", "guided_json",
                                                     "guided_regex",    "guided_choice",      "guided_grammar"};
constexpr const char* kAnyObject = R"(json_schema {"type":"object"})";

using Grammar = ApiResult<AskedGrammar>;

Grammar made(const std::string& field, std::string text) {
    if (text.size() > kMaxGrammarBytes) {
        return tl::unexpected(
            ApiError{400, fmt::format("{} has {} bytes, {} are the most", field, text.size(), kMaxGrammarBytes), field,
                     "invalid_value"});
    }
    return AskedGrammar{field, std::move(text)};
}

// An object or a bool; with `may_be_text` also the text of one.
Grammar read_schema(const std::string& field, const Json& value, bool may_be_text) {
    Json schema = value;
    if (may_be_text && value.is_string()) {
        auto parsed = parse_strict_ordered_json(value.get_ref<const std::string&>(), field);
        if (!parsed) return tl::unexpected(ApiError{400, parsed.error().message, field, "invalid_value"});
        schema = *std::move(parsed);
    }
    if (!schema.is_object() && !schema.is_boolean())
        return tl::unexpected(wrong_field(field, value, "a JSON schema, which is an object"));
    return made(field, "json_schema " + text::written(schema));
}

Grammar read_text(const std::string& field, const Json& value, const char* kind) {
    const bool is_text = value.is_string() && !value.get_ref<const std::string&>().empty();
    if (!is_text) return tl::unexpected(wrong_field(field, value, "a text that is not empty"));
    return made(field, fmt::format("{} {}", kind, value.get_ref<const std::string&>()));
}

Grammar read_choice(const std::string& field, const Json& value) {
    const auto is_text = [](const Json& one) { return one.is_string() && !one.get_ref<const std::string&>().empty(); };
    if (!value.is_array() || value.empty() || !std::ranges::all_of(value, is_text))
        return tl::unexpected(wrong_field(field, value, "a list of texts, none of them empty"));
    return made(field, "choice " + text::written(value));
}

Grammar read_one(const std::string& field, std::string_view kind, const Json& value) {
    if (kind == "json") return read_schema(field, value, /*may_be_text=*/true);
    if (kind == "choice") return read_choice(field, value);
    return read_text(field, value, kind == "regex" ? "regex" : "grammar");
}

// OpenAI's: {"type": "json_schema", "json_schema": {"name", "schema", "strict", "description"}}.
Grammar read_response_format(const std::string& field, const Json& value) {
    const std::string wanted = R"({"type": "text"}, {"type": "json_object"} or {"type": "json_schema", ..})";
    const Json type = value.is_object() ? value.value("type", Json()) : Json();
    const bool is_schema = type == "json_schema";
    if (!is_schema && type != "text" && type != "json_object") return tl::unexpected(wrong_field(field, value, wanted));
    for (const auto& [member, inner] : value.items()) {
        if (member == "type" || (member == "json_schema" && is_schema) || inner.is_null()) continue;
        return tl::unexpected(ApiError{400, fmt::format("{}.{} is not supported", field, member),
                                       fmt::format("{}.{}", field, member), "unsupported_parameter"});
    }
    if (type == "text") return AskedGrammar{field, ""};
    if (!is_schema) return made(field, kAnyObject);
    const std::string place = field + ".json_schema";
    const Json inner = value.value("json_schema", Json());
    if (!inner.is_object()) return tl::unexpected(wrong_field(place, inner, "an object with a schema"));
    for (const auto& [member, of] : inner.items()) {
        const std::string at = fmt::format("{}.{}", place, member);
        if (member == "schema" || of.is_null()) continue;
        if (member == "strict") {
            if (auto strict = truth(at, of); !strict) return tl::unexpected(strict.error());
        } else if (member != "name" && member != "description") {
            return tl::unexpected(ApiError{400, at + " is not supported", at, "unsupported_parameter"});
        } else if (!of.is_string()) {
            return tl::unexpected(wrong_field(at, of, "a text"));
        }
    }
    return read_schema(place + ".schema", inner.value("schema", Json()), /*may_be_text=*/false);
}

// vLLM's: an object with one of json, regex, choice, grammar and json_object. Its other members change nothing here
// with the values that are taken.
Grammar read_structured_outputs(const std::string& field, const Json& value) {
    if (!value.is_object()) return tl::unexpected(wrong_field(field, value, "an object"));
    std::optional<Grammar> found;
    for (const auto& [member, inner] : value.items()) {
        const std::string at = fmt::format("{}.{}", field, member);
        if (inner.is_null() || inner == false) continue;
        Grammar one;
        if (member == "json_object" && inner == true) {
            one = made(at, kAnyObject);
        } else if (member == "json" || member == "regex" || member == "choice" || member == "grammar") {
            one = read_one(at, member, inner);
        } else {
            return tl::unexpected(
                ApiError{400, fmt::format("{} = {} is not supported", at, quoted(inner)), at, "unsupported_value"});
        }
        if (!one) return one;
        if (found) {
            return tl::unexpected(ApiError{422, fmt::format("{} has more than one form: send one", field), field,
                                           "contradicting_values"});
        }
        found = std::move(one);
    }
    if (found) return *std::move(found);
    return tl::unexpected(wrong_field(field, value, "json, regex, choice, grammar or json_object in it"));
}

}  // namespace

bool is_of_structured_output(std::string_view field) { return std::ranges::find(kFields, field) != kFields.end(); }

ApiResult<AskedGrammar> read_grammar(const std::string& field, const Json& value) {
    if (field == "response_format") return read_response_format(field, value);
    if (field == "structured_outputs") return read_structured_outputs(field, value);
    return read_one(field, std::string_view(field).substr(std::string_view("guided_").size()), value);
}

std::optional<ApiError> problem_beside_grammar(const GenerateRequest& request) {
    const auto beside = [&](const char* field) {
        return ApiError{400, fmt::format("{} is not supported beside {}", field, request.grammar_field), field,
                        "unsupported_value"};
    };
    if (request.grammar.empty()) return std::nullopt;
    if (request.ignore_stop) return beside("ignore_eos");
    if (request.chat.tools.are_offered()) return beside("tools");
    return std::nullopt;
}

}  // namespace verbatim::server
