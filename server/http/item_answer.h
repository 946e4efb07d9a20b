// server/http/item_answer.h: owns an answer as a list of items in the order in which the model wrote them (reasoning,
// texts, calls of tools), and the order of the events that show them in a stream. /v1/responses and /v1/messages give
// the items and the events their forms.
//
//   N1  an item begins with its first part, and ends before a part of another kind, before a call, or with the answer
//   N2  joined, the deltas of an item are its text; the items are the same however the answer is divided into parts
//   N3  without a stream there are no events; a stream's first events come before any part
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/request.h"
#include "server/http/answers.h"
#include "server/http/api.h"
#include "server/text/call_reader.h"

namespace verbatim::server {

// What a stream without tokens sends meanwhile: a comment, which clients skip.
inline constexpr const char* kWaitingComment = ": still here\n\n";

struct AnswerItem {
    enum class Kind : uint8_t { kReasoning, kText, kCall };
    Kind kind = Kind::kText;
    std::string text;  // kCall: the arguments, as the model wrote them
    std::string name;  // kCall: of the function
};

// The end of an answer that was not broken off by an error.
struct AnswerEnd {
    FinishReason finish = FinishReason::kStopToken;
    std::optional<std::string> stop_text;  // the one of the request's stop texts that ended it
    Usage usage;
};

class ItemAnswer {
public:
    explicit ItemAnswer(bool is_stream) : is_stream_(is_stream) {}
    ItemAnswer(const ItemAnswer&) = delete;
    ItemAnswer& operator=(const ItemAnswer&) = delete;
    virtual ~ItemAnswer() = default;

    void take(const text::AnswerParts& parts);
    void count_token();  // behind take() with its parts
    void end(const AnswerEnd& end);
    // The server-sent events since the last call.
    [[nodiscard]] std::string take_events();
    // The last event of a stream that an error breaks off.
    [[nodiscard]] std::string failed_event(const ApiError& error);
    [[nodiscard]] virtual std::string waiting_event() const { return kWaitingComment; }
    [[nodiscard]] virtual Json whole() const = 0;  // REQUIRES: end() was called

protected:
    [[nodiscard]] const std::vector<AnswerItem>& items() const { return items_; }
    [[nodiscard]] const std::optional<AnswerEnd>& ended() const { return end_; }
    [[nodiscard]] bool is_cut_off() const { return end_ && end_->finish == FinishReason::kLength; }
    [[nodiscard]] int64_t num_reasoning_tokens() const { return num_reasoning_tokens_; }
    void begin_item(AnswerItem::Kind kind, std::string name);
    // `event: NAME` and its data.
    void append_written_event(std::string_view name, std::string_view json);
    void append_event(std::string_view name, const Json& json);

    // The events: of the beginning, of the last item, of the end. `delta` is what was appended to the item.
    virtual void show_begin() = 0;
    virtual void show_item() = 0;
    virtual void show_delta(std::string_view delta) = 0;
    virtual void show_item_end() = 0;
    virtual void complete_items() {}  // before the last item ends
    virtual void show_end() = 0;
    virtual void show_error(const ApiError& error) = 0;

private:
    void end_item();

    const bool is_stream_;
    bool has_begun_ = false;
    bool is_in_item_ = false;
    int64_t num_reasoning_tokens_ = 0;
    std::vector<AnswerItem> items_;
    std::optional<AnswerEnd> end_;
    std::string events_;
};

// Of /v1/responses or /v1/messages; null: the request is a chat's or a completion's.
[[nodiscard]] std::unique_ptr<ItemAnswer> item_answer_of(const GenerateRequest& request, const AnswerFrame& frame,
                                                         int64_t num_prompt_tokens);

}  // namespace verbatim::server
