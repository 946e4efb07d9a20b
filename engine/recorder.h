// engine/recorder.h: observes a run: its calls, plans, results, tokens and events, in order.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/ingestion.h"
#include "engine/step_plan.h"

namespace verbatim {

enum class EventKind : uint8_t {
    kSubmit,    // value: prompt tokens
    kRefuse,    // value: RefusalReason
    kRepeat,    // a known turn_id: the recorded answer; value: its tokens
    kAttach,    // head, value: its length (0: from zero)
    kTailCopy,  // head, value: slots
    kPreempt,   // value: computed tokens that are given up
    kStage,     // value: tokens of the pending
    kPublish,   // head, value: its length, digest of its bytes
    kCommit,    // head, value: committed tokens
    kDiscard,   // value: FinishReason
    kAbort,
    kEvict,   // head, value: its length
    kLetGo,   // head, value: its length; older than the heads its name keeps, or its name went
    kFork,    // value: committed tokens of the new name
    kRewind,  // value: committed tokens that are left
    kDelete,
    kRevoke,
    kCount,
};
[[nodiscard]] const char* name(EventKind kind);

struct Event {
    EventKind kind = EventKind::kSubmit;
    int64_t step = 0;
    RequestId request{-1};
    HeadId head = kNoHead;
    int64_t value = 0;
    Digest digest{};
    friend bool operator==(const Event&, const Event&) = default;
};

class Recorder {
public:
    virtual ~Recorder() = default;
    virtual void on_plan(const StepPlan& plan) = 0;
    virtual void on_token(RequestId request, TokenId token) = 0;
    // Several tokens of a request: as on_token() for each.
    virtual void on_tokens(RequestId request, std::span<const TokenId> tokens) {
        for (const TokenId token : tokens) on_token(request, token);
    }
    virtual void on_event(const Event& event) = 0;
    virtual void on_call(const Call& /*call*/) {}            // a submit when it is answered, all others before
    virtual void on_result(const StepResult& /*result*/) {}  // before it is applied
};

// Calls several recorders, in order. Borrows them.
class RecorderList final : public Recorder {
public:
    explicit RecorderList(std::vector<Recorder*> recorders) : recorders_(std::move(recorders)) {}
    void on_plan(const StepPlan& plan) override {
        for (Recorder* recorder : recorders_) recorder->on_plan(plan);
    }
    void on_token(RequestId request, TokenId token) override {
        for (Recorder* recorder : recorders_) recorder->on_token(request, token);
    }
    void on_event(const Event& event) override {
        for (Recorder* recorder : recorders_) recorder->on_event(event);
    }
    void on_call(const Call& call) override {
        for (Recorder* recorder : recorders_) recorder->on_call(call);
    }
    void on_result(const StepResult& result) override {
        for (Recorder* recorder : recorders_) recorder->on_result(result);
    }

private:
    std::vector<Recorder*> recorders_;
};

// A chained digest over plans, tokens and events, and one over the plans alone (plan parity).
class DigestRecorder final : public Recorder {
public:
    void on_plan(const StepPlan& plan) override;
    void on_token(RequestId request, TokenId token) override;
    void on_event(const Event& event) override;
    [[nodiscard]] Digest digest() const { return all_.digest(); }
    [[nodiscard]] Digest plan_digest() const { return plans_.digest(); }

private:
    Digester all_;
    Digester plans_;
};

}  // namespace verbatim
