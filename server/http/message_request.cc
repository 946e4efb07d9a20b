#include "server/http/message_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/field_values.h"
#include "server/http/translated_chat.h"

namespace verbatim::server {
namespace {

using ReadStatus = tl::expected<void, ApiError>;

constexpr std::array<std::string_view, 1> kText = {"text"};

// --- messages

ReadStatus read_tool_use(const std::string& path, const Json& block, MessageList& messages) {
    const auto name = text_member(path, block, "name");
    if (!name) return tl::unexpected(name.error());
    const auto id = text_member(path, block, "id");
    if (!id) return tl::unexpected(id.error());
    const Json input = block.value("input", Json::object());
    if (!input.is_object()) return tl::unexpected(wrong_field(path + ".input", input, "an object"));
    messages.add_call(path, *id, *name, input);
    return {};
}

// A result without content is an empty text.
ReadStatus read_tool_result(const std::string& path, const Json& block, MessageList& messages) {
    const auto id = text_member(path, block, "tool_use_id");
    if (!id) return tl::unexpected(id.error());
    const Json* said = member_of(block, "content");
    auto content = said == nullptr ? ApiResult<Json>("") : text_content(path + ".content", *said, kText);
    if (!content) return tl::unexpected(std::move(content).error());
    Json message = {{"role", "tool"}, {"tool_call_id", *id}, {"content", *std::move(content)}};
    if (const Json* failed = member_of(block, "is_error")) {
        if (!failed->is_boolean()) return tl::unexpected(wrong_field(path + ".is_error", *failed, "true or false"));
        if (*failed == true) message["is_error"] = true;
    }
    messages.add(path, std::move(message));
    return {};
}

ReadStatus read_block(const std::string& path, const Json& block, bool is_assistant, MessageList& messages) {
    if (!block.is_object()) return tl::unexpected(wrong_field(path, block, "an object with a type"));
    const auto type = text_member(path, block, "type");
    if (!type) return tl::unexpected(type.error());
    if (*type == "text") {
        auto text = text_member(path, block, "text");
        if (!text) return tl::unexpected(std::move(text).error());
        if (is_assistant)
            messages.add_text(path, *std::move(text));
        else
            messages.add(path, {{"role", "user"}, {"content", *std::move(text)}});
        return {};
    }
    if (is_assistant && *type == "tool_use") return read_tool_use(path, block, messages);
    if (!is_assistant && *type == "tool_result") return read_tool_result(path, block, messages);
    if (is_assistant && *type == "redacted_thinking") return {};
    if (is_assistant && *type == "thinking") {
        const auto thinking = text_member(path, block, "thinking");
        if (!thinking) return tl::unexpected(thinking.error());
        messages.add_reasoning(path, *thinking);
        return {};
    }
    return tl::unexpected(unsupported_type(path, Json(*type),
                                           is_assistant ? "an assistant's blocks are text, tool_use and thinking"
                                                        : "a user's blocks are text and tool_result"));
}

// Texts in a row are one message, a line for each.
ReadStatus read_blocks(const std::string& path, const Json& blocks, bool is_assistant, MessageList& messages) {
    for (size_t i = 0; i < blocks.size();) {
        size_t end = i;
        const auto is_text = [&](size_t at) {
            return at < blocks.size() && blocks[at].is_object() && blocks[at].value("type", Json()) == "text";
        };
        while (is_text(end)) ++end;
        const std::string place = fmt::format("{}.content[{}]", path, i);
        if (end - i < 2) {
            if (auto read = read_block(place, blocks[i], is_assistant, messages); !read) return read;
            ++i;
            continue;
        }
        Json texts = Json::array();
        for (; i < end; ++i) {
            const auto text = text_member(fmt::format("{}.content[{}]", path, i), blocks[i], "text");
            if (!text) return tl::unexpected(text.error());
            texts.push_back({{"type", "text"}, {"text", *text}});
        }
        if (is_assistant)
            messages.add_text(place, std::move(texts));
        else
            messages.add(place, {{"role", "user"}, {"content", std::move(texts)}});
    }
    return {};
}

ReadStatus read_message(const std::string& path, const Json& message, MessageList& messages) {
    if (!message.is_object()) return tl::unexpected(wrong_field(path, message, "an object with a role and a content"));
    const auto role = text_member(path, message, "role");
    if (!role) return tl::unexpected(role.error());
    const bool is_assistant = *role == "assistant";
    if (!is_assistant && *role != "user")
        return tl::unexpected(wrong_field(path + ".role", Json(*role), "user or assistant: system is a field"));
    const Json* content = member_of(message, "content");
    if (content == nullptr) return tl::unexpected(missing_field(path + ".content"));
    if (content->is_array() && (is_assistant || !content->empty()))
        return read_blocks(path, *content, is_assistant, messages);
    if (!content->is_string())
        return tl::unexpected(wrong_field(path + ".content", *content, "a text or a list of blocks"));
    if (is_assistant)
        messages.add_text(path, *content);
    else
        messages.add(path, {{"role", "user"}, {"content", *content}});
    return {};
}

ReadStatus read_messages(const Json& body, TranslatedChat& chat) {
    MessageList messages(chat.origins);
    if (const Json* system = member_of(body, "system")) {
        auto content = text_content("system", *system, kText);
        if (!content) return tl::unexpected(std::move(content).error());
        messages.add("system", {{"role", "system"}, {"content", *std::move(content)}});
    }
    const Json* list = member_of(body, "messages");
    if (list == nullptr) return tl::unexpected(missing_field("messages"));
    if (!list->is_array() || list->empty())
        return tl::unexpected(wrong_field("messages", *list, "a list of objects with a role"));
    for (size_t i = 0; i < list->size(); ++i) {
        if (auto read = read_message(fmt::format("messages[{}]", i), (*list)[i], messages); !read) return read;
    }
    chat.body["messages"] = messages.take();
    return {};
}

// --- tools

ReadStatus read_tools(const Json& body, TranslatedChat& chat) {
    const Json* tools = member_of(body, "tools");
    if (tools == nullptr) return {};
    if (!tools->is_array()) return tl::unexpected(wrong_field("tools", *tools, "a list of tools"));
    Json list = Json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
        const std::string path = fmt::format("tools[{}]", i);
        const Json& tool = (*tools)[i];
        if (!tool.is_object()) return tl::unexpected(wrong_field(path, tool, R"({"name": .., "input_schema": ..})"));
        const Json type = tool.value("type", Json("custom"));
        if (!type.is_null() && type != "custom")
            return tl::unexpected(unsupported_type(path, type, "tools are the client's, of the type custom"));
        Json function = {{"name", tool.value("name", Json())}};
        if (const Json* description = member_of(tool, "description")) function["description"] = *description;
        if (const Json* schema = member_of(tool, "input_schema")) function["parameters"] = *schema;
        list.push_back({{"type", "function"}, {"function", std::move(function)}});
        chat.origins.push_back({path + ".function.parameters", path + ".input_schema"});
        chat.origins.push_back({path + ".function", path});
    }
    chat.body["tools"] = std::move(list);
    return {};
}

ReadStatus read_tool_choice(const Json& body, TranslatedChat& chat) {
    const Json* choice = member_of(body, "tool_choice");
    if (choice == nullptr) return {};
    const auto wrong = [&] {
        return tl::unexpected(
            wrong_field("tool_choice", *choice, R"({"type": "auto", "any", "none", or "tool" with a name})"));
    };
    if (!choice->is_object()) return wrong();
    const Json type = choice->value("type", Json());
    const std::map<std::string, std::string> kNames = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    if (type == "tool") {
        const auto name = text_member("tool_choice", *choice, "name");
        if (!name) return tl::unexpected(name.error());
        chat.body["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
    } else if (type.is_string() && kNames.contains(type.get<std::string>())) {
        chat.body["tool_choice"] = kNames.at(type.get<std::string>());
    } else {
        return wrong();
    }
    if (const Json* one = member_of(*choice, "disable_parallel_tool_use")) {
        if (!one->is_boolean())
            return tl::unexpected(wrong_field("tool_choice.disable_parallel_tool_use", *one, "true or false"));
        chat.body["parallel_tool_calls"] = !one->get<bool>();
    }
    return {};
}

// --- other fields

// The number of tokens for reasoning is a bound that nothing here could keep: it is checked, and not used.
ReadStatus read_thinking(const Json& body, const ReasoningTraits& reasoning, TranslatedChat& chat) {
    const Json* thinking = member_of(body, "thinking");
    if (thinking == nullptr) return {};
    const Json type = thinking->is_object() ? thinking->value("type", Json()) : Json();
    const bool is_on = type == "enabled" || type == "adaptive";
    if (!is_on && type != "disabled")
        return tl::unexpected(wrong_field("thinking", *thinking, R"({"type": "enabled", "adaptive" or "disabled"})"));
    if (const Json* budget = member_of(*thinking, "budget_tokens")) {
        const auto tokens = whole_number("thinking.budget_tokens", *budget, 1);
        if (!tokens) return tl::unexpected(tokens.error());
    }
    chat.origins.push_back({"chat_template_kwargs.enable_thinking", "thinking"});
    if (reasoning.is_switched) {
        Json& variables = chat.body["chat_template_kwargs"];
        if (variables.is_null() || variables.is_object()) variables["enable_thinking"] = is_on;
        return {};
    }
    if (is_on == reasoning.is_there) return {};
    return tl::unexpected(ApiError{400,
                                   is_on ? "thinking is asked for, and the model's chat template has no reasoning"
                                         : "thinking cannot be disabled: the model's chat template has no variable "
                                           "enable_thinking",
                                   "thinking", "unsupported_value"});
}

ReadStatus check_metadata(const Json& body) {
    const Json* metadata = member_of(body, "metadata");
    if (metadata == nullptr || metadata->is_object()) return {};
    return tl::unexpected(wrong_field("metadata", *metadata, "an object"));
}

ReadStatus check_service_tier(const Json& body) {
    const Json* tier = member_of(body, "service_tier");
    if (tier == nullptr || *tier == "auto" || *tier == "standard_only") return {};
    return tl::unexpected(ApiError{
        400, fmt::format("service_tier = {} is not supported: \"auto\" and \"standard_only\" are", quoted(*tier)),
        "service_tier", "unsupported_value"});
}

// Read by separate functions.
constexpr std::array<std::string_view, 8> kOwn = {"system",   "messages", "tools",        "tool_choice",
                                                  "thinking", "metadata", "service_tier", "cache_control"};

// Fields of chats, which have another name here or none.
const std::map<std::string, std::string, std::less<>>& other_names() {
    static const std::map<std::string, std::string, std::less<>> kNames = {
        {"stop", "stop_sequences is its name here"},
        {"max_completion_tokens", "max_tokens is its name here"},
        {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use is its name here"},
        {"reasoning_effort", "thinking is its name here"},
        {"n", "a message is one answer"},
        {"best_of", "a message is one answer"},
        {"logprobs", "/v1/chat/completions has log probabilities"},
        {"top_logprobs", "/v1/chat/completions has log probabilities"},
        {"prompt_logprobs", "/v1/chat/completions has log probabilities"},
        {"return_turn_details", "/v1/chat/completions has them"},
        {"logprob_start_len", "/v1/chat/completions has log probabilities"},
        {"functions", "tools has the functions"},
        {"function_call", "tool_choice is its name here"},
    };
    return kNames;
}

ReadStatus read_others(const Json& body, TranslatedChat& chat) {
    for (const auto& [field, value] : body.items()) {
        if (value.is_null() || std::ranges::find(kOwn, field) != kOwn.end()) continue;
        const auto other = other_names().find(field);
        if (other != other_names().end()) {
            return tl::unexpected(ApiError{400, fmt::format("{} is not supported: {}", field, other->second), field,
                                           "unsupported_parameter"});
        }
        chat.body[field == "stop_sequences" ? "stop" : field] = value;
    }
    chat.origins.push_back({"stop", "stop_sequences"});
    return {};
}

// An empty list is none.
ReadStatus check_stop_sequences(const Json& body, TranslatedChat& chat) {
    const Json* stops = member_of(body, "stop_sequences");
    if (stops == nullptr) return {};
    if (!stops->is_array()) return tl::unexpected(wrong_field("stop_sequences", *stops, "a list of texts"));
    if (stops->empty()) chat.body.erase("stop");
    return {};
}

ApiResult<TranslatedChat> translate(const Json& body, const ReasoningTraits& reasoning) {
    TranslatedChat chat;
    for (auto read : {read_others, read_messages, read_tools, read_tool_choice, check_stop_sequences}) {
        if (auto done = read(body, chat); !done) return tl::unexpected(std::move(done).error());
    }
    if (auto read = read_thinking(body, reasoning, chat); !read) return tl::unexpected(std::move(read).error());
    for (auto check : {check_metadata, check_service_tier}) {
        if (auto right = check(body); !right) return tl::unexpected(std::move(right).error());
    }
    return chat;
}

}  // namespace

ApiResult<GenerateRequest> parse_message_request(const Json& body, const ReasoningTraits& reasoning,
                                                 const ModelNames& model, int32_t vocab_size) {
    auto chat = translate(body, reasoning);
    if (!chat) return tl::unexpected(std::move(chat).error());
    const Json* max_tokens = member_of(body, "max_tokens");
    if (max_tokens == nullptr) return tl::unexpected(missing_field("max_tokens"));
    if (*max_tokens == 0) return tl::unexpected(wrong_field("max_tokens", *max_tokens, "a whole number from 1 on"));
    auto request = read_generate_request(ApiKind::kChat, chat->body, model, vocab_size);
    if (!request) return tl::unexpected(with_origins(std::move(request).error(), chat->origins));
    request->is_message = true;
    request->origins = std::move(chat->origins);
    return request;
}

ApiResult<TokenizeRequest> parse_count_request(const Json& body, const ReasoningTraits& reasoning,
                                               const ModelNames& model) {
    auto chat = translate(body, reasoning);
    if (!chat) return tl::unexpected(std::move(chat).error());
    auto request = read_tokenize_request(chat->body, model);
    if (!request) return tl::unexpected(with_origins(std::move(request).error(), chat->origins));
    return request;
}

}  // namespace verbatim::server
