// server/http/message_answer.h: owns the answers of /v1/messages (Anthropic's Messages API): the message and the
// events of its stream.
//
//   X1  a content block is opened by content_block_start and closed by content_block_stop before the next one opens
//   X2  the last event is message_stop or error
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http/item_answer.h"

namespace verbatim::server {

inline constexpr std::string_view kMessagesPath = "/v1/messages";

// Whether errors of the path have Anthropic's form.
[[nodiscard]] bool is_of_messages(std::string_view path);
// {"type": "error", "error": {"type", "message", "param", "code"}}
[[nodiscard]] Json message_error(const ApiError& error);

class MessageAnswer final : public ItemAnswer {
public:
    MessageAnswer(AnswerFrame frame, int64_t num_prompt_tokens, bool is_stream);
    [[nodiscard]] std::string waiting_event() const override;
    [[nodiscard]] Json whole() const override;

private:
    void show_begin() override;
    void show_item() override;
    void show_delta(std::string_view delta) override;
    void show_item_end() override;
    void show_end() override;
    void show_error(const ApiError& error) override;

    [[nodiscard]] Json block_json(size_t index) const;
    [[nodiscard]] const char* stop_reason() const;
    [[nodiscard]] Json stop_json() const;  // stop_reason and stop_sequence

    AnswerFrame frame_;
    int64_t num_prompt_tokens_;
};

}  // namespace verbatim::server
