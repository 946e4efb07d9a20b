#include "reference/records/rerun.h"

#include <algorithm>
#include <set>
#include <string>

#include "engine/base/check.h"

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
    RerunOptions options{.max_steps = limits.max_steps};
    options.after_step = [&](int64_t num_calls) {
        static_cast<void>(engine.take_events());
        if (limits.after_step) limits.after_step(num_calls);
    };
    const auto end = rerun(calls_of(record), engine, executor, options);
    return end ? Status() : tl::unexpected(end.error());
}

// --- by causes

namespace {

// What must have happened before a call is made.
struct Cause {
    Call call;
    std::vector<RequestId> over;  // turns of its conversations that were over
    int64_t num_tokens = 0;       // kAbort, kEndTurn: that the client had
};

// Whether the call ends a turn that runs.
bool is_end(const Call& call) { return call.kind == CallKind::kAbort || call.kind == CallKind::kEndTurn; }

// Whether it is the executor's: under another schedule none fails.
bool is_executors(const Call& call) {
    return call.kind == CallKind::kFailStep || call.kind == CallKind::kReplaceExecutor;
}

std::vector<ConversationKey> conversations_of(const Call& call, const std::map<RequestId, ConversationKey>& of) {
    if (call.kind == CallKind::kSubmit) return {call.request.conversation};
    if (is_end(call)) {
        const auto found = of.find(call.id);
        return found == of.end() ? std::vector<ConversationKey>{} : std::vector{found->second};
    }
    std::vector keys{call.key};
    if (call.kind == CallKind::kFork) keys.push_back({call.key.salt, call.to});
    return keys;
}

std::vector<Cause> causes_of(const Record& record) {
    std::vector<Cause> causes;
    std::map<RequestId, ConversationKey> conversation;
    std::map<RequestId, int64_t> num_tokens;
    std::map<ConversationKey, std::vector<RequestId>> over;
    for (const Entry& entry : record.entries) {
        if (const Call* call = std::get_if<Call>(&entry)) {
            if (is_executors(*call)) continue;
            if (call->kind == CallKind::kSubmit) {
                if (call->id == RequestId{-1}) continue;
                conversation[call->id] = call->request.conversation;
            }
            Cause cause{*call, {}, is_end(*call) ? num_tokens[call->id] : 0};
            // A version is a matter of turns that are over, and these are asked for.
            cause.call.request.parent.reset();
            for (const ConversationKey& key : conversations_of(*call, conversation)) {
                cause.over.insert(cause.over.end(), over[key].begin(), over[key].end());
            }
            causes.push_back(std::move(cause));
        } else if (const Told* told = std::get_if<Told>(&entry)) {
            for (const ToldToken& token : told->tokens) ++num_tokens[token.request];
            for (const Event& event : told->events) {
                if (event.kind != EventKind::kCommit && event.kind != EventKind::kDiscard) continue;
                const auto found = conversation.find(event.request);
                if (found != conversation.end()) over[found->second].push_back(event.request);
            }
        }
    }
    return causes;
}

class CausalRun {
public:
    CausalRun(const Record& record, Engine& engine) : engine_(engine), causes_(causes_of(record)) {
        for (const Cause& cause : causes_) {
            if (cause.call.kind == CallKind::kSubmit) conversation_[cause.call.id] = cause.call.request.conversation;
        }
        made_.resize(causes_.size());
    }
    [[nodiscard]] int64_t num_made() const { return num_made_; }
    [[nodiscard]] bool all_made() const { return num_made_ == static_cast<int64_t>(causes_.size()); }

    // Makes what may be made now. `hurry`: whatever its step. True when something was made.
    Result<bool> make_due(bool hurry) {
        std::set<ConversationKey> held;  // by an earlier call that is not made
        bool any = false;
        while (first_ < causes_.size() && made_[first_]) ++first_;
        for (size_t i = first_; i < causes_.size(); ++i) {
            if (made_[i]) continue;
            const Cause& cause = causes_[i];
            if (!hurry && cause.call.step > engine_.next_step()) break;
            const auto keys = conversations_of(cause.call, conversation_);
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

private:
    [[nodiscard]] bool is_over(RequestId recorded) const {
        const auto now = now_.find(recorded);
        return now != now_.end() && engine_.find(now->second) == nullptr;
    }
    [[nodiscard]] bool is_due(const Cause& cause) {
        if (!std::ranges::all_of(cause.over, [&](RequestId id) { return is_over(id); })) return false;
        if (!is_end(cause.call)) return true;
        const auto now = now_.find(cause.call.id);
        if (now == now_.end()) return false;
        const Sequence* sequence = engine_.find(now->second);
        return sequence == nullptr || static_cast<int64_t>(sequence->output.size()) >= cause.num_tokens;
    }
    Status make(const Call& call) {
        if (call.kind == CallKind::kSubmit) {
            const auto accepted = engine_.submit(call.request);
            if (!accepted || accepted->recorded) {
                return error("request {} of conversation '{}' was accepted and is refused under this schedule: {}",
                             index(call.id), call.request.conversation.conversation_id,
                             accepted ? "its turn is known" : accepted.error().message);
            }
            now_[call.id] = accepted->request;
            return {};
        }
        Call now = call;
        if (is_end(call)) now.id = now_.at(call.id);
        make_call(now, engine_);
        return {};
    }

    Engine& engine_;
    std::vector<Cause> causes_;
    std::vector<bool> made_;
    size_t first_ = 0;  // that may not be made yet
    int64_t num_made_ = 0;
    std::map<RequestId, ConversationKey> conversation_;
    std::map<RequestId, RequestId> now_;  // of a recorded request, the one that it is now
};

}  // namespace

Status rerun_by_causes(const Record& record, Engine& engine, Executor& executor, const RerunLimits& limits) {
    CausalRun run(record, engine);
    StepResult result;
    for (int64_t steps = 0; steps != limits.max_steps;) {
        RETURN_IF_ERROR(run.make_due(false));
        if (engine.idle()) {
            ASSIGN_OR_RETURN(const bool went_on, run.make_due(true));
            if (went_on) continue;
            if (run.all_made()) return {};
            return error("the record's calls wait for turns that it does not have: it begins or ends in the middle");
        }
        RETURN_IF_ERROR(execute_step(engine, executor, result));
        static_cast<void>(engine.take_events());
        ++steps;
        if (limits.after_step) limits.after_step(run.num_made());
    }
    return {};
}

}  // namespace verbatim::records
