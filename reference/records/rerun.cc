#include "reference/records/rerun.h"

#include <algorithm>
#include <set>
#include <string>

#include "engine/base/check.h"
#include "reference/records/causes.h"

namespace verbatim::records {
namespace {

Status execute_step(Engine& engine, Executor& executor, StepResult& result) {
    const StepPlan& plan = engine.plan_step();
    if (Status executed = executor.execute(plan, result); !executed) {
        engine.fail_step();
        return executed;
    }
    engine.apply(result);
    return {};
}

}  // namespace

std::vector<Call> calls_of(const Record& record) {
    std::vector<Call> calls;
    for (const Entry& entry : record.entries) {
        if (const Call* call = std::get_if<Call>(&entry)) calls.push_back(*call);
    }
    return calls;
}

// --- drafts

RecordedDrafter::RecordedDrafter(const Record& record) {
    for (const Entry& entry : record.entries) {
        if (const auto* call = std::get_if<Call>(&entry); call != nullptr && call->step > 0) {
            for (const RequestDrafts& of : call->drafts) drafts_[{call->step - 1, of.request}] = of.tokens;
        }
        const auto* step = std::get_if<StepRecord>(&entry);
        if (step == nullptr) continue;
        for (const SequenceRecord& sequence : step->sequences) {
            if (!sequence.drafts.empty()) drafts_[{step->step, sequence.request}] = sequence.drafts;
        }
    }
}

void RecordedDrafter::draft(std::span<DraftJob> jobs) {
    CHECK(engine_ != nullptr);
    for (DraftJob& job : jobs) {
        CHECK_GE(job.max_drafts, 0);
        const auto found = drafts_.find({engine_->next_step(), job.request});
        if (found == drafts_.end()) continue;
        // A record may be anything, and the run another one by now.
        const auto fits = [&](TokenId token) { return token >= 0 && token < engine_->token_store().vocab_size(); };
        if (!std::ranges::all_of(found->second, fits)) continue;
        const auto count = std::min<size_t>(found->second.size(), static_cast<size_t>(job.max_drafts));
        job.drafts.assign(found->second.begin(), found->second.begin() + static_cast<std::ptrdiff_t>(count));
    }
}

// --- as it was

Status rerun_as_recorded(const Record& record, Engine& engine, Executor& executor, const RerunLimits& limits) {
    RerunOptions options{
        .max_steps = limits.max_steps, .fresh_executor = limits.fresh_executor, .make_head = limits.make_head};
    options.after_step = [&](int64_t num_calls) {
        static_cast<void>(engine.take_events());
        if (limits.after_step) limits.after_step(num_calls);
    };
    ASSIGN_OR_RETURN(const RerunEnd end, rerun(calls_of(record), engine, executor, options));
    if (!end.parted.empty()) return error("the run became another one: {}", end.parted);
    return {};
}

// --- by causes

namespace {

// Whether the call ends a turn that runs. Only a record of nothing but calls has such causes.
bool ends_turn(const Call& call) { return call.kind == CallKind::kAbort || call.kind == CallKind::kEndTurn; }

class CausalRun {
public:
    CausalRun(const Record& record, Engine& engine, const HeadMaker& make_head)
        : engine_(engine), make_head_(make_head), causes_(causes_of(record)), made_(causes_.calls.size()) {}
    [[nodiscard]] int64_t num_made() const { return num_made_; }
    [[nodiscard]] bool all_made() const { return num_made_ == static_cast<int64_t>(causes_.calls.size()); }

    // Makes what may be made now. `hurry`: whatever its step. True when something was made.
    Result<bool> make_due(bool hurry) {
        std::set<ConversationKey> held;  // by an earlier call that is not made
        bool any = false;
        while (first_ < made_.size() && made_[first_]) ++first_;
        for (size_t i = first_; i < made_.size(); ++i) {
            if (made_[i]) continue;
            const Cause& cause = causes_.calls[i];
            if (!hurry && cause.call.step > engine_.next_step()) break;
            const std::vector<ConversationKey> keys = conversations_of(cause.call);
            const bool is_held = std::ranges::any_of(keys, [&](const auto& key) { return held.contains(key); });
            if (is_held || !is_due(cause)) {
                held.insert(keys.begin(), keys.end());
                continue;
            }
            made_[i] = true;
            ++num_made_;
            any = true;
            RETURN_IF_ERROR(make(cause.call));
            if (hurry) break;
        }
        return any;
    }

