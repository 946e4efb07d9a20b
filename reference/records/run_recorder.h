// reference/records/run_recorder.h: makes a record from an engine's reports (engine/recorder.h) and an executor's
// digests.
//   W1  it only observes: plans, results, tokens and events are those of a run without it
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

    // The source of the steps' digests; null: steps have none. Borrowed.
    void take_digests_of(const DigestingExecutor* executor) { executor_ = executor; }

    void on_plan(const StepPlan& plan) override;
    void on_token(RequestId request, TokenId token) override;
    void on_event(const Event& event) override;
    void on_call(const Call& call) override;
    void on_result(const StepResult& result) override;

    // Ends the record; later reports are ignored. `failure`: the reason; empty: the run is complete.
    void finish(std::string failure = {});
    [[nodiscard]] Digest digest() const { return digests_.digest(); }
    [[nodiscard]] Digest plan_digest() const { return digests_.plan_digest(); }

private:
    void add_reported();
    // Of the step that is open.
    [[nodiscard]] std::vector<RequestDrafts> open_drafts() const;
    [[nodiscard]] bool starts_draft_path(const StepPlan& plan, const SequenceStart& start) const;

    DigestLevel level_;
    RecordSink& sink_;
    const DigestingExecutor* executor_ = nullptr;
    DigestRecorder digests_;
    std::map<SequenceSlot, RequestId> request_of_;  // by slot, without an executor's digests
    std::set<RequestId> ordinary_;                  // requests
    const StepPlan* plan_ = nullptr;                // the open step's, owned by the engine
    StepRecord step_;                               // the open one
    Reported reported_;
    int64_t num_steps_ = 0;
    int64_t last_step_ = -1;  // that was planned
    bool is_over_ = false;
};

}  // namespace verbatim::records
