#include "reference/records/run_recorder.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::records {

void RunRecorder::on_plan(const StepPlan& plan) {
    if (is_over_) return;
    CHECK_GT(plan.step, last_step_);
    last_step_ = plan.step;
    add_reported();
    digests_.on_plan(plan);
    plan_ = &plan;
    step_ = {};
    step_.step = plan.step;
    for (const SequenceStart& start : plan.new_sequences) {
        request_of_[start.slot] = start.request;
        Digester prompt;
        start.tokens.slice(0, start.num_prompt_tokens).add_to(prompt);
        step_.starts.push_back({start.request, start.tokens.size(), start.num_prompt_tokens, start.num_computed_tokens,
                                prompt.digest(), starts_draft_path(plan, start)});
    }
    if (level_ == DigestLevel::kNone) {
        step_.digest = plan.digest();
        return;
    }
    step_.plan = plan;
    for (SequenceStart& start : step_.plan->new_sequences) start.tokens = {};
}

void RunRecorder::on_result(const StepResult& result) {
    if (is_over_) return;
    CHECK(plan_ != nullptr && plan_->step == result.step);
    step_.elapsed_ns = result.elapsed_ns;
    if (executor_ != nullptr) {
        step_.sequences = executor_->sequences();
        CHECK_LE(step_.sequences.size(), plan_->sequences.size());
    } else {
        for_each_share(*plan_, result, [&](const ScheduledSequence& sequence, const SampledTokens* drawn) {
            step_.sequences.push_back(plain_record_of(*plan_, sequence, request_of_.at(sequence.slot), drawn));
        });
    }
    plan_ = nullptr;
    ++num_steps_;
    sink_.add(std::exchange(step_, {}));
}

void RunRecorder::on_token(RequestId request, TokenId token) {
    if (is_over_) return;
    digests_.on_token(request, token);
    reported_.tokens.push_back({request, token});
}

void RunRecorder::on_event(const Event& event) {
    if (is_over_) return;
    digests_.on_event(event);
    if (level_ == DigestLevel::kNone && event.kind != EventKind::kCommit && event.kind != EventKind::kDiscard) return;
    reported_.events.push_back(event);
}

void RunRecorder::on_call(const Call& call) {
    if (is_over_) return;
    add_reported();
    if (call.kind == CallKind::kSubmit && !call.request.deterministic) ordinary_.insert(call.id);
    if (call.kind != CallKind::kFailStep) return sink_.add(call);
    Call failed = call;
    failed.drafts = open_drafts();
    plan_ = nullptr;
    sink_.add(std::move(failed));
}

std::vector<RequestDrafts> RunRecorder::open_drafts() const {
    CHECK(plan_ != nullptr, "a step fails after step {}, and none is open", last_step_);
    std::vector<RequestDrafts> all;
    for (const ScheduledSequence& sequence : plan_->sequences) {
        if (sequence.num_drafts() == 0) continue;
        const auto drafts = plan_->drafts(sequence);
        all.push_back({request_of_.at(sequence.slot), {drafts.begin(), drafts.end()}});
    }
    return all;
}

bool RunRecorder::starts_draft_path(const StepPlan& plan, const SequenceStart& start) const {
    const auto scheduled = std::ranges::find(plan.sequences, start.slot, &ScheduledSequence::slot);
    return scheduled != plan.sequences.end() && scheduled->arithmetic == Arithmetic::kOrdinary &&
           !ordinary_.contains(start.request);
}

void RunRecorder::add_reported() {
    if (reported_.tokens.empty() && reported_.events.empty()) return;
    sink_.add(std::exchange(reported_, {}));
}

void RunRecorder::finish(std::string failure) {
    CHECK(!is_over_, "the record ends twice, now with '{}'", failure);
    add_reported();
    is_over_ = true;
    sink_.finish({digests_.digest(), digests_.plan_digest(), num_steps_, std::move(failure)});
}

}  // namespace verbatim::records