    // Discards the turns that have what their clients had when they left.
    void leave() {
        std::erase_if(leaving_, [this](const auto& leaving) {
            const auto& [now, end] = leaving;
            const Sequence* sequence = engine_.find(now);
            if (sequence == nullptr) return true;
            const bool has_all = static_cast<int64_t>(sequence->output.size()) >= end.num_tokens &&
                                 sequence->num_computed_tokens >= end.num_computed;
            const bool was_started = end.num_computed >= 0;
            if (!has_all || (!was_started && engine_.next_step() < end.step)) return false;
            return engine_.abort(now);
        });
    }

    // Discards the turns that wait for masks when nothing else runs: their tokens are others than the recorded ones.
    void leave_without_masks() {
        if (!engine_.scheduler().waits_for_masks()) return;
        std::vector<RequestId> waiting;
        for (const Sequence* sequence : engine_.scheduler().running()) waiting.push_back(sequence->id);
        for (const RequestId id : waiting) engine_.abort(id);
    }

private:
    [[nodiscard]] static std::vector<ConversationKey> conversations_of(const Call& call) {
        if (call.kind == CallKind::kSubmit) return {call.request.conversation};
        if (ends_turn(call)) return {};  // nothing waits for it
        std::vector keys{call.key};
        if (call.kind == CallKind::kFork) keys.push_back({call.key.salt, call.to});
        return keys;
    }
    [[nodiscard]] bool is_over(RequestId recorded) const {
        const auto now = now_.find(recorded);
        return now != now_.end() && engine_.find(now->second) == nullptr;
    }
    [[nodiscard]] bool is_due(const Cause& cause) const {
        if (ends_turn(cause.call)) return now_.contains(cause.call.id);
        return std::ranges::all_of(cause.over, [&](RequestId id) { return is_over(id); });
    }
    Status make(const Call& call) {
        if (call.kind == CallKind::kSubmit) return submit(call);
        if (call.kind == CallKind::kImportHead) {
            return make_head_ ? import_again(call, make_head_, engine_)
                              : error("a head was imported, and none is here");
        }
        Call now = call;
        if (ends_turn(call)) now.id = now_.at(call.id);
        make_call(now, engine_);
        return {};
    }
    // A turn that does not commit loses its lease here: a step may bring it to its end before it can be discarded.
    Status submit(const Call& call) {
        const auto found = causes_.ends.find(call.id);
        const TurnEnd end = found == causes_.ends.end() ? TurnEnd{} : found->second;
        ChatRequest request = call.request;
        if (end.kind == TurnEnd::Kind::kEnded) {
            request.max_tokens = end.num_tokens;
            request.forced_output =
                request.forced_output.slice(0, std::min<int64_t>(request.forced_output.size(), end.num_tokens));
        }
        const auto accepted = engine_.submit(request);
        if (!accepted || accepted->recorded) {
            return error("request {} of conversation '{}' was accepted and is refused under this schedule: {}",
                         index(call.id), call.request.conversation.conversation_id,
                         accepted ? "its turn is known" : accepted.error().message());
        }
        now_[call.id] = accepted->request;
        if (end.kind == TurnEnd::Kind::kLeft || end.kind == TurnEnd::Kind::kRevoked)
            engine_.revoke(call.request.conversation);
        if (end.kind == TurnEnd::Kind::kLeft) leaving_[accepted->request] = end;
        return {};
    }

    Engine& engine_;
    const HeadMaker& make_head_;
    Causes causes_;
    std::vector<bool> made_;
    size_t first_ = 0;  // that may not be made yet
    int64_t num_made_ = 0;
    std::map<RequestId, RequestId> now_;    // of a recorded request, the one that it is now
    std::map<RequestId, TurnEnd> leaving_;  // by the request that it is now
};

}  // namespace

Status rerun_by_causes(const Record& record, Engine& engine, Executor& executor, const RerunLimits& limits) {
    CausalRun run(record, engine, limits.make_head);
    StepResult result;
    for (int64_t steps = 0; steps != limits.max_steps;) {
        run.leave();
        RETURN_IF_ERROR(run.make_due(false));
        if (engine.idle()) {
            ASSIGN_OR_RETURN(const bool went_on, run.make_due(true));
            if (went_on) continue;
            if (run.all_made()) return {};
            return error("the record's calls wait for turns that it does not have: it begins or ends in the middle");
        }
        RETURN_IF_ERROR(execute_step(engine, executor, result));
        run.leave_without_masks();
        static_cast<void>(engine.take_events());
        ++steps;
        if (limits.after_step) limits.after_step(run.num_made());
    }
    return {};
}

}  // namespace verbatim::records
