// reference/records/run_recorder.h: makes a record of what an engine tells (engine/recorder.h) and an executor
// computes.
//   W1  it only looks on: plans, results, tokens and events are those of a run without it
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "engine/recorder.h"
#include "reference/records/format.h"
#include "reference/records/step_digests.h"

namespace verbatim::records {

class RunRecorder final : public Recorder {
public:
    // Borrows the sink.
    RunRecorder(DigestLevel level, RecordSink& sink) : level_(level), sink_(sink) {}

    // Whose digests go with the steps; null: no step has any. Borrowed.
    void take_digests_of(const DigestingExecutor* executor) { executor_ = executor; }

    void on_plan(const StepPlan& plan) override;
    void on_token(RequestId request, TokenId token) override;
    void on_event(const Event& event) override;
    void on_call(const Call& call) override;
    void on_result(const StepResult& result) override;

    // The record ends here, whatever the run tells after it. `failure`: why; empty: it has come to its end.
    void finish(std::string failure = {});
    [[nodiscard]] Digest digest() const { return digests_.digest(); }
    [[nodiscard]] Digest plan_digest() const { return digests_.plan_digest(); }

private:
    void add_told();
    [[nodiscard]] bool starts_beside(const StepPlan& plan, const SequenceStart& start) const;

    DigestLevel level_;
    RecordSink& sink_;
    const DigestingExecutor* executor_ = nullptr;
    DigestRecorder digests_;
    std::map<SequenceSlot, RequestId> request_of_;  // by slot, where nobody computes digests
    std::set<RequestId> ordinary_;                  // requests
    const StepPlan* plan_ = nullptr;                // of the open step; the engine's
    StepRecord step_;                               // the open one
    Told told_;
    int64_t num_steps_ = 0;
    bool is_over_ = false;
};

}  // namespace verbatim::records
