#include "server/answer_reader.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

// Special tokens that spell a mark of the form, or begin or end with one.
std::vector<TokenId> mark_tokens(const text::Tokenizer& tokenizer, const text::AnswerForm& form) {
    const text::CallMarks& marks = text::call_marks(form.tools);
    std::vector<TokenId> tokens;
    for (const text::AddedToken& added : tokenizer.added_tokens()) {
        const bool is_of_call = form.tools != text::ToolFormat::kNone && !added.content.empty() &&
                                (std::ranges::count(marks.begin, added.content) > 0 || added.content == marks.end);
        const bool is_of_reasoning = form.reasoning != text::ReasoningFormat::kNone &&
                                     (added.content == text::kThinkBegin || added.content == text::kThinkEnd);
        if (added.special && (is_of_call || is_of_reasoning)) tokens.push_back(added.id);
    }
    return tokens;
}

}  // namespace

AnswerReader::AnswerReader(const text::Tokenizer& tokenizer, std::vector<std::string> stops, text::AnswerForm form,
                           int64_t min_tokens)
    : tokenizer_(&tokenizer),
      decoder_(tokenizer, /*skip_special=*/true),
      stops_(std::move(stops)),
      min_tokens_(min_tokens) {
    if (form.is_plain()) return;
    mark_tokens_ = mark_tokens(tokenizer, form);
    parser_.emplace(std::move(form));
}

bool AnswerReader::is_mark(TokenId token) const { return std::ranges::count(mark_tokens_, token) > 0; }

void AnswerReader::add(TokenId token, text::AnswerParts& parts) {
    if (ended()) return;
    ++place_.num_text_tokens;
    if (is_mark(token)) {
        marks_.push_back({num_decoded_bytes_, token});
        if (num_decoded_bytes_ == place_.num_text_bytes) pass_marks_on(num_decoded_bytes_, parts);
        return;
    }
    const std::string text = decoder_.add(token);
    num_decoded_bytes_ += static_cast<int64_t>(text.size());
    pass_on(place_.num_text_tokens <= min_tokens_ ? text : stops_.add(text), parts);
}

void AnswerReader::finish(text::AnswerParts& parts) {
    if (!ended()) {
        const std::string text = decoder_.finish();
        num_decoded_bytes_ += static_cast<int64_t>(text.size());
        pass_on(stops_.add(text), parts);
    }
    pass_on(stops_.finish(), parts);
    pass_marks_on(place_.num_text_bytes, parts);
    if (parser_) parser_->finish(parts);
}

// Text that no stop text can take back, with the marks in their places in it.
void AnswerReader::pass_on(std::string_view text, text::AnswerParts& parts) {
    if (!parser_) {
        place_.num_text_bytes += static_cast<int64_t>(text.size());
        return append_part(parts, text::AnswerPart::Kind::kText, text);
    }
    while (!text.empty() && !parser_->ended()) {
        pass_marks_on(place_.num_text_bytes, parts);
        size_t size = text.size();
        CHECK(marks_.empty() || marks_.front().place > place_.num_text_bytes, "a mark of byte {} at byte {}",
              marks_.front().place, place_.num_text_bytes);
        if (!marks_.empty()) size = std::min(size, static_cast<size_t>(marks_.front().place - place_.num_text_bytes));
        place_.num_text_bytes += static_cast<int64_t>(parser_->add(text.substr(0, size), parts));
        text.remove_prefix(size);
    }
    CHECK_LE(place_.num_text_bytes, num_decoded_bytes_);
}

void AnswerReader::pass_marks_on(int64_t up_to, text::AnswerParts& parts) {
    for (; !marks_.empty() && marks_.front().place <= up_to; marks_.pop_front()) {
        if (parser_) (void)parser_->add(tokenizer_->bytes_of(marks_.front().token), parts);
    }
}

}  // namespace verbatim::server
