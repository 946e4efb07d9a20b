#include "server/http/tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "server/http/field_values.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

using ReadStatus = tl::expected<void, ApiError>;

// What render_chat.py sets itself.
constexpr std::array<std::string_view, 5> kOwnVariables = {"messages", "tools", "add_generation_prompt",
                                                           "continue_final_message", "documents"};
constexpr std::array<std::string_view, 6> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh"};

const Json* said_field(const Json& body, const char* field) {
    const auto found = body.find(field);
    return found == body.end() || found->is_null() ? nullptr : &*found;
}

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

// A name is written into prompts, and has nothing in it that a call's form could take for a part of it.
bool is_tool_name(const Json& value) {
    if (!value.is_string()) return false;
    const std::string& name = value.get_ref<const std::string&>();
    return !name.empty() && name.size() <= kMaxToolNameBytes && std::ranges::all_of(name, [](char c) {
        return is_letter_or_digit(c) || std::string_view("_-.:/").find(c) != std::string_view::npos;
    });
}

bool is_variable_name(std::string_view name) {
    return !name.empty() && !(name[0] >= '0' && name[0] <= '9') && std::ranges::all_of(name, is_of_variable);
}

ReadStatus read_tool(const std::string& path, const Json& tool, text::ToolFunctions& functions) {
    if (!tool.is_object())
        return tl::unexpected(wrong_field(path, tool, R"({"type": "function", "function": {"name": ..}})"));
    const Json type = tool.value("type", Json());
    if (type != "function") return tl::unexpected(wrong_field(path + ".type", type, "\"function\""));
    const Json function = tool.value("function", Json());
    if (!function.is_object())
        return tl::unexpected(wrong_field(path + ".function", function, "an object with a name"));
    const Json name = function.value("name", Json());
    if (!is_tool_name(name)) {
        return tl::unexpected(wrong_field(path + ".function.name", name,
                                          fmt::format("1 to {} letters, digits and _ - . : /", kMaxToolNameBytes)));
    }
    const Json description = function.value("description", Json());
    if (!description.is_null() && !description.is_string())
        return tl::unexpected(wrong_field(path + ".function.description", description, "a text"));
    const Json schema = function.value("parameters", Json());
    if (!schema.is_null() && !schema.is_object())
        return tl::unexpected(wrong_field(path + ".function.parameters", schema, "a JSON schema: an object"));
    if (!functions.by_name.emplace(name.get<std::string>(), text::parameters_of(schema)).second) {
        return tl::unexpected(
            ApiError{400, fmt::format("{}.function.name is {}, as that of another tool", path, quoted(name)),
                     path + ".function.name", "invalid_value"});
    }
    return {};
}

ReadStatus read_list_of_tools(const Json& list, AskedTools& tools) {
    if (!list.is_array()) return tl::unexpected(wrong_field("tools", list, "a list of tools"));
    if (list.empty()) return {};
    auto functions = std::make_shared<text::ToolFunctions>();
    for (size_t i = 0; i < list.size(); ++i) {
        if (auto read = read_tool(fmt::format("tools[{}]", i), list[i], *functions); !read) return read;
    }
    tools.list = text::written(list);
    tools.functions = std::move(functions);
    return {};
}

ReadStatus read_choice(const Json& choice, AskedTools& tools) {
    using Choice = AskedTools::Choice;
    constexpr std::string_view kWanted =
        R"("none", "auto", "required" or {"type": "function", "function": {"name": ..}})";
    if (choice.is_object() && choice.value("type", Json()) == "function") {
        const Json function = choice.value("function", Json());
        const Json name = function.is_object() ? function.value("name", Json()) : Json();
        if (!name.is_string()) return tl::unexpected(wrong_field("tool_choice", choice, kWanted));
        if (!tools.functions || !tools.functions->has(name.get_ref<const std::string&>())) {
            return tl::unexpected(
                ApiError{400, fmt::format("tool_choice names {}, which is none of the tools", quoted(name)),
                         "tool_choice", "invalid_value"});
        }
        tools.choice = Choice::kNamed;
        tools.named = name.get<std::string>();
        return {};
    }
    if (choice == "none") {
        tools.choice = Choice::kNone;
    } else if (choice == "required") {
        if (!tools.functions)
            return tl::unexpected(
                ApiError{400, "tool_choice is \"required\" and there are no tools", "tool_choice", "invalid_value"});
        tools.choice = Choice::kRequired;
    } else if (choice != "auto") {
        return tl::unexpected(wrong_field("tool_choice", choice, kWanted));
    }
    return {};
}

}  // namespace

bool is_of_variable(char c) { return is_letter_or_digit(c) || c == '_'; }

ReadStatus read_tools(const Json& body, AskedTools& tools) {
    if (const Json* list = said_field(body, "tools")) {
        if (auto read = read_list_of_tools(*list, tools); !read) return read;
    }
    if (const Json* choice = said_field(body, "tool_choice")) {
        if (auto read = read_choice(*choice, tools); !read) return read;
    }
    if (const Json* several = said_field(body, "parallel_tool_calls")) {
        auto flag = truth("parallel_tool_calls", *several);
        if (!flag) return tl::unexpected(std::move(flag).error());
        tools.several = *flag;
    }
    return {};
}

ReadStatus read_template_variables(const Json& body, Json& variables) {
    variables = Json::object();
    if (const Json* said = said_field(body, "chat_template_kwargs")) {
        if (!said->is_object()) return tl::unexpected(wrong_field("chat_template_kwargs", *said, "an object"));
        for (const auto& [name, value] : said->items()) {
            if (std::ranges::count(kOwnVariables, name) > 0 || !is_variable_name(name)) {
                return tl::unexpected(
                    ApiError{400,
                             fmt::format("chat_template_kwargs has {}, which is no variable that a request can set",
                                         quoted(Json(name))),
                             "chat_template_kwargs", "invalid_value"});
            }
            variables[name] = value;
        }
    }
    if (const Json* effort = said_field(body, "reasoning_effort")) {
        if (!effort->is_string() || std::ranges::count(kEfforts, effort->get_ref<const std::string&>()) == 0) {
            return tl::unexpected(
                wrong_field("reasoning_effort", *effort, fmt::format("one of {}", fmt::join(kEfforts, ", "))));
        }
        if (variables.contains("reasoning_effort") && variables["reasoning_effort"] != *effort) {
            return tl::unexpected(
                ApiError{422, "reasoning_effort and chat_template_kwargs.reasoning_effort differ: send one",
                         "reasoning_effort", "contradicting_values"});
        }
        variables["reasoning_effort"] = *effort;
    }
    return {};
}

}  // namespace verbatim::server
