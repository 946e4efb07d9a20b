#include "server/http/response_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "server/http/response_chain.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

using ItemKind = AnswerItem::Kind;

Json text_part(const std::string& text) {
    return {{"type", "output_text"}, {"annotations", Json::array()}, {"logprobs", Json::array()}, {"text", text}};
}
Json reasoning_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }
Json part_of(const AnswerItem& item, const std::string& text) {
    return item.kind == ItemKind::kText ? text_part(text) : reasoning_part(text);
}

Json usage_json(const Usage& usage, int64_t num_reasoning_tokens) {
    return {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
            {"output_tokens", usage.completion_tokens},
            {"output_tokens_details", {{"reasoning_tokens", num_reasoning_tokens}}},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

}  // namespace

ResponseAnswer::ResponseAnswer(const ResponseRequest& request, AnswerFrame frame, bool is_stream)
    : ItemAnswer(is_stream),
      repeated_(request.repeated),
      frame_(std::move(frame)),
      number_(frame_.id.substr(kResponsePrefix.size())) {}

std::string ResponseAnswer::item_id(size_t index) const {
    constexpr const char* kPrefixes[] = {"rs", "msg", "fc"};  // by AnswerItem::Kind
    return fmt::format("{}_{}_{}", kPrefixes[static_cast<size_t>(items()[index].kind)], number_, index);
}

Json ResponseAnswer::item_json(size_t index, const char* status) const {
    const AnswerItem& item = items()[index];
    Json json = {{"id", item_id(index)}};
    if (item.kind == ItemKind::kCall) {
        json.update({{"type", "function_call"},
                     {"status", status},
                     {"call_id", fmt::format("call_{}_{}", number_, index)},
                     {"name", item.name},
                     {"arguments", item.text}});
        return json;
    }
    const Json content = Json::array({part_of(item, item.text)});
    if (item.kind == ItemKind::kText)
        json.update({{"type", "message"}, {"status", status}, {"role", "assistant"}, {"content", content}});
    else
        json.update({{"type", "reasoning"}, {"status", status}, {"summary", Json::array()}, {"content", content}});
    return json;
}

const char* ResponseAnswer::status() const { return is_cut_off() ? "incomplete" : "completed"; }

Json ResponseAnswer::response_json(const char* status) const {
    Json json = {
        {"id", frame_.id},        {"object", "response"}, {"created_at", frame_.created},  {"status", status},
        {"background", false},    {"error", nullptr},     {"incomplete_details", nullptr}, {"model", frame_.model},
        {"output", Json::array()}};
    json.update(repeated_);
    json["usage"] = nullptr;
    json["system_fingerprint"] = frame_.fingerprint;
    return json;
}

Json ResponseAnswer::whole() const {
    Json json = response_json(status());
    if (is_cut_off()) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    for (size_t i = 0; i < items().size(); ++i) {
        const bool is_last = i + 1 == items().size();
        json["output"].push_back(item_json(i, is_last ? status() : "completed"));
    }
    json["usage"] = usage_json(ended()->usage, num_reasoning_tokens());
    return json;
}

void ResponseAnswer::show(const char* event, Json json) {
    Json numbered = {{"type", event}, {"sequence_number", next_event_++}};
    numbered.update(json);
    append_event(event, numbered);
}

void ResponseAnswer::show_of_last(const char* event, Json json) {
    CHECK(!items().empty(), "{} of no item", event);
    const size_t index = items().size() - 1;
    Json located = {{"item_id", item_id(index)}, {"output_index", index}};
    if (items().back().kind != ItemKind::kCall) located["content_index"] = 0;
    located.update(json);
    show(event, std::move(located));
}

void ResponseAnswer::show_begin() {
    show("response.created", {{"response", response_json("in_progress")}});
    show("response.in_progress", {{"response", response_json("in_progress")}});
}

void ResponseAnswer::show_item() {
    CHECK(!items().empty());
    const size_t index = items().size() - 1;
    const bool has_parts = items().back().kind != ItemKind::kCall;
    Json item = item_json(index, "in_progress");
    if (has_parts) item["content"] = Json::array();
    show("response.output_item.added", {{"output_index", index}, {"item", item}});
    if (has_parts) show_of_last("response.content_part.added", {{"part", part_of(items().back(), "")}});
}

// It runs once per token: written without a Json.
void ResponseAnswer::show_delta(std::string_view delta) {
    const size_t index = items().size() - 1;
    const ItemKind kind = items()[index].kind;
    constexpr const char* kEvents[] = {"response.reasoning_text.delta", "response.output_text.delta",
                                       "response.function_call_arguments.delta"};
    const char* event = kEvents[static_cast<size_t>(kind)];
    std::string json = fmt::format(R"({{"type":"{}","sequence_number":{},"item_id":"{}","output_index":{},)", event,
                                   next_event_++, item_id(index), index);
    if (kind != ItemKind::kCall) json += R"("content_index":0,)";
    if (kind == ItemKind::kText) json += R"("logprobs":[],)";
    json += R"("delta":)";
    text::append_json_text(json, delta);
    json += '}';
    append_written_event(event, json);
}

void ResponseAnswer::show_item_end() {
    CHECK(!items().empty());
    const AnswerItem& item = items().back();
    if (item.kind == ItemKind::kCall) {
        show_of_last("response.function_call_arguments.done", {{"name", item.name}, {"arguments", item.text}});
    } else {
        const bool is_text = item.kind == ItemKind::kText;
        Json done = {{"text", item.text}};
        if (is_text) done["logprobs"] = Json::array();
        show_of_last(is_text ? "response.output_text.done" : "response.reasoning_text.done", std::move(done));
        show_of_last("response.content_part.done", {{"part", part_of(item, item.text)}});
    }
    const size_t index = items().size() - 1;
    show("response.output_item.done", {{"output_index", index}, {"item", item_json(index, status())}});
}

// A response that says nothing has an empty message.
void ResponseAnswer::complete_items() {
    const bool says_something =
        std::ranges::any_of(items(), [](const AnswerItem& item) { return item.kind != ItemKind::kReasoning; });
    const bool breaks_off_in_reasoning = is_cut_off() && !items().empty();
    if (!says_something && !breaks_off_in_reasoning) begin_item(ItemKind::kText, "");
    CHECK(!items().empty());  // a response has an output
}

void ResponseAnswer::show_end() {
    CHECK(ended().has_value());
    show(is_cut_off() ? "response.incomplete" : "response.completed", {{"response", whole()}});
}

void ResponseAnswer::show_error(const ApiError& error) {
    Json json = response_json("failed");
    json["error"] = {{"code", error.code}, {"message", error.message}};
    for (size_t i = 0; i < items().size(); ++i) json["output"].push_back(item_json(i, "incomplete"));
    show("response.failed", {{"response", json}});
}

}  // namespace verbatim::server
