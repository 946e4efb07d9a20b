// server/text/answer_form.h: the forms in which families of models write reasoning and calls of tools into their text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/text/user_text.h"

namespace verbatim::text {

// How a family writes a call.
enum class ToolFormat : uint8_t {
    kNone,      // the family's form is not known
    kHermes,    // <tool_call>{"name": .., "arguments": {..}}</tool_call>: Hermes, Qwen2.5, Qwen3, Granite 4
    kGranite,   // <|tool_call|>[{"name": .., "arguments": {..}}, ..]: Granite 3
    kNemotron,  // <TOOLCALL>[{"name": .., "arguments": {..}}, ..]</TOOLCALL>
    kQwenXml,   // <tool_call><function=NAME><parameter=NAME>value</parameter></function></tool_call>: Qwen3-Coder,
                // Qwen3.5, Nemotron 3
    kLlama,     // the whole answer is {"name": .., "parameters": {..}}, or what follows <|python_tag|> is: Llama 3
};
enum class ReasoningFormat : uint8_t { kNone, kThink };  // kThink: <think>..</think> before the answer

// By their names in --tool-parser and --reasoning-parser.
inline constexpr std::array<std::pair<std::string_view, ToolFormat>, 6> kToolFormats = {{
    {"none", ToolFormat::kNone},
    {"hermes", ToolFormat::kHermes},
    {"granite", ToolFormat::kGranite},
    {"nemotron", ToolFormat::kNemotron},
    {"qwen3_coder", ToolFormat::kQwenXml},
    {"llama3_json", ToolFormat::kLlama},
}};
inline constexpr std::array<std::pair<std::string_view, ReasoningFormat>, 2> kReasoningFormats = {{
    {"none", ReasoningFormat::kNone},
    {"think", ReasoningFormat::kThink},
}};
[[nodiscard]] std::string_view name(ToolFormat format);
[[nodiscard]] std::string_view name(ReasoningFormat format);

// What a chat template's source says of its family.
[[nodiscard]] ToolFormat tool_format_in(std::string_view chat_template);
[[nodiscard]] ReasoningFormat reasoning_format_in(std::string_view chat_template);

// The texts around a call. `begin`: any of them begins one; `end`: empty if there is none.
struct CallMarks {
    std::array<std::string_view, 2> begin;
    std::string_view end;
};
[[nodiscard]] const CallMarks& call_marks(ToolFormat format);
// The beginning of a call of the function, up to its arguments, or of any function, up to its name.
[[nodiscard]] std::string begun_call(ToolFormat format, const std::optional<std::string>& function);

inline constexpr std::string_view kThinkBegin = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";

// A set of JSON's types, a bit each.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kJsonString = 1, kJsonNumber = 2, kJsonBoolean = 4, kJsonNull = 8, kJsonObject = 16,
                           kJsonArray = 32, kJsonAny = 63;

// The functions that a request offers, and which types their parameters may have.
struct ToolFunctions {
    using Parameters = std::map<std::string, JsonTypes, std::less<>>;
    std::map<std::string, Parameters, std::less<>> by_name;
    [[nodiscard]] bool has(std::string_view function) const { return by_name.contains(function); }
    // kJsonString where the schema does not name the parameter.
    [[nodiscard]] JsonTypes types_of(std::string_view function, std::string_view parameter) const;
};
// Of the `properties` of a JSON schema, which may be absent or wrong.
[[nodiscard]] ToolFunctions::Parameters parameters_of(const Json& schema);
// A parameter's value that is written as plain text, as JSON: what it spells if that is of one of the types, else a
// text.
[[nodiscard]] std::string json_of_plain(std::string_view value, JsonTypes types);

// What to look for in an answer.
struct AnswerForm {
    ToolFormat tools = ToolFormat::kNone;  // kNone: calls are text
    ReasoningFormat reasoning = ReasoningFormat::kNone;
    bool begins_in_reasoning = false;  // the prompt ends inside of it
    bool ends_with_call = false;       // the answer ends behind its first call
    std::string begun;                 // the end of the prompt that is the beginning of the answer's first call
    std::shared_ptr<const ToolFunctions> functions;  // null: none
    [[nodiscard]] bool is_plain() const {
        return tools == ToolFormat::kNone && reasoning == ReasoningFormat::kNone && !begins_in_reasoning;
    }
};

}  // namespace verbatim::text
