#include "server/text/answer_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/text/written_json.h"

namespace verbatim::text {
namespace {

template <typename Formats, typename Format>
std::string_view name_in(const Formats& formats, Format format) {
    return std::ranges::find(formats, format, &Formats::value_type::second)->first;
}

bool says(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

JsonTypes types_named(const Json& type) {
    if (!type.is_string()) return 0;
    static const std::map<std::string, JsonTypes, std::less<>> kNamed = {
        {"string", kJsonString}, {"number", kJsonNumber}, {"integer", kJsonNumber}, {"boolean", kJsonBoolean},
        {"object", kJsonObject}, {"array", kJsonArray},   {"null", kJsonNull}};
    const auto found = kNamed.find(type.get_ref<const std::string&>());
    return found == kNamed.end() ? JsonTypes{0} : found->second;
}

JsonTypes type_of(const Json& value) {
    switch (value.type()) {
        case Json::value_t::string: return kJsonString;
        case Json::value_t::boolean: return kJsonBoolean;
        case Json::value_t::null: return kJsonNull;
        case Json::value_t::object: return kJsonObject;
        case Json::value_t::array: return kJsonArray;
        default: return kJsonNumber;
    }
}

// Alternatives inside of alternatives are read to this depth.
constexpr int kMaxSchemaDepth = 8;

JsonTypes types_in(const Json& schema, int depth = 0) {
    if (!schema.is_object() || depth == kMaxSchemaDepth) return 0;
    if (schema.contains("$ref")) return kJsonAny;
    JsonTypes types = 0;
    for (const auto& [key, value] : schema.items()) {
        if (key == "type" && !value.is_array()) types |= types_named(value);
        if (key == "const") types |= type_of(value);
        if (!value.is_array()) continue;
        for (const Json& one : value) {
            if (key == "type") types |= types_named(one);
            if (key == "enum") types |= type_of(one);
            if (key == "anyOf" || key == "oneOf") types |= types_in(one, depth + 1);
        }
    }
    return types;
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    const size_t begin = text.find_first_not_of(kSpace);
    return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// Templates show Python's values to models, which write them.
std::optional<std::string_view> python_word(std::string_view word, JsonTypes types) {
    if (word == "True" && (types & kJsonBoolean) != 0) return "true";
    if (word == "False" && (types & kJsonBoolean) != 0) return "false";
    if (word == "None" && (types & kJsonNull) != 0) return "null";
    return std::nullopt;
}

}  // namespace

std::string_view name(ToolFormat format) { return name_in(kToolFormats, format); }
std::string_view name(ReasoningFormat format) { return name_in(kReasoningFormats, format); }

// Templates of Qwen3-Coder's form have Hermes' mark, too: the rarer marks come first.
ToolFormat tool_format_in(std::string_view chat_template) {
    if (says(chat_template, "<TOOLCALL>")) return ToolFormat::kNemotron;
    if (says(chat_template, "<function=")) return ToolFormat::kQwenXml;
    if (says(chat_template, "<|tool_call|>")) return ToolFormat::kGranite;
    if (says(chat_template, "<tool_call>")) return ToolFormat::kHermes;
    const bool is_llama = says(chat_template, "ipython") && says(chat_template, "\"parameters\": ");
    if (is_llama || says(chat_template, "<|python_tag|>")) return ToolFormat::kLlama;
    return ToolFormat::kNone;
}

ReasoningFormat reasoning_format_in(std::string_view chat_template) {
    return says(chat_template, kThinkEnd) ? ReasoningFormat::kThink : ReasoningFormat::kNone;
}

const CallMarks& call_marks(ToolFormat format) {
    static const CallMarks kNothing;
    static const CallMarks kHermes = {{"<tool_call>", ""}, "</tool_call>"};
    static const CallMarks kGranite = {{"<|tool_call|>", "<tool_call>"}, "</tool_call>"};
    static const CallMarks kNemotron = {{"<TOOLCALL>", ""}, "</TOOLCALL>"};
    static const CallMarks kQwenXml = {{"<tool_call>", "<function="}, "</tool_call>"};
    static const CallMarks kLlama = {{"<|python_tag|>", ""}, ""};
    switch (format) {
        case ToolFormat::kNone: return kNothing;
        case ToolFormat::kHermes: return kHermes;
        case ToolFormat::kGranite: return kGranite;
        case ToolFormat::kNemotron: return kNemotron;
        case ToolFormat::kQwenXml: return kQwenXml;
        case ToolFormat::kLlama: return kLlama;
    }
    return kNothing;
}

std::string begun_call(ToolFormat format, const std::optional<std::string>& function) {
    const auto json = [&](std::string_view before, std::string_view arguments) {
        std::string begun = fmt::format(R"({}{{"name": ")", before);
        if (function) begun += fmt::format(R"({}", "{}": )", *function, arguments);
        return begun;
    };
    switch (format) {
        case ToolFormat::kNone: return "";
        case ToolFormat::kHermes: return json("<tool_call>\n", "arguments");
        case ToolFormat::kGranite: return json("<|tool_call|>[", "arguments");
        case ToolFormat::kNemotron: return json("<TOOLCALL>[", "arguments");
        case ToolFormat::kLlama: return json("", "parameters");
        case ToolFormat::kQwenXml:
            return function ? fmt::format("<tool_call>\n<function={}>\n", *function) : "<tool_call>\n<function=";
    }
    return "";
}

JsonTypes ToolFunctions::types_of(std::string_view function, std::string_view parameter) const {
    const auto found = by_name.find(function);
    if (found == by_name.end()) return kJsonString;
    const auto types = found->second.find(parameter);
    return types == found->second.end() ? kJsonString : types->second;
}

ToolFunctions::Parameters parameters_of(const Json& schema) {
    ToolFunctions::Parameters parameters;
    const Json properties = schema.is_object() ? schema.value("properties", Json()) : Json();
    if (!properties.is_object()) return parameters;
    for (const auto& [parameter, of] : properties.items()) {
        const JsonTypes types = types_in(of);
        parameters[parameter] = types == 0 ? kJsonString : types;
    }
    return parameters;
}

std::string json_of_plain(std::string_view value, JsonTypes types) {
    const auto as_text = [value] {
        std::string text;
        append_json_text(text, value);
        return text;
    };
    if (types == kJsonString) return as_text();
    const std::string_view word = trimmed(value);
    if (const auto said = python_word(word, types)) return std::string(*said);
    const Json json = Json::parse(word, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return as_text();
    const bool is_wanted = (type_of(json) & types) != 0;
    return is_wanted || (types & kJsonString) == 0 ? std::string(word) : as_text();
}

}  // namespace verbatim::text
