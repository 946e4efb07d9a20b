// engine/drafting/priced_drafter.h: another drafter's drafts, where they pay: its time and that of steps, with drafts
// and without, decide (draft_worth.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/clock.h"
#include "engine/drafting/draft_worth.h"
#include "engine/drafting/drafter.h"

namespace verbatim {

class PricedDrafter final : public WrappingDrafter {
public:
    // Borrows both.
    PricedDrafter(Drafter& inner, Clock& clock) : WrappingDrafter(inner), clock_(clock) {}

    std::optional<DraftTerms> terms(int32_t num_requests) override { return worth_.terms(num_requests); }
    void step_begins() override {
        const int64_t begin_ns = clock_.now_ns();
        inner().step_begins();
        begin_step(begin_ns);
    }
    void step_begins_undrafted() override {
        const int64_t begin_ns = clock_.now_ns();
        worth_.rests() ? inner().step_begins_undrafted() : inner().step_begins();
        begin_step(begin_ns);
    }
    // What requests have to catch up is computed first, and takes about as long a token as guesses do.
    void draft(std::span<DraftJob> jobs) override {
        int64_t num_behind = 0;
        for (const DraftJob& job : jobs) num_behind += job.num_behind;
        inner().draft(jobs);
        const int64_t end_ns = clock_.now_ns();
        const int64_t ns = end_ns - begin_ns_;
        begin_ns_ = end_ns;
        int64_t num_drafts = 0;
        for (const DraftJob& job : jobs) num_drafts += std::ssize(job.drafts);
        const int64_t catch_up_ns = num_behind == 0 ? 0 : ns / (num_behind + num_drafts) * num_behind;
        if (num_behind > 0) worth_.record_catch_up(num_behind, catch_up_ns);
        draft_ns_ += ns - catch_up_ns;
    }
    void step_ends(const DecodeStep* step) override {
        if (step != nullptr)
            worth_.record(*step, clock_.now_ns() - begin_ns_, draft_ns_);
        else
            worth_.add_overhead(draft_ns_);
        inner().step_ends(step);
    }

private:
    void begin_step(int64_t begin_ns) {
        begin_ns_ = clock_.now_ns();
        worth_.add_overhead(begin_ns_ - begin_ns);
        draft_ns_ = 0;
    }

    Clock& clock_;
    DraftWorth worth_;
    int64_t begin_ns_ = 0;  // of the step, behind its drafts
    int64_t draft_ns_ = 0;
};

}  // namespace verbatim
