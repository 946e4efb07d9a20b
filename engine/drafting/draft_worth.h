// engine/drafting/draft_worth.h: whether drafts pay, by what steps with and without them took. Integers only; owns
// what it has measured, for each range of batch sizes (1, 2-3, 4-7, ...).
//
// Steps without drafts come first, then steps with drafts; from then on the way of the lower time for a token is taken,
// and the other one is measured again from time to time. What such a measurement may cost is saved up before: one
// kBudget-th of the time of all steps.
// A drafter that computes has to catch up first, as with a new request's prompt. That is no part of a step's time: a
// request has no drafts until drafts of the tokens that it has would have saved as much as catching up costs, and none
// if those that may still come cannot save as much. For a measurement a kShares-th of the requests catch up; where
// drafts pay, twice as many in each step that follows.
// Steps with rows of prompts are not measured: where a batch has nothing but these, acceptance alone decides.
//   D1  while drafts are the slower way, at most 1 / kBudget of the time goes to measuring them, apart from the first
//       kFirst steps of a range, what was caught up for the first range of all, and steps that were never measured
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "engine/drafting/drafter.h"
#include "engine/drafting/pacing.h"

namespace verbatim {

class DraftWorth {
public:
    static constexpr int32_t kFirst = 4;             // steps of either way, before they are compared
    static constexpr int32_t kProbe = 4;             // steps of a later measurement
    static constexpr int64_t kBudget = 128;          // of the time of steps, one part goes to measurements
    static constexpr int32_t kPatience = 16;         // steps that are not measured, before acceptance alone decides
    static constexpr int64_t kMostTimes = 4;         // a usual step that one step counts as, at most
    static constexpr int64_t kCatchUpMemory = 8192;  // tokens
    static constexpr int32_t kShares = 8;            // of the requests, one part catches up for a measurement

    // What drafts are worth in a step of num_requests; nothing: the step shall have none. Once for every step; of 0
    // requests, as where it was asked last.
    [[nodiscard]] std::optional<DraftTerms> terms(int32_t num_requests);
    // Whether drafts do not pay where terms() was asked last, but for a measurement now and then.
    [[nodiscard]] bool rests() const { return rests_; }
    // A step took `step_ns`, and its drafts `draft_ns`. REQUIRES: times are not negative.
    void record(const DecodeStep& step, int64_t step_ns, int64_t draft_ns);
    // Before record() of its step: a drafter caught up `num_tokens` in so long. REQUIRES: num_tokens > 0, ns >= 0.
    void record_catch_up(int64_t num_tokens, int64_t ns);
    // Time that drafting took apart from a step's drafts, as for rows of prompts. Steps with drafts bear it, little by
    // little.
    void add_overhead(int64_t ns) { overhead_ns_ += ns; }

private:
    // Sums over the last steps of one way, older ones counting less.
    class Pace {
    public:
        void add(const DecodeStep& step, int64_t ns);
        [[nodiscard]] int32_t num_steps() const { return num_steps_; }
        [[nodiscard]] int64_t step_ns() const { return num_steps_ > 0 ? ns_ * kSure / weight_ : 0; }
        [[nodiscard]] int64_t token_ns() const { return tokens_ > 0 ? ns_ * kSure / tokens_ : 0; }
        [[nodiscard]] int64_t drafts_of_16_steps() const { return weight_ > 0 ? 16 * drafts_ / weight_ : 0; }

    private:
        static constexpr int64_t kMemory = 8;  // steps, about
        int64_t ns_ = 0;
        int64_t tokens_ = 0;  // kSure for each
        int64_t drafts_ = 0;
        int64_t weight_ = 0;
        int32_t num_steps_ = 0;
    };
    struct Range {
        Pace plain;
        Pace drafted;
        int32_t probe_left = 0;    // steps of the other way to come
        int64_t saved_ns = 0;      // for the next measurement; negative: what catching up took beyond it
        int64_t caught_up_ns = 0;  // in the last measurement of drafts
        int32_t shares = 1;        // of kShares: requests that catch up

        [[nodiscard]] bool drafts_pay() const { return drafted.token_ns() <= plain.token_ns(); }
        // The greatest time that counts for one step with drafts: the first one touches memory for the first time.
        [[nodiscard]] int64_t most_drafted_ns() const {
            return drafted.num_steps() == 0 && plain.num_steps() > 0 ? kMostTimes * plain.step_ns() : INT64_MAX;
        }
        [[nodiscard]] int64_t price_of_row(int32_t num_requests) const;
        [[nodiscard]] int64_t price_of_probe() const;
        // A step's drafter caught up for so long.
        void add_catch_up(int64_t ns);
        // Whether this step is one of a measurement.
        bool takes_other_way();
        [[nodiscard]] int32_t catch_up_to(int32_t num_requests) const {
            return std::max(1, num_requests * shares / kShares);
        }
    };
    [[nodiscard]] Range& range_of(int32_t num_requests);
    // What catching up took for a measurement of other ranges, if drafts pay in none: the first measurement of a
    // further one has to save as much.
    [[nodiscard]] int64_t catch_up_elsewhere_ns() const;
    // Output that a request needs for 1024 tokens of catching up, where drafts pay in the range.
    [[nodiscard]] int64_t output_for_1024_behind(const Range& range) const;

    std::array<Range, 32> ranges_;
    int64_t overhead_ns_ = 0;
    int64_t catch_up_ns_ = 0;  // of the last kCatchUpMemory tokens, about
    int64_t catch_up_tokens_ = 0;
    int64_t step_catch_up_ns_ = 0;  // of the step that is not recorded yet
    int32_t unmeasured_ = 0;        // steps since the last one that was recorded; kPatience at most
    bool rests_ = false;
};

}  // namespace verbatim
