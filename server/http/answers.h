// server/http/answers.h: owns the JSON of answers, whole and in chunks. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/ids.h"
#include "engine/request/request.h"
#include "server/http/api.h"
#include "server/log_probs.h"
#include "server/text/decoder.h"
#include "server/text/tokenizer.h"
#include "server/turn_details.h"

namespace verbatim::server {

struct Usage {
    int64_t prompt_tokens = 0;
    int64_t completion_tokens = 0;  // of all choices
    int64_t cached_tokens = 0;      // of the prompt, in the first choice
};

// Common to all parts of one answer.
struct AnswerFrame {
    ApiKind kind = ApiKind::kChat;
    std::string id;
    std::string model;
    std::string fingerprint;
    int64_t created = 0;  // seconds since 1970
};

// A call of a tool, or more of the arguments of one.
struct CallPart {
    int64_t index = 0;      // among the choice's calls
    std::string id;         // empty: it continues
    std::string name;       // of the function; empty: it continues
    std::string arguments;  // JSON, as far as the model wrote it
};

// A part of a choice, or a whole choice.
// Where the tokens of a text begin in it, in characters. Parts of one character begin where it does.
class TextOffsets {
public:
    explicit TextOffsets(const text::Tokenizer& tokenizer) : decoder_(tokenizer) {}
    int64_t take(TokenId token);  // where it begins; the next call is of the token behind it
    [[nodiscard]] bool is_at_start() const { return num_characters_ == 0 && !decoder_.is_pending(); }

private:
    text::Decoder decoder_;
    int64_t num_characters_ = 0;  // of the text that is final
};

struct ChoicePart {
    int64_t index = 0;
    std::string text;
    std::string reasoning;
    std::vector<CallPart> calls;
    bool calls_tools = false;                  // with the finish: the choice has calls
    std::vector<LogProbs> log_probs;           // of the tokens in this part
    std::optional<int32_t> num_top_log_probs;  // none: these are not shown
    std::vector<LogProbs> prompt_log_probs;
    std::optional<int32_t> num_prompt_top_log_probs;  // none: these are not shown
    std::optional<TextOffsets> text_offsets;          // of a stream: of its first token (completions)
    std::optional<TurnDetails> details;               // news since the part before, if requested
    std::optional<FinishReason> finish;               // the last part
    std::string head;                                 // with the finish: the committed head of the conversation
    std::optional<Usage> usage;                       // of the choice so far, when every chunk reports usage
};

// The JSON text sent to clients; bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string written_answer(const Json& json);
[[nodiscard]] const char* finish_name(FinishReason reason);   // "stop", "length"
[[nodiscard]] int64_t num_characters(std::string_view text);  // of UTF-8

// Writes answers. Borrows the tokenizer, for the texts of single tokens.
class AnswerWriter {
public:
    AnswerWriter(AnswerFrame frame, const text::Tokenizer& tokenizer);
    [[nodiscard]] const AnswerFrame& frame() const { return frame_; }
    void rename(std::string id, int64_t created);

    [[nodiscard]] Json whole(const std::vector<ChoicePart>& choices, const Usage& usage) const;
    [[nodiscard]] Json role_chunk(const ChoicePart& part) const;  // the first chunk of a chat's choice
    [[nodiscard]] Json chunk(const ChoicePart& part) const;
    [[nodiscard]] Json usage_chunk(const Usage& usage) const;
    // The text of chunk(). It runs once per token: a part with text alone is written without a Json.
    [[nodiscard]] std::string written_chunk(const ChoicePart& part) const;
    // The id of a choice's call: the same in every form of the answer.
    [[nodiscard]] std::string call_id(int64_t choice, int64_t call) const;

    // The text of a single token, U+FFFD for an incomplete character; empty for an id without a token.
    [[nodiscard]] std::string token_text(TokenId token) const;

private:
    [[nodiscard]] bool is_chat() const { return frame_.kind == ApiKind::kChat; }
    [[nodiscard]] Json frame_json(bool is_chunk) const;
    [[nodiscard]] static Json message_json(const ChoicePart& part);
    [[nodiscard]] static Json delta_json(const ChoicePart& part);
    [[nodiscard]] Json log_probs_json(const ChoicePart& part) const;
    [[nodiscard]] Json chat_log_probs(const ChoicePart& part) const;
    [[nodiscard]] Json completion_log_probs(const ChoicePart& part) const;
    [[nodiscard]] Json likeliest_by_text(const LogProbs& one, int32_t num_top) const;
    [[nodiscard]] Json prompt_log_probs_json(const ChoicePart& part) const;
    [[nodiscard]] Json chat_token(const TokenLogProb& token) const;

    AnswerFrame frame_;
    std::string chunk_begin_;  // shared by every chunk: its frame
    const text::Tokenizer* tokenizer_;
};

}  // namespace verbatim::server
