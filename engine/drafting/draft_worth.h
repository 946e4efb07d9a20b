// engine/drafting/draft_worth.h: whether drafts pay, by what steps with and without them took. Integers only; owns
// what it has measured, for each range of batch sizes (1, 2-3, 4-7, ...).
//
// Steps without drafts come first, then steps with drafts; from then on the way of the lower time for a token is taken,
// and the other one is measured again from time to time. What such a measurement may cost is saved up before: one
// kBudget-th of the time of all steps.
// Steps with rows of prompts are not measured: where a batch has nothing but these, acceptance alone decides.
//   D1  while drafts are the slower way, at most 1 / kBudget of the time goes to measuring them, apart from the first
//       kFirst steps of a range, steps that were never measured, and what a drafter catches up after a rest
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/drafting/drafter.h"
#include "engine/drafting/pacing.h"

namespace verbatim {

class DraftWorth {
public:
    static constexpr int32_t kFirst = 4;      // steps of either way, before they are compared
    static constexpr int32_t kProbe = 4;      // steps of a later measurement
    static constexpr int64_t kBudget = 128;   // of the time of steps, one part goes to measurements
    static constexpr int32_t kPatience = 16;  // steps that are not measured, before acceptance alone decides
    static constexpr int64_t kMostTimes = 4;  // a usual step that one step counts as, at most

    // How likely a draft must be to pay for its row, of kSure, in a step of num_requests; nothing: the step shall have
    // no drafts. Once for every step; of 0 requests, as where it was asked last.
    [[nodiscard]] std::optional<int64_t> least_acceptance(int32_t num_requests);
    // Whether drafts do not pay where least_acceptance() was asked last, but for a measurement now and then.
    [[nodiscard]] bool rests() const { return rests_; }
    // A step took `step_ns`, and its drafts `draft_ns`. REQUIRES: times are not negative.
    void record(const DecodeStep& step, int64_t step_ns, int64_t draft_ns);
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
        int32_t probe_left = 0;  // steps of the other way to come
        int64_t saved_ns = 0;    // for the next measurement

        [[nodiscard]] bool drafts_pay() const { return drafted.token_ns() <= plain.token_ns(); }
        // The greatest time that counts for one step with drafts: the first ones also compute their prompts.
        [[nodiscard]] int64_t most_drafted_ns() const {
            return drafted.num_steps() < kFirst && plain.num_steps() > 0 ? kMostTimes * plain.step_ns() : INT64_MAX;
        }
        [[nodiscard]] int64_t price_of_row(int32_t num_requests) const;
        [[nodiscard]] int64_t price_of_probe() const;
        // Whether this step is one of a measurement.
        bool takes_other_way();
    };
    [[nodiscard]] Range& range_of(int32_t num_requests);

    std::array<Range, 32> ranges_;
    int64_t overhead_ns_ = 0;
    int32_t unmeasured_ = 0;  // steps since the last one that was recorded; kPatience at most
    bool rests_ = false;
};

}  // namespace verbatim
