// server/http/generation.h: owns one request's answer in progress: its choices, their state, and the data sent to the
// client. No sockets.
//
//   G1  the texts of a stream's chunks, joined, are the unstreamed answer's, and so are its reasoning, the arguments of
//       its calls and the log probabilities
//   G2  a stream's events end with [DONE] (of items: with their last event) or with an error, and no event follows
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer_reader.h"
#include "server/engine_host.h"
#include "server/http/answers.h"
#include "server/http/api.h"
#include "server/http/item_answer.h"
#include "server/text/answer_form.h"
#include "server/text/answer_parser.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

// A server-sent event.
[[nodiscard]] std::string event_of(const Json& json);

// A prompt of the request.
struct AnsweredPrompt {
    int64_t num_tokens = 0;
    std::string echo;  // the beginning of its choices
};

class Generation {
public:
    // Borrows the tokenizer. Choices are counted over all prompts: each has request.num_sampled_choices() of them.
    Generation(const text::Tokenizer& tokenizer, GenerateRequest request, AnswerFrame frame,
               std::vector<AnsweredPrompt> prompts, const text::AnswerForm& form = {});

    // Takes an update of a choice from the engine.
    void take(size_t choice, HostUpdate update);

    [[nodiscard]] const GenerateRequest& request() const { return request_; }
    [[nodiscard]] const AnswerFrame& frame() const { return writer_.frame(); }
    // The engine has accepted every choice, or refused one: error() has the reason.
    [[nodiscard]] bool is_decided() const { return error_ || num_accepted_ == choices_.size(); }
    [[nodiscard]] bool is_over() const { return error_ || num_ended_ == choices_.size(); }
    [[nodiscard]] bool has_ended(size_t choice) const { return choices_[choice].ended; }
    [[nodiscard]] size_t num_choices() const { return choices_.size(); }
    [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }
    [[nodiscard]] int64_t num_tokens(size_t choice) const { return choices_[choice].num_tokens; }
    [[nodiscard]] FinishReason finish(size_t choice) const { return *choices_[choice].part.finish; }
    [[nodiscard]] bool is_long() const;  // whole() takes some time
    // Whether the answer is committed to the requested conversation.
    [[nodiscard]] bool is_in_conversation() const { return in_conversation_; }
    // The conversation's head, when a turn was committed to it.
    [[nodiscard]] const std::string& head() const { return choices_.front().part.head; }

    // The server-sent events since the last call. REQUIRES: is_decided(), no refusal.
    [[nodiscard]] std::string take_events();
    // The last event where the answer cannot go on, and what a stream without tokens sends meanwhile.
    [[nodiscard]] std::string failed_event(const ApiError& error);
    [[nodiscard]] std::string waiting_event() const;
    [[nodiscard]] bool is_delivered() const { return end_delivered_; }  // the last event was taken
    // REQUIRES: is_over(), no error; take_events() was never called.
    [[nodiscard]] Json whole() const;

private:
    struct Choice {
        Choice(const text::Tokenizer& tokenizer, const GenerateRequest& request, const text::AnswerForm& form)
            : reader(tokenizer, request.stop, form, request.sampling.min_tokens), text_offsets(tokenizer) {}
        AnswerReader reader;
        ChoicePart part;  // not sent yet
        int64_t num_calls = 0;
        int64_t num_tokens = 0;
        TextOffsets text_offsets;  // of the next token that is sent: for completions with log probabilities
        int64_t num_reused = 0;
        double log_prob = 0;     // of all its tokens: with best_of
        bool has_begun = false;  // what its prompt gives it is there
        bool ended = false;
    };
    void begin_prompt(size_t prompt, std::vector<LogProbs> log_probs);
    [[nodiscard]] std::vector<ChoicePart> chosen() const;
    void take(Choice& choice, AcceptedUpdate update);
    void take(Choice& choice, TokenUpdate update);
    void take(Choice& choice, FinishedUpdate update);
    void take(Choice& choice, Refusal refusal);
    void take(Choice& choice, FailedUpdate update);
    void take_extras(Choice& choice, AnswerExtras extras);
    void end(Choice& choice);
    void fail(Choice& choice, ApiError error);
    void take_parts(Choice& choice, text::AnswerParts& parts);
    [[nodiscard]] std::string events_of(Choice& choice);
    [[nodiscard]] std::string take_item_events();
    [[nodiscard]] Usage usage() const;
    [[nodiscard]] std::optional<Usage> usage_so_far(const Choice& choice) const;
    [[nodiscard]] const AnsweredPrompt& prompt_of(const Choice& choice) const;

    GenerateRequest request_;
    AnswerWriter writer_;
    std::unique_ptr<ItemAnswer> items_;  // null: the answer is written by the writer
    std::vector<AnsweredPrompt> prompts_;
    std::vector<Choice> choices_;
    std::optional<ApiError> error_;
    size_t num_accepted_ = 0;
    size_t num_ended_ = 0;
    bool in_conversation_ = false;
    bool roles_sent_ = false;
    bool end_delivered_ = false;
};

}  // namespace verbatim::server
