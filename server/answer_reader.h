// server/answer_reader.h: owns reading an answer token by token: its text up to a stop text, and what the text is made
// of.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/ids.h"
#include "server/ledger/conversation_ledger.h"
#include "server/text/answer_form.h"
#include "server/text/answer_parser.h"
#include "server/text/decoder.h"
#include "server/text/stop_texts.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

class AnswerReader {
public:
    // Borrows the tokenizer. In the text of the first `min_tokens` tokens stop texts are not looked for. REQUIRES: no
    // stop is empty.
    AnswerReader(const text::Tokenizer& tokenizer, std::vector<std::string> stops, text::AnswerForm form,
                 int64_t min_tokens = 0);
    // Appends what is certain with the token. The token after which the answer ended() is the last one that counts.
    void add(TokenId token, text::AnswerParts& parts);
    // The rest, when the answer ends otherwise.
    void finish(text::AnswerParts& parts);
    // By a stop text, or behind its first call (AnswerForm::ends_with_call).
    [[nodiscard]] bool ended() const { return stops_.stopped() || (parser_ && parser_->ended()); }
    // The stop text that ended the answer, if one did.
    [[nodiscard]] const std::optional<std::string>& stop_text() const { return stops_.found(); }
    [[nodiscard]] StopPlace place() const { return place_; }  // REQUIRES: ended()

private:
    // A special token of the family's form, which is no text: it stands behind so many bytes of text.
    struct Mark {
        int64_t place = 0;
        TokenId token = 0;
    };
    [[nodiscard]] bool is_mark(TokenId token) const;
    void pass_on(std::string_view text, text::AnswerParts& parts);
    void pass_marks_on(int64_t up_to, text::AnswerParts& parts);

    const text::Tokenizer* tokenizer_;
    text::Decoder decoder_;
    text::StopTexts stops_;
    int64_t min_tokens_;
    std::optional<text::AnswerParser> parser_;  // empty: the answer is text
    std::vector<TokenId> mark_tokens_;
    std::deque<Mark> marks_;  // not passed on yet
    int64_t num_decoded_bytes_ = 0;
    StopPlace place_;
};

}  // namespace verbatim::server
