// server/text/answer_parser.h: owns taking an answer's text apart while it comes: reasoning, text, calls of tools.
//
//   R1  parts are the same however the text is divided into pieces, once parts of one kind are joined; what was
//       reported is never taken back
//   R2  without calls and reasoning the joined text is the answer's, byte for byte. Space around reasoning, in front
//       of a call and behind the last one belongs to neither; the space between a call and a text behind it is part of
//       the text if there was text before
//   R3  reasoning begins an answer or there is none; a mark of calls inside of it says nothing
//   R4  each byte is looked at a bounded number of times
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/text/answer_form.h"
#include "server/text/call_reader.h"

namespace verbatim::text {

class AnswerParser {
public:
    explicit AnswerParser(AnswerForm form);
    // Appends the parts that are certain with this piece. Returns how much of it belongs to the answer: all, unless it
    // ended(). Nothing after the end.
    size_t add(std::string_view piece, AnswerParts& parts);
    // The text ends: the rest.
    void finish(AnswerParts& parts);
    [[nodiscard]] bool ended() const { return ended_; }  // AnswerForm::ends_with_call, and there was one

private:
    enum class Place : uint8_t { kReasoning, kText, kCall };
    void take(char c, AnswerParts& parts);
    void take_reasoning(char c, AnswerParts& parts);
    void take_text(char c, AnswerParts& parts);
    void add_text(char c, AnswerParts& parts);
    void take_call(char c, AnswerParts& parts);
    void end_call();
    void put_back(std::string_view held, AnswerParts& parts);
    [[nodiscard]] bool may_become_mark() const;
    [[nodiscard]] bool is_call_mark() const;

    std::shared_ptr<const AnswerForm> form_;
    AnswerParts begun_;  // of AnswerForm::begun, not reported yet
    Place place_ = Place::kText;
    std::string mark_;                   // a beginning of a mark
    std::string space_;                  // not reported yet
    bool is_at_start_ = true;            // nothing but space so far
    bool has_text_ = false;              // of a text, or of reasoning while it is there
    bool drops_space_ = false;           // the space before a text is no part of it
    bool is_behind_call_ = false;        // nothing but space since
    std::unique_ptr<CallReader> calls_;  // null: not in a call
    bool ended_ = false;
};

}  // namespace verbatim::text
