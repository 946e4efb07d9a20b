#include "engine/drafting/draft_worth.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

// A step that was held up by something else counts as one of kMostTimes the usual length.
void DraftWorth::Pace::add(const DecodeStep& step, int64_t ns) {
    CHECK(ns >= 0 && step.num_tokens >= 0 && step.num_drafts >= 0, "{} tokens in {} ns", step.num_tokens, ns);
    if (num_steps_ >= kFirst) ns = std::min(ns, kMostTimes * step_ns());
    const auto take_in = [](int64_t& sum, int64_t value) { sum += value - sum / kMemory; };
    take_in(ns_, ns);
    take_in(tokens_, kSure * step.num_tokens);
    take_in(drafts_, kSure * step.num_drafts);
    take_in(weight_, kSure);
    num_steps_ = std::min(num_steps_ + 1, kFirst);
    CHECK_GE(ns_, 0);
    CHECK_GT(weight_, 0);
    CHECK_LE(weight_, (kMemory + 1) * kSure);
}

DraftWorth::Range& DraftWorth::range_of(int32_t num_requests) {
    CHECK_GT(num_requests, 0);
    return ranges_[static_cast<size_t>(std::bit_width(static_cast<uint32_t>(num_requests)))];
}

// What a draft adds to a step, relative to a plain step's time for one request.
int64_t DraftWorth::Range::price_of_row(int32_t num_requests) const {
    const int64_t added_ns = drafted.step_ns() - plain.step_ns();
    const int64_t drafts = drafted.drafts_of_16_steps();
    if (added_ns <= 0 || drafts <= 0 || plain.step_ns() <= 0) return 0;
    const int64_t row_ns = 16 * added_ns / drafts;
    return std::min(kSure, kSure * row_ns / plain.step_ns() * num_requests);
}

// The other way loses so much in kProbe steps; a quarter of a step at least, so that equal ways do not alternate.
int64_t DraftWorth::Range::price_of_probe() const {
    const Pace& other = drafts_pay() ? plain : drafted;
    const Pace& taken = drafts_pay() ? drafted : plain;
    const int64_t lost_of_1024 = kSure - kSure * taken.token_ns() / std::max<int64_t>(1, other.token_ns());
    const int64_t lost_ns = kProbe * (other.step_ns() * std::max<int64_t>(0, lost_of_1024) / kSure);
    return std::max(lost_ns + (drafts_pay() ? 0 : caught_up_ns), taken.step_ns() / 4);
}

// The first measurement's is paid by nothing.
void DraftWorth::Range::add_catch_up(int64_t ns) {
    const bool is_first = drafted.num_steps() < kFirst;
    if (!is_first && drafts_pay()) return;
    caught_up_ns += ns;
    if (!is_first) saved_ns -= ns;
}

bool DraftWorth::Range::takes_other_way() {
    CHECK_GE(probe_left, 0);
    CHECK(plain.num_steps() == kFirst && drafted.num_steps() == kFirst);
    if (probe_left == 0 && saved_ns >= price_of_probe()) {
        saved_ns = drafts_pay() ? 0 : std::exchange(caught_up_ns, 0);
        probe_left = kProbe;
    }
    if (probe_left == 0) return false;
    --probe_left;
    return true;
}

int64_t DraftWorth::output_for_1024_behind(const Range& range) const {
    if (catch_up_tokens_ == 0) return 0;
    CHECK(catch_up_ns_ >= 0 && catch_up_tokens_ > 0, "{} tokens in {} ns", catch_up_tokens_, catch_up_ns_);
    const int64_t gain_ns = range.plain.token_ns() - range.drafted.token_ns();
    constexpr int64_t kNever = int64_t{1} << 30;
    return std::min(kNever, 1024 * (catch_up_ns_ / catch_up_tokens_) / std::max<int64_t>(1, gain_ns));
}

int64_t DraftWorth::catch_up_elsewhere_ns() const {
    int64_t most_ns = 0;
    for (const Range& range : ranges_) {
        if (range.drafted.num_steps() < kFirst) continue;
        if (range.drafts_pay()) return 0;
        most_ns = std::max(most_ns, range.caught_up_ns);
    }
    return most_ns;
}

std::optional<DraftTerms> DraftWorth::terms(int32_t num_requests) {
    CHECK_GE(num_requests, 0);
    if (num_requests == 0) return rests_ ? std::nullopt : std::optional(DraftTerms{});
    Range& range = range_of(num_requests);
    rests_ = false;
    const bool is_patient = unmeasured_ < kPatience;
    if (is_patient) ++unmeasured_;
    if (range.plain.num_steps() < kFirst) return is_patient ? std::nullopt : std::optional(DraftTerms{});
    if (range.drafted.num_steps() == 0 && range.saved_ns < catch_up_elsewhere_ns()) {
        rests_ = true;
        return std::nullopt;
    }
    const int32_t catch_up_to = range.catch_up_to(num_requests);
    if (range.drafted.num_steps() < kFirst) return DraftTerms{.catch_up_to = catch_up_to};
    rests_ = !range.drafts_pay();
    const bool other = range.takes_other_way();
    if (range.drafts_pay() == other) return std::nullopt;
    // A measurement asks for as many as requests would have if rows were free: their price is what it is for.
    if (other) return DraftTerms{.catch_up_to = catch_up_to};
    const int64_t least = range.price_of_row(num_requests);
    CHECK(least >= 0 && least <= kSure, "a draft must be right with {} of {}", least, kSure);
    return DraftTerms{
        .least_acceptance = least, .catch_up_to = catch_up_to, .output_for_1024_behind = output_for_1024_behind(range)};
}

void DraftWorth::record_catch_up(int64_t num_tokens, int64_t ns) {
    CHECK(num_tokens > 0 && ns >= 0, "{} tokens in {} ns", num_tokens, ns);
    catch_up_tokens_ += num_tokens;
    catch_up_ns_ += ns;
    step_catch_up_ns_ += ns;
    while (catch_up_tokens_ > kCatchUpMemory) {
        catch_up_tokens_ /= 2;
        catch_up_ns_ /= 2;
    }
}

void DraftWorth::record(const DecodeStep& step, int64_t step_ns, int64_t draft_ns) {
    CHECK(step_ns >= 0 && draft_ns >= 0, "a step of {} ns and drafts of {} ns", step_ns, draft_ns);
    CHECK_GE(overhead_ns_, 0);
    unmeasured_ = 0;
    Range& range = range_of(step.num_requests);
    const bool paid = range.drafts_pay();
    range.saved_ns += (step_ns + draft_ns) / kBudget;
    range.add_catch_up(std::exchange(step_catch_up_ns_, 0));
    if (step.num_drafts == 0) {
        overhead_ns_ += draft_ns;  // the drafter had no guess
        range.plain.add(step, step_ns);
    } else {
        const int64_t borne_ns = std::min(overhead_ns_, step_ns / 8);
        overhead_ns_ -= borne_ns;
        const int64_t drafted_ns = step_ns + draft_ns + borne_ns;
        const int64_t counted_ns = std::min(drafted_ns, range.most_drafted_ns());
        overhead_ns_ += drafted_ns - counted_ns;
        range.drafted.add(step, counted_ns);
        CHECK_GT(range.drafted.num_steps(), 0);
        if (range.drafted.num_steps() == kFirst) range.shares = std::min(2 * range.shares, kShares);
    }
    if (!range.drafts_pay()) range.shares = 1;
    if (range.drafts_pay() != paid) range.probe_left = 0;  // of what was the other way
}

}  // namespace verbatim
