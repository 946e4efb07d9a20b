#include "server/http/message_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "files/strict_json.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

using ItemKind = AnswerItem::Kind;

const char* error_type(const ApiError& error) {
    switch (error.status) {
        case 401: return "authentication_error";
        case 403: return "permission_error";
        case 404: return "not_found_error";
        case 413: return "request_too_large";
        case 429: return "rate_limit_error";
        case 503: return "overloaded_error";
        default: return error.status >= 500 ? "api_error" : "invalid_request_error";
    }
}

// What was computed, and what was reused, are counted apart.
Json usage_json(const Usage& usage) {
    return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", usage.cached_tokens},
            {"output_tokens", usage.completion_tokens}};
}

// Half a call has arguments that are no JSON, and so has what the model wrote wrongly.
Json input_of(const std::string& arguments) {
    auto input = parse_strict_ordered_json(arguments, "arguments");
    return input && input->is_object() ? *std::move(input) : Json::object();
}

}  // namespace

bool is_of_messages(std::string_view path) {
    if (!path.starts_with(kMessagesPath)) return false;
    return path.size() == kMessagesPath.size() || path[kMessagesPath.size()] == '/' ||
           path[kMessagesPath.size()] == '?';
}

Json message_error(const ApiError& error) {
    Json inner = {{"type", error_type(error)}, {"message", error.message}};
    if (!error.param.empty()) inner["param"] = error.param;
    if (!error.code.empty()) inner["code"] = error.code;
    return {{"type", "error"}, {"error", std::move(inner)}};
}

MessageAnswer::MessageAnswer(AnswerFrame frame, int64_t num_prompt_tokens, bool is_stream)
    : ItemAnswer(is_stream), frame_(std::move(frame)), num_prompt_tokens_(num_prompt_tokens) {}

Json MessageAnswer::block_json(size_t index) const {
    const AnswerItem& item = items()[index];
    if (item.kind == ItemKind::kText) return {{"type", "text"}, {"text", item.text}, {"citations", nullptr}};
    if (item.kind == ItemKind::kReasoning) return {{"type", "thinking"}, {"thinking", item.text}, {"signature", ""}};
    return {{"type", "tool_use"},
            {"id", fmt::format("toolu_{}_{}", frame_.id.substr(frame_.id.find('_') + 1), index)},
            {"name", item.name},
            {"input", input_of(item.text)}};
}

const char* MessageAnswer::stop_reason() const {
    if (is_cut_off()) return "max_tokens";
    if (ended()->stop_text) return "stop_sequence";
    const auto is_call = [](const AnswerItem& item) { return item.kind == ItemKind::kCall; };
    return std::ranges::any_of(items(), is_call) ? "tool_use" : "end_turn";
}

Json MessageAnswer::stop_json() const {
    const auto& text = ended()->stop_text;
    return {{"stop_reason", stop_reason()}, {"stop_sequence", text ? Json(*text) : Json()}};
}

Json MessageAnswer::whole() const {
    Json json = {{"id", frame_.id},
                 {"type", "message"},
                 {"role", "assistant"},
                 {"model", frame_.model},
                 {"content", Json::array()}};
    for (size_t i = 0; i < items().size(); ++i) json["content"].push_back(block_json(i));
    json.update(stop_json());
    json["usage"] = usage_json(ended()->usage);
    return json;
}

// How many of the prompt's tokens were reused is known at the end: message_delta corrects the usage.
void MessageAnswer::show_begin() {
    Json message = {{"id", frame_.id},          {"type", "message"},
                    {"role", "assistant"},      {"model", frame_.model},
                    {"content", Json::array()}, {"stop_reason", nullptr},
                    {"stop_sequence", nullptr}, {"usage", usage_json({.prompt_tokens = num_prompt_tokens_})}};
    append_event("message_start", Json{{"type", "message_start"}, {"message", std::move(message)}});
    append_written_event("ping", R"({"type":"ping"})");
}

void MessageAnswer::show_item() {
    CHECK(!items().empty());
    const size_t index = items().size() - 1;
    append_event("content_block_start",
                 Json{{"type", "content_block_start"}, {"index", index}, {"content_block", block_json(index)}});
}

// It runs once per token: written without a Json.
void MessageAnswer::show_delta(std::string_view delta) {
    CHECK(!items().empty(), "{} bytes of no block", delta.size());
    constexpr std::string_view kBegins[] = {R"({"type":"thinking_delta","thinking":)",
                                            R"({"type":"text_delta","text":)",
                                            R"({"type":"input_json_delta","partial_json":)"};
    std::string json = fmt::format(R"({{"type":"content_block_delta","index":{},"delta":)", items().size() - 1);
    json += kBegins[static_cast<size_t>(items().back().kind)];
    text::append_json_text(json, delta);
    append_written_event("content_block_delta", json += "}}");
}

void MessageAnswer::show_item_end() {
    CHECK(!items().empty());
    append_event("content_block_stop", Json{{"type", "content_block_stop"}, {"index", items().size() - 1}});
}

void MessageAnswer::show_end() {
    CHECK(ended().has_value());
    append_event("message_delta",
                 Json{{"type", "message_delta"}, {"delta", stop_json()}, {"usage", usage_json(ended()->usage)}});
    append_written_event("message_stop", R"({"type":"message_stop"})");
}

void MessageAnswer::show_error(const ApiError& error) { append_event("error", message_error(error)); }

std::string MessageAnswer::waiting_event() const { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

}  // namespace verbatim::server
