#include "server/http/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "files/strict_json.h"
#include "server/http/field_values.h"
#include "server/http/tools.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

// Members besides the content that templates concatenate with texts.
constexpr std::array<const char*, 5> kTextMembers = {"name", "tool_call_id", "reasoning_content", "reasoning",
                                                     "refusal"};

using MemberStatus = tl::expected<void, ApiError>;

void erase_nulls(Json& object) {
    for (auto member = object.begin(); member != object.end();)
        member = member->is_null() ? object.erase(member) : std::next(member);
}

// A content of parts becomes their text, a line for each: templates need not know of parts.
ApiResult<std::string> text_of_parts(const std::string& path, const Json& parts) {
    std::string text;
    for (size_t i = 0; i < parts.size(); ++i) {
        const Json& part = parts[i];
        const std::string part_path = fmt::format("{}[{}]", path, i);
        if (!part.is_object())
            return tl::unexpected(wrong_field(part_path, part, R"({"type": "text", "text": a text})"));
        const Json type = part.value("type", Json());
        if (type != "text") {
            return tl::unexpected(ApiError{400,
                                           fmt::format("{} is a part of the type {}, wanted \"text\": this server "
                                                       "reads no other parts",
                                                       part_path, quoted(type)),
                                           part_path, "invalid_value"});
        }
        const Json own = part.value("text", Json());
        if (!own.is_string()) return tl::unexpected(wrong_field(part_path + ".text", own, "a text"));
        if (i > 0) text += '\n';
        text += own.get_ref<const std::string&>();
    }
    return text;
}

MemberStatus read_content(const std::string& path, Json& message) {
    Json& content = message["content"];
    if (content.is_null()) content = "";
    if (content.is_string()) return {};
    if (!content.is_array())
        return tl::unexpected(wrong_field(path, content, "a text, a list of parts of the type text, or null"));
    ApiResult<std::string> text = text_of_parts(path, content);
    if (!text) return tl::unexpected(std::move(text).error());
    content = *std::move(text);
    return {};
}

// By the API they are the text of an object; templates go through the object's members.
MemberStatus read_arguments(const std::string& path, Json& function) {
    Json& arguments = function["arguments"];
    if (arguments.is_null() || arguments == "") arguments = Json::object();
    if (arguments.is_object()) return {};
    if (arguments.is_string()) {
        auto object = parse_strict_ordered_json(arguments.get_ref<const std::string&>(), path);
        if (object && object->is_object()) {
            arguments = *std::move(object);
            return {};
        }
    }
    return tl::unexpected(wrong_field(path, arguments, "a JSON object, or the text of one"));
}

MemberStatus read_tool_call(const std::string& path, Json& call) {
    if (!call.is_object()) return tl::unexpected(wrong_field(path, call, "an object with a function"));
    erase_nulls(call);
    const Json type = call.value("type", Json("function"));
    if (type != "function") return tl::unexpected(wrong_field(path + ".type", type, "\"function\""));
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object())
        return tl::unexpected(
            wrong_field(path + ".function", call.value("function", Json()), "an object with a name and arguments"));
    const Json name = function->value("name", Json());
    if (!name.is_string()) return tl::unexpected(wrong_field(path + ".function.name", name, "a text"));
    return read_arguments(path + ".function.arguments", *function);
}

MemberStatus read_tool_calls(const std::string& path, Json& message) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) return {};
    if (!calls->is_array()) return tl::unexpected(wrong_field(path, *calls, "a list of calls"));
    if (calls->empty()) {
        message.erase("tool_calls");
        return {};
    }
    for (size_t i = 0; i < calls->size(); ++i) {
        if (auto read = read_tool_call(fmt::format("{}[{}]", path, i), (*calls)[i]); !read) return read;
    }
    return {};
}

ApiResult<Json> read_message(const std::string& path, const Json& value) {
    if (!value.is_object()) return tl::unexpected(wrong_field(path, value, "an object with a role and a content"));
    Json message = value;
    erase_nulls(message);
    const Json role = message.value("role", Json());
    if (!role.is_string()) return tl::unexpected(wrong_field(path + ".role", role, "a text"));
    for (const char* member : kTextMembers) {
        const auto found = message.find(member);
        if (found != message.end() && !found->is_string())
            return tl::unexpected(wrong_field(fmt::format("{}.{}", path, member), *found, "a text"));
    }
    if (auto read = read_content(path + ".content", message); !read) return tl::unexpected(std::move(read).error());
    if (auto read = read_tool_calls(path + ".tool_calls", message); !read)
        return tl::unexpected(std::move(read).error());
    return message;
}

