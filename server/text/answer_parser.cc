#include "server/text/answer_parser.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::text {
namespace {

using Kind = AnswerPart::Kind;
using Step = CallReader::Step;

bool is_space_of_answer(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

AnswerParser::AnswerParser(AnswerForm form) : form_(std::make_shared<const AnswerForm>(std::move(form))) {
    if (form_->begins_in_reasoning) place_ = Place::kReasoning;
    for (const char c : form_->begun) take(c, begun_);
}

size_t AnswerParser::add(std::string_view piece, AnswerParts& parts) {
    for (const AnswerPart& part : std::exchange(begun_, {})) append_part(parts, part.kind, part.text);
    size_t count = 0;
    while (count < piece.size() && !ended_) {
        take(piece[count], parts);
        // A byte that ends the answer without being of the call is behind it.
        if (!ended_ || place_ == Place::kCall) ++count;
    }
    return count;
}

void AnswerParser::finish(AnswerParts& parts) {
    for (const AnswerPart& part : std::exchange(begun_, {})) append_part(parts, part.kind, part.text);
    if (ended_) return;
    if (calls_) {
        calls_->finish(parts);
        const std::string held = calls_->held();
        const bool is_behind_call = calls_->num_calls() > 0;
        if (is_behind_call) end_call();
        calls_.reset();
        place_ = Place::kText;
        if (!is_behind_call || !std::ranges::all_of(held, is_space_of_answer)) put_back(held, parts);
    }
    const Kind kind = place_ == Place::kReasoning ? Kind::kReasoning : Kind::kText;
    if (kind == Kind::kReasoning) {
        if (!mark_.empty() && has_text_) append_part(parts, kind, space_);
        append_part(parts, kind, mark_);
    } else {
        for (const char c : std::exchange(mark_, {})) add_text(c, parts);
        if (!is_behind_call_ && !drops_space_) append_part(parts, kind, std::exchange(space_, {}));
    }
    mark_.clear();
    CHECK(calls_ == nullptr, "a call goes on behind the end");
}

void AnswerParser::take(char c, AnswerParts& parts) {
    switch (place_) {
        case Place::kReasoning: return take_reasoning(c, parts);
        case Place::kText: return take_text(c, parts);
        case Place::kCall: return take_call(c, parts);
    }
}

void AnswerParser::take_reasoning(char c, AnswerParts& parts) {
    mark_ += c;
    while (!mark_.empty() && !kThinkEnd.starts_with(mark_)) {
        const char first = mark_.front();
        mark_.erase(0, 1);
        if (is_space_of_answer(first)) {
            space_ += first;
            continue;
        }
        if (std::exchange(has_text_, true)) append_part(parts, Kind::kReasoning, space_);
        space_.clear();
        append_part(parts, Kind::kReasoning, {&first, 1});
    }
    if (mark_ != kThinkEnd) return;
    mark_.clear();
    space_.clear();
    place_ = Place::kText;
    has_text_ = is_at_start_ = false;
    drops_space_ = true;
}

bool AnswerParser::is_call_mark() const {
    if (form_->tools == ToolFormat::kNone) return false;
    return std::ranges::count(call_marks(form_->tools).begin, mark_) > 0;
}

bool AnswerParser::may_become_mark() const {
    if (form_->reasoning == ReasoningFormat::kThink && is_at_start_ && kThinkBegin.starts_with(mark_)) return true;
    if (form_->tools == ToolFormat::kNone) return false;
    return std::ranges::any_of(call_marks(form_->tools).begin,
                               [&](std::string_view mark) { return mark.starts_with(mark_); });
}

void AnswerParser::take_text(char c, AnswerParts& parts) {
    mark_ += c;
    while (!mark_.empty() && !may_become_mark()) {
        const char first = mark_.front();
        mark_.erase(0, 1);
        const bool may_begin_call = !has_text_ && !is_behind_call_ && form_->tools == ToolFormat::kLlama;
        if (first == '{' && may_begin_call) {
            calls_ = CallReader::start(form_, "{");
            place_ = Place::kCall;
            for (const char rest : std::exchange(mark_, {})) take(rest, parts);
            return;
        }
        add_text(first, parts);
    }
    if (mark_.empty()) return;
    if (is_call_mark()) {
        calls_ = CallReader::start(form_, std::exchange(mark_, {}));
        place_ = Place::kCall;
    } else if (mark_ == kThinkBegin && is_at_start_) {
        mark_.clear();
        space_.clear();
        place_ = Place::kReasoning;
    }
}

void AnswerParser::add_text(char c, AnswerParts& parts) {
    if (is_space_of_answer(c)) {
        space_ += c;
        return;
    }
    const bool drops_space = drops_space_ || (is_behind_call_ && !has_text_);
    if (!drops_space) append_part(parts, Kind::kText, space_);
    space_.clear();
    append_part(parts, Kind::kText, {&c, 1});
    has_text_ = true;
    is_at_start_ = drops_space_ = is_behind_call_ = false;
}

// Held space is no text in front of a call; in front of what turns out to be none it is.
void AnswerParser::take_call(char c, AnswerParts& parts) {
    CHECK(calls_ != nullptr, "a call that has not begun");
    const int64_t num_before = calls_->num_calls();
    const Step step = calls_->take(c, parts);
    if (num_before == 0 && calls_->num_calls() > 0) space_.clear();
    if (step == Step::kMore) return;
    const std::string held = calls_->held();
    if (calls_->num_calls() > 0) end_call();
    if (step == Step::kEnd) {
        ended_ = form_->ends_with_call;
        if (!ended_) {
            calls_.reset();
            place_ = Place::kText;
        }
        return;
    }
    calls_.reset();
    place_ = Place::kText;
    if (step == Step::kEndBefore && form_->ends_with_call) {
        ended_ = true;
        return;
    }
    put_back(held, parts);
    take(c, parts);
}

void AnswerParser::end_call() {
    is_behind_call_ = true;
    is_at_start_ = drops_space_ = false;
}

// What was held is text: a mark in it is none.
void AnswerParser::put_back(std::string_view held, AnswerParts& parts) {
    is_at_start_ = false;
    for (const char c : held) add_text(c, parts);
}

}  // namespace verbatim::text
