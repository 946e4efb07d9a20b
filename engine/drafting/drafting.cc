#include "engine/drafting/drafting.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

void Drafting::use(Drafter* drafter, int32_t max_window, bool paced_windows) {
    CHECK_GE(max_window, 1);
    drafter_ = drafter;
    max_window_ = max_window;
    paced_windows_ = paced_windows;
}

// Forced output is not sampled: no sampled token could agree with it. Masks of drafts do not exist: each follows from
// the tokens before it. Ordinary requests in another arithmetic have no drafts: their bits are not promised, so
// there is nothing that a window could be compared with.
bool Drafting::may_draft(const Sequence& sequence) const {
    const NumericsIds& ids = scheduler_.numerics_ids();
    if (sequence.arithmetic() == Arithmetic::kOrdinary && ids.front() != ids.back()) return false;
    const bool is_free = sequence.request.forced_output.empty() && !sequence.has_grammar();
    return sequence.decodes() && is_free && !scheduler_.verifies(sequence);
}

int32_t Drafting::max_drafts(Sequence& sequence, int64_t least_acceptance) const {
    const int64_t left = sequence.max_tokens - static_cast<int64_t>(sequence.output.size());
    const auto most = static_cast<int32_t>(std::min<int64_t>(max_window_, left) - 1);
    if (most < 1 || !paced_windows_) return most;
    return sequence.pacing.next(most, least_acceptance);
}

void Drafting::collect_jobs(const DraftTerms& terms) {
    CHECK_GE(terms.catch_up_to, 1);
    jobs_.clear();
    sequences_.clear();
    for (Sequence* sequence : scheduler_.running()) {
        if (!may_draft(*sequence)) continue;
        const int32_t most = max_drafts(*sequence, terms.least_acceptance);
        if (most < 1) continue;
        DraftJob job{.request = sequence->id,
                     .prompt = &sequence->turn.prompt,
                     .output = sequence->output,
                     .sampling = sequence->request.sampling,
                     .max_drafts = most};
        const auto num_output = std::ssize(sequence->output);
        const int64_t gains_from = std::min<int64_t>(num_output, sequence->max_tokens - num_output);
        job.num_behind = drafter_->num_behind(job);
        if (!terms.repay(job.num_behind, gains_from)) continue;
        sequences_.push_back(sequence);
        jobs_.push_back(std::move(job));
    }
    const auto num_ready = std::ranges::count(jobs_, 0, &DraftJob::num_behind);
    const auto num_drafted = std::max<std::ptrdiff_t>(num_ready, terms.catch_up_to);
    if (std::ssize(jobs_) <= num_drafted) return;
    std::ranges::stable_sort(jobs_, {}, &DraftJob::num_behind);
    jobs_.resize(static_cast<size_t>(num_drafted));
}

void Drafting::propose() {
    if (!enabled()) return;
    std::optional<DraftTerms> terms = DraftTerms{};
    if (paced_windows_) {
        const auto num_decoding = std::ranges::count_if(scheduler_.running(), &Sequence::decodes);
        terms = drafter_->terms(static_cast<int32_t>(num_decoding));
    }
    if (!terms) {
        // Pauses run down meanwhile, so that a measurement finds requests that draft.
        for (Sequence* sequence : scheduler_.running())
            if (may_draft(*sequence)) static_cast<void>(max_drafts(*sequence, 0));
        return drafter_->step_begins_undrafted();
    }
    drafter_->step_begins();
    collect_jobs(*terms);
    if (jobs_.empty()) return;
    drafter_->draft(jobs_);
    for (size_t i = 0; i < jobs_.size(); ++i) {
        DraftJob& job = jobs_[i];
        Sequence* sequence = sequences_[i];
        if (sequence->id != job.request) {  // jobs are in another order
            const auto found = std::ranges::find(sequences_, job.request, &Sequence::id);
            CHECK(found != sequences_.end(), "request {} was not to be drafted", index(job.request));
            sequence = *found;
        }
        CHECK_LE(static_cast<int32_t>(job.drafts.size()), job.max_drafts);
        CHECK(std::ranges::all_of(job.drafts, [&](TokenId t) { return t >= 0 && t < vocab_size_; }),
              "request {} has a draft that is none of {} tokens", index(job.request), vocab_size_);
        sequence->drafts = std::move(job.drafts);
    }
}

// Behind a token that would end the turn, and behind a fault, there is nothing to draft.
void Drafting::take(Sequence& sequence, const ScheduledSequence& planned, const StepResult& result,
                    const SampledTokens* sampled) {
    CHECK(sequence.draft_path && sequence.draft_path->num_computed_tokens == planned.num_computed_tokens,
          "request {} has no draft path at {}", index(sequence.id), planned.num_computed_tokens);
    sequence.draft_path->num_computed_tokens = planned.end();
    stats_.draft_path_tokens += planned.num_new_tokens;
    if (sampled == nullptr) return;
    if (sampled->fault_layer >= 0) {
        scheduler_.end_draft_path(sequence);
        sequence.drafts_end = true;
        return;
    }
    const TokenId token = result.tokens_of(*sampled).front();
    CHECK(token >= 0 && token < vocab_size_, "the executor sampled token {} of {}", token, vocab_size_);
    sequence.drafts.push_back(token);
    sequence.drafts_end = !sequence.request.ignore_stop && std::ranges::count(sequence.request.stop_tokens, token) > 0;
}

void Drafting::record_window(Sequence& sequence, int32_t num_drafts, int32_t num_accepted) {
    CHECK(num_accepted >= 0 && num_accepted <= num_drafts, "{} of {} drafts of request {} are accepted", num_accepted,
          num_drafts, index(sequence.id));
    if (num_drafts > 0 && paced_windows_) sequence.pacing.record(num_drafts, num_accepted, max_window_ - 1);
}

// A row that moves without a new token belongs to no decode step: what it takes says nothing of drafts.
void Drafting::end_step(const StepPlan& plan, const StepResult& result) {
    if (!enabled() || !paced_windows_) return;
    CHECK_EQ(plan.step, result.step);
    DecodeStep step{.num_requests = static_cast<int32_t>(plan.sequences.size())};
    for (const ScheduledSequence& planned : plan.sequences) {
        if (planned.num_sampled_positions == 0 || planned.num_new_tokens != planned.num_sampled_positions)
            return drafter_->step_ends(nullptr);
        step.num_drafts += planned.num_drafts();
    }
    for (const SampledTokens& sampled : result.drawn) step.num_tokens += std::ssize(result.tokens_of(sampled));
    drafter_->step_ends(step.num_requests > 0 ? &step : nullptr);
}

void Drafting::end(RequestId request) {
    CHECK_GE(index(request), 0);
    if (drafter_ != nullptr) drafter_->ended(request);
}

}  // namespace verbatim