// Most are so already, and histories are long.
bool is_as_templates_want(const Json& value) {
    return value.is_object() && value.contains("role") && value.contains("content") && !value.contains("tool_calls") &&
           std::ranges::all_of(value, [](const Json& member) { return member.is_string(); });
}

struct ChatMessages {
    std::vector<std::string> written;
    bool assistant_is_last = false;
    bool tools_are_last = false;  // the last message calls tools
};

MemberStatus read_list(const Json& list) {
    if (list.is_array() && !list.empty()) return {};
    return tl::unexpected(ApiError{400,
                                   fmt::format("messages is {}, wanted a list of objects with a role",
                                               list.is_array() ? "an empty list" : quoted(list)),
                                   "messages", "invalid_value"});
}

ApiResult<ChatMessages> read_messages(const Json& list) {
    if (auto is_list = read_list(list); !is_list) return tl::unexpected(std::move(is_list).error());
    ChatMessages messages;
    for (const Json& one : list) {
        const bool is_last = &one == &list.back();
        if (is_as_templates_want(one)) {
            messages.written.push_back(text::written(one));
            if (is_last) messages.assistant_is_last = one["role"] == "assistant";
            continue;
        }
        const ApiResult<Json> message = read_message(fmt::format("messages[{}]", messages.written.size()), one);
        if (!message) return tl::unexpected(message.error());
        messages.written.push_back(text::written(*message));
        if (!is_last) continue;
        messages.assistant_is_last = (*message)["role"] == "assistant";
        messages.tools_are_last = message->contains("tool_calls");
    }
    return messages;
}

ApiResult<std::optional<bool>> read_flag(const Json& body, const char* field) {
    const auto said = body.find(field);
    if (said == body.end() || said->is_null()) return std::nullopt;
    return truth(field, *said).map([](bool flag) { return std::optional(flag); });
}

std::optional<ApiError> problem_of_continuing(const ChatMessages& messages) {
    const size_t last = messages.written.size() - 1;
    if (!messages.assistant_is_last) {
        return ApiError{400,
                        fmt::format("continue_final_message is true and messages[{}] is not of the role assistant: it "
                                    "cannot be continued",
                                    last),
                        "continue_final_message", "invalid_value"};
    }
    if (messages.tools_are_last) {
        return ApiError{400,
                        fmt::format("messages[{}] calls tools: it cannot be continued; send the tools' answers behind "
                                    "it, or add_generation_prompt = true",
                                    last),
                        fmt::format("messages[{}].tool_calls", last), "invalid_value"};
    }
    return std::nullopt;
}

}  // namespace

ApiResult<AskedTemplate> read_chat(const Json& body) {
    const auto prompt = read_flag(body, "add_generation_prompt");
    if (!prompt) return tl::unexpected(prompt.error());
    const auto continues = read_flag(body, "continue_final_message");
    if (!continues) return tl::unexpected(continues.error());
    auto messages = read_messages(body["messages"]);
    if (!messages) return tl::unexpected(messages.error());
    AskedTemplate chat;
    if (auto read = read_tools(body, chat.tools); !read) return tl::unexpected(std::move(read).error());
    if (auto read = read_template_variables(body, chat.variables); !read)
        return tl::unexpected(std::move(read).error());
    const bool is_continued = continues->value_or(messages->assistant_is_last && !*prompt);
    if (is_continued && prompt->value_or(false)) {
        return tl::unexpected(
            ApiError{422, "continue_final_message and add_generation_prompt are both true: send one of them",
                     "continue_final_message", "contradicting_values"});
    }
    if (is_continued) {
        if (auto problem = problem_of_continuing(*messages)) return tl::unexpected(*std::move(problem));
        chat.end = ChatEnd::kContinued;
    } else if (!prompt->value_or(true)) {
        chat.end = ChatEnd::kNothing;
    }
    chat.messages = std::move(messages->written);
    return chat;
}

ApiResult<Json> prepare_messages(const Json& list) {
    if (auto is_list = read_list(list); !is_list) return tl::unexpected(std::move(is_list).error());
    Json prepared = Json::array();
    for (const Json& one : list) {
        auto message = read_message(fmt::format("messages[{}]", prepared.size()), one);
        if (!message) return tl::unexpected(std::move(message).error());
        prepared.push_back(*std::move(message));
    }
    return prepared;
}

}  // namespace verbatim::server
