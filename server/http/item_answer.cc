#include "server/http/item_answer.h"

#include <utility>

#include "engine/base/check.h"
#include "server/http/message_answer.h"
#include "server/http/response_answer.h"

namespace verbatim::server {
namespace {

using ItemKind = AnswerItem::Kind;
using PartKind = text::AnswerPart::Kind;

ItemKind kind_of(PartKind part) {
    if (part == PartKind::kText) return ItemKind::kText;
    return part == PartKind::kReasoning ? ItemKind::kReasoning : ItemKind::kCall;
}

}  // namespace

void ItemAnswer::take(const text::AnswerParts& parts) {
    CHECK(!end_, "parts behind the end");
    for (const text::AnswerPart& part : parts) {
        const ItemKind kind = kind_of(part.kind);
        const bool goes_on = is_in_item_ && items_.back().kind == kind && part.kind != PartKind::kCall;
        if (!goes_on) begin_item(kind, part.kind == PartKind::kCall ? part.text : "");
        if (part.kind == PartKind::kCall || part.text.empty()) continue;
        items_.back().text += part.text;
        if (is_stream_) show_delta(part.text);
    }
}

void ItemAnswer::count_token() {
    CHECK(!end_, "a token behind the end");
    if (is_in_item_ && items_.back().kind == ItemKind::kReasoning) ++num_reasoning_tokens_;
}

void ItemAnswer::begin_item(ItemKind kind, std::string name) {
    end_item();
    CHECK(kind == ItemKind::kCall || name.empty(), "{} is no call", name);
    items_.push_back({kind, "", std::move(name)});
    is_in_item_ = true;
    if (!is_stream_) return;
    if (!std::exchange(has_begun_, true)) show_begin();
    show_item();
}

void ItemAnswer::end_item() {
    CHECK(!is_in_item_ || !items_.empty());
    if (std::exchange(is_in_item_, false) && is_stream_) show_item_end();
}

void ItemAnswer::end(const AnswerEnd& end) {
    CHECK(!end_, "a second end");
    end_ = end;
    complete_items();
    end_item();
    if (!is_stream_) return;
    if (!std::exchange(has_begun_, true)) show_begin();
    show_end();
}

std::string ItemAnswer::failed_event(const ApiError& error) {
    if (!std::exchange(has_begun_, true)) show_begin();
    show_error(error);
    return std::exchange(events_, {});
}

std::string ItemAnswer::take_events() {
    CHECK(is_stream_ || events_.empty(), "{} bytes of events of an answer of one piece", events_.size());
    if (is_stream_ && !std::exchange(has_begun_, true)) show_begin();
    return std::exchange(events_, {});
}

void ItemAnswer::append_written_event(std::string_view name, std::string_view json) {
    events_.append("event: ").append(name).append("\ndata: ").append(json).append("\n\n");
}

void ItemAnswer::append_event(std::string_view name, const Json& json) {
    append_written_event(name, written_answer(json));
}

std::unique_ptr<ItemAnswer> item_answer_of(const GenerateRequest& request, const AnswerFrame& frame,
                                           int64_t num_prompt_tokens) {
    if (request.response) return std::make_unique<ResponseAnswer>(*request.response, frame, request.stream);
    if (request.is_message) return std::make_unique<MessageAnswer>(frame, num_prompt_tokens, request.stream);
    return nullptr;
}

}  // namespace verbatim::server
