#include "server/http/response_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "server/http/field_values.h"
#include "server/http/response_chain.h"
#include "server/http/tools.h"
#include "server/http/translated_chat.h"

namespace verbatim::server {
namespace {

using ReadStatus = tl::expected<void, ApiError>;

constexpr std::array<std::string_view, 4> kTextTypes = {"input_text", "output_text", "text", "refusal"};
constexpr std::string_view kReasoningTypes[] = {"reasoning_text", "summary_text", "text"};

struct Translation {
    const Json& body;
    TranslatedChat chat;
    ResponseRequest response;
    [[nodiscard]] const Json* said(std::string_view field) const { return member_of(body, field); }
};

// --- the input

ReadStatus read_message_item(const std::string& path, const Json& item, MessageList& messages) {
    const auto role = text_member(path, item, "role");
    if (!role) return tl::unexpected(role.error());
    constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system", "developer"};
    if (std::ranges::find(kRoles, *role) == kRoles.end())
        return tl::unexpected(wrong_field(path + ".role", Json(*role), "user, assistant, system or developer"));
    const Json* said = member_of(item, "content");
    if (said == nullptr) return tl::unexpected(missing_field(path + ".content"));
    auto content = text_content(path + ".content", *said, kTextTypes);
    if (!content) return tl::unexpected(std::move(content).error());
    if (*role == "assistant")
        messages.add_text(path, *std::move(content));
    else
        messages.add(path, {{"role", *role == "developer" ? "system" : *role}, {"content", *std::move(content)}});
    return {};
}

ReadStatus read_function_call(const std::string& path, const Json& item, MessageList& messages) {
    const auto name = text_member(path, item, "name");
    if (!name) return tl::unexpected(name.error());
    const auto id = text_member(path, item, "call_id");
    if (!id) return tl::unexpected(id.error());
    const auto arguments = text_member(path, item, "arguments");
    if (!arguments) return tl::unexpected(arguments.error());
    messages.add_call(path, *id, *name, *arguments);
    return {};
}

ReadStatus read_call_output(const std::string& path, const Json& item, MessageList& messages) {
    const auto id = text_member(path, item, "call_id");
    if (!id) return tl::unexpected(id.error());
    const Json* said = member_of(item, "output");
    if (said == nullptr) return tl::unexpected(missing_field(path + ".output"));
    auto content = text_content(path + ".output", *said, kTextTypes);
    if (!content) return tl::unexpected(std::move(content).error());
    messages.add(path, {{"role", "tool"}, {"tool_call_id", *id}, {"content", *std::move(content)}});
    return {};
}

// The reasoning itself, else its summary; what is encrypted says nothing here.
ReadStatus read_reasoning(const std::string& path, const Json& item, MessageList& messages) {
    for (const char* name : {"content", "summary"}) {
        const Json* said = member_of(item, name);
        if (said == nullptr || *said == Json::array()) continue;
        auto content = text_content(fmt::format("{}.{}", path, name), *said, kReasoningTypes);
        if (!content) return tl::unexpected(std::move(content).error());
        std::string text;
        if (content->is_string()) content = Json::array({{{"text", *content}}});
        for (const Json& part : *content) text += (text.empty() ? "" : "\n") + part["text"].get<std::string>();
        messages.add_reasoning(path, text);
        return {};
    }
    return {};
}

ReadStatus read_item(const std::string& path, const Json& item, MessageList& messages) {
    if (!item.is_object()) return tl::unexpected(wrong_field(path, item, "an object with a type"));
    const Json* type = member_of(item, "type");
    if (type == nullptr || *type == "message") return read_message_item(path, item, messages);
    if (*type == "function_call") return read_function_call(path, item, messages);
    if (*type == "function_call_output") return read_call_output(path, item, messages);
    if (*type == "reasoning") return read_reasoning(path, item, messages);
    return tl::unexpected(
        unsupported_type(path, *type, "message, function_call, function_call_output and reasoning are"));
}

ReadStatus read_input(Translation& to) {
    MessageList messages(to.chat.origins);
    if (const Json* instructions = to.said("instructions")) {
        if (!instructions->is_string()) return tl::unexpected(wrong_field("instructions", *instructions, "a text"));
        messages.add("instructions", {{"role", "system"}, {"content", *instructions}});
        to.response.has_instructions = true;
    }
    const Json* input = to.said("input");
    if (input == nullptr) return tl::unexpected(missing_field("input"));
    if (input->is_string()) {
        messages.add("input", {{"role", "user"}, {"content", *input}});
    } else if (!input->is_array() || input->empty()) {
        return tl::unexpected(wrong_field("input", *input, "a text or a list of items"));
    } else {
        for (size_t i = 0; i < input->size(); ++i) {
            if (auto read = read_item(fmt::format("input[{}]", i), (*input)[i], messages); !read) return read;
        }
    }
    to.chat.origins.push_back({"messages", "input"});
    to.chat.body["messages"] = messages.take();
    to.chat.body["add_generation_prompt"] = true;
    return {};
}

// --- tools

ApiResult<Json> chat_tool(const std::string& path, const Json& tool) {
    if (!tool.is_object()) return tl::unexpected(wrong_field(path, tool, R"({"type": "function", "name": ..})"));
    const Json type = tool.value("type", Json());
    if (type != "function") {
        if (!type.is_string()) return tl::unexpected(wrong_field(path + ".type", type, "\"function\""));
        return tl::unexpected(unsupported_type(path, type, "tools are functions, which the client runs"));
    }
    Json function = Json::object();
    for (const auto& [name, value] : tool.items()) {
        if (name != "type") function[name] = value;
    }
    return Json{{"type", "function"}, {"function", std::move(function)}};
}

ReadStatus read_tool_list(Translation& to) {
    const Json* tools = to.said("tools");
    if (tools == nullptr) return {};
    if (!tools->is_array()) return tl::unexpected(wrong_field("tools", *tools, "a list of tools"));
    Json list = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
        const std::string path = fmt::format("tools[{}]", i);
        auto tool = chat_tool(path, (*tools)[i]);
        if (!tool) return tl::unexpected(std::move(tool).error());
        list.push_back(*std::move(tool));
        to.chat.origins.push_back({path + ".function", path});
    }
    to.chat.body["tools"] = std::move(list);
    return {};
}

ReadStatus read_tool_choice(Translation& to) {
    const Json* choice = to.said("tool_choice");
    if (choice == nullptr) return {};
    constexpr std::string_view kWanted = R"("none", "auto", "required" or {"type": "function", "name": ..})";
    if (choice->is_string()) {
        to.chat.body["tool_choice"] = *choice;
        return {};
    }
    const Json* name = choice->is_object() ? member_of(*choice, "name") : nullptr;
    if (name == nullptr || !name->is_string() || choice->value("type", Json()) != "function")
        return tl::unexpected(wrong_field("tool_choice", *choice, kWanted));
    to.chat.body["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
    return {};
}

// --- other fields

ApiError unsupported(const std::string& field, const Json& value, std::string_view instead) {
    return {400, fmt::format("{} = {} is not supported: {}", field, quoted(value), instead), field,
            "unsupported_value"};
}

// Errors: it is no object, or has a member that is none of `known`.
ReadStatus check_members(const std::string& field, const Json& object, std::span<const std::string_view> known) {
    if (!object.is_object()) return tl::unexpected(wrong_field(field, object, "an object"));
    for (const auto& [name, value] : object.items()) {
        const std::string path = fmt::format("{}.{}", field, name);
        if (value.is_null() || std::ranges::find(known, name) != known.end()) continue;
        return tl::unexpected(ApiError{400, fmt::format("{} is not supported", path), path, "unsupported_parameter"});
    }
    return {};
}

// There are no summaries: the reasoning itself is in the answer.
ReadStatus read_reasoning_options(const Json& value, Translation& to) {
    constexpr std::string_view kKnown[] = {"effort", "summary", "generate_summary"};
    if (auto read = check_members("reasoning", value, kKnown); !read) return read;
    if (const Json* effort = member_of(value, "effort")) to.chat.body["reasoning_effort"] = *effort;
    to.chat.origins.push_back({"reasoning_effort", "reasoning.effort"});
    return {};
}

ReadStatus read_text_options(const Json& value, Translation& to) {
    constexpr std::string_view kKnown[] = {"format", "verbosity"};
    if (auto read = check_members("text", value, kKnown); !read) return read;
    if (const Json* verbosity = member_of(value, "verbosity")) to.chat.body["verbosity"] = *verbosity;
    to.chat.origins.push_back({"verbosity", "text.verbosity"});
    to.chat.origins.push_back({"response_format", "text.format"});
    const Json* format = member_of(value, "format");
    if (format == nullptr) return {};
    if (!format->is_object() || format->value("type", Json()) != "json_schema") {
        to.chat.body["response_format"] = *format;
        return {};
    }
    Json schema = *format;
    schema.erase("type");
    to.chat.body["response_format"] = {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
    to.chat.origins.push_back({"response_format.json_schema", "text.format"});
    return {};
}

ReadStatus read_include(const Json& value) {
    if (!value.is_array()) return tl::unexpected(wrong_field("include", value, "a list of texts"));
    for (const Json& one : value) {
        if (one != "reasoning.encrypted_content")
            return tl::unexpected(unsupported("include", one, "reasoning is in the answer as it is"));
    }
    return {};
}

ReadStatus read_metadata(const Json& value) {
    const bool are_texts =
        value.is_object() && std::ranges::all_of(value, [](const Json& one) { return one.is_string(); });
    if (!are_texts) return tl::unexpected(wrong_field("metadata", value, "an object of texts"));
    return {};
}

ReadStatus read_previous(const Json& value, Translation& to) {
    auto id = identifier("previous_response_id", value);
    if (!id) return tl::unexpected(std::move(id).error());
    if (conversation_of_response(*id).empty()) return tl::unexpected(unknown_response(*id, "previous_response_id"));
    to.response.previous_id = *std::move(id);
    return {};
}

ReadStatus read_store(const Json& value, Translation& to) {
    const auto flag = truth("store", value);
    if (!flag) return tl::unexpected(flag.error());
    to.response.is_stored = *flag;
    return {};
}

ReadStatus only(const char* field, const Json& value, const Json& usual, std::string_view instead) {
    if (value == usual) return {};
    return tl::unexpected(unsupported(field, value, instead));
}

using Reader = std::function<ReadStatus(const Json&, Translation&)>;

const std::map<std::string, Reader, std::less<>>& own_fields() {
    static const Reader kElsewhere = [](const Json&, Translation&) { return ReadStatus(); };
    static const std::map<std::string, Reader, std::less<>> kFields = {
        {"input", kElsewhere},
        {"instructions", kElsewhere},
        {"tools", kElsewhere},
        {"tool_choice", kElsewhere},
        {"reasoning", read_reasoning_options},
        {"text", read_text_options},
        {"include", [](const Json& v, Translation&) { return read_include(v); }},
        {"metadata", [](const Json& v, Translation&) { return read_metadata(v); }},
        {"previous_response_id", read_previous},
        {"store", read_store},
        {"max_output_tokens",
         [](const Json& v, Translation& to) -> ReadStatus {
             if (v == 0) return tl::unexpected(wrong_field("max_output_tokens", v, "a whole number from 1 on"));
             to.chat.body["max_completion_tokens"] = v;
             to.chat.origins.push_back({"max_completion_tokens", "max_output_tokens"});
             return {};
         }},
        {"background",
         [](const Json& v, Translation&) { return only("background", v, false, "an answer is waited for"); }},
        {"truncation",
         [](const Json& v, Translation&) {
             return only("truncation", v, "disabled", "nothing is left out of a prompt");
         }},
        {"top_logprobs",
         [](const Json& v, Translation&) {
             return only("top_logprobs", v, 0, "/v1/chat/completions has log probabilities");
         }},
    };
    return kFields;
}

// Fields of chats, which have another name here or none.
const std::map<std::string, std::string, std::less<>>& other_response_names() {
    static const std::map<std::string, std::string, std::less<>> kNames = {
        {"conversation", "previous_response_id goes on from a response"},
        {"prompt", "instructions and input are the prompt"},
        {"messages", "input has the messages"},
        {"max_tokens", "max_output_tokens is its name here"},
        {"max_completion_tokens", "max_output_tokens is its name here"},
        {"response_format", "text.format is its name here"},
        {"reasoning_effort", "reasoning.effort is its name here"},
        {"verbosity", "text.verbosity is its name here"},
        {"max_tool_calls", "parallel_tool_calls = false ends an answer behind its first call"},
        {"conversation_id", "previous_response_id goes on from a response"},
        {"turn_id", "previous_response_id goes on from a response"},
        {"parent_head", "previous_response_id goes on from a response"},
        {"suffix_only", "previous_response_id goes on from a response"},
        {"add_generation_prompt", "an answer is a message of its own"},
        {"continue_final_message", "an answer is a message of its own"},
        {"n", "a response is one answer"},
        {"best_of", "a response is one answer"},
        {"logprobs", "/v1/chat/completions has log probabilities"},
        {"prompt_logprobs", "/v1/chat/completions has log probabilities"},
        {"return_turn_details", "/v1/chat/completions has them"},
        {"logprob_start_len", "/v1/chat/completions has log probabilities"},
        {"functions", "tools has the functions"},
        {"function_call", "tool_choice is its name here"},
    };
    return kNames;
}

ReadStatus read_field(const std::string& field, const Json& value, Translation& to) {
    const auto own = own_fields().find(field);
    if (own != own_fields().end()) return own->second(value, to);
    const auto other = other_response_names().find(field);
    if (other != other_response_names().end()) {
        return tl::unexpected(ApiError{400, fmt::format("{} is not supported: {}", field, other->second), field,
                                       "unsupported_parameter"});
    }
    to.chat.body[field] = value;
    return {};
}

// What OpenAI's responses repeat; a client reads its request from them.
Json repeated_members(const Translation& from, const GenerateRequest& request) {
    const auto said = [&from](const char* field, Json otherwise) {
        const Json* value = from.said(field);
        return value == nullptr ? std::move(otherwise) : *value;
    };
    Json reasoning = {{"effort", nullptr}, {"summary", nullptr}};
    reasoning.update(said("reasoning", Json::object()));
    Json text = {{"format", {{"type", "text"}}}, {"verbosity", "medium"}};
    text.update(said("text", Json::object()));
    return {{"instructions", said("instructions", nullptr)},
            {"max_output_tokens", said("max_output_tokens", nullptr)},
            {"max_tool_calls", nullptr},
            {"metadata", said("metadata", Json::object())},
            {"parallel_tool_calls", request.chat.tools.several},
            {"previous_response_id", said("previous_response_id", nullptr)},
            {"reasoning", std::move(reasoning)},
            {"service_tier", "default"},
            {"store", from.response.is_stored},
            {"temperature", said("temperature", 1.0)},
            {"text", std::move(text)},
            {"tool_choice", said("tool_choice", "auto")},
            {"tools", said("tools", Json::array())},
            {"top_logprobs", 0},
            {"top_p", said("top_p", 1.0)},
            {"truncation", "disabled"}};
}

}  // namespace

ApiResult<GenerateRequest> parse_response_request(const Json& body, const ModelNames& model, int32_t vocab_size) {
    Translation to{.body = body, .chat = {}, .response = {}};
    for (const auto& [field, value] : body.items()) {
        if (value.is_null()) continue;
        if (auto read = read_field(field, value, to); !read) return tl::unexpected(std::move(read).error());
    }
    for (ReadStatus (*read)(Translation&) : {read_input, read_tool_list, read_tool_choice}) {
        if (auto done = read(to); !done) return tl::unexpected(std::move(done).error());
    }
    auto request = read_generate_request(ApiKind::kChat, to.chat.body, model, vocab_size);
    if (!request) return tl::unexpected(with_origins(std::move(request).error(), to.chat.origins));
    to.response.repeated = repeated_members(to, *request);
    request->response = std::make_shared<ResponseRequest>(std::move(to.response));
    request->origins = std::move(to.chat.origins);
    return request;
}

std::shared_ptr<const text::ToolFunctions> functions_of_response(const Json& tools) {
    const Json body = {{"tools", tools}};
    Translation to{.body = body, .chat = {}, .response = {}};
    AskedTools read;
    if (!read_tool_list(to) || !read_tools(to.chat.body, read)) return nullptr;
    return read.functions;
}

}  // namespace verbatim::server
