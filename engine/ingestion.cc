#include "engine/ingestion.h"

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/engine.h"
#include "engine/executor.h"

namespace verbatim {
const char* name(CallKind kind) {
    switch (kind) {
        case CallKind::kSubmit: return "submit";
        case CallKind::kAbort: return "abort";
        case CallKind::kFork: return "fork";
        case CallKind::kRewind: return "rewind";
        case CallKind::kRemove: return "remove";
        case CallKind::kRevoke: return "revoke";
        case CallKind::kRestore: return "restore";
        case CallKind::kEndTurn: return "end_turn";
        case CallKind::kFailStep: return "fail_step";
        case CallKind::kReplaceExecutor: return "replace_executor";
        case CallKind::kUnload: return "unload";
        case CallKind::kImportHead: return "import_head";
        case CallKind::kAllow: return "allow";
        case CallKind::kAwaitHead: return "await_head";
        case CallKind::kStopAwaiting: return "stop_awaiting";
        case CallKind::kCount: break;
    }
    CHECK(false, "call {}", static_cast<int>(kind));
}

RequestId make_call(const Call& call, Engine& engine) {
    switch (call.kind) {
        case CallKind::kSubmit: {
            const auto accepted = engine.submit(call.request);
            return accepted ? accepted->request : RequestId{-1};
        }
        case CallKind::kAbort: engine.abort(call.id); break;
        case CallKind::kFork: static_cast<void>(engine.fork(call.key, call.to, call.num_turns)); break;
        case CallKind::kRewind: static_cast<void>(engine.rewind(call.key, call.num_turns.value_or(0))); break;
        case CallKind::kRemove: static_cast<void>(engine.remove(call.key)); break;
        case CallKind::kRevoke: engine.revoke(call.key); break;
        case CallKind::kRestore: {
            const Version old{static_cast<int64_t>(call.num_turns.value_or(0))};
            engine.restore(call.key, call.request.messages, call.version == kNoVersion ? old : call.version);
            break;
        }
        case CallKind::kUnload: engine.unload(call.key); break;
        case CallKind::kEndTurn: engine.end_turn(call.id); break;
        case CallKind::kAwaitHead: engine.await_head(call.id); break;
        case CallKind::kStopAwaiting: engine.stop_awaiting(call.id); break;
        case CallKind::kAllow:
            for (const TokenMask& mask : call.request.masks) engine.allow(call.id, mask);
            break;
        case CallKind::kFailStep:
        case CallKind::kReplaceExecutor:
        case CallKind::kImportHead:
        case CallKind::kCount: CHECK(false, "call {} is no client's", static_cast<int>(call.kind));
    }
    return RequestId{-1};
}

Status import_again(const Call& call, const HeadMaker& maker, Engine& engine) {
    CHECK(call.kind == CallKind::kImportHead, "call {}", name(call.kind));
    if (call.request.messages.size() != 1 || call.request.messages.front().tokens.empty())
        return error("step {}: a head of no tokens is imported", call.step);
    ASSIGN_OR_RETURN(const MadeHead made, maker(call));
    // Where there is no room for it now, there was none before.
    static_cast<void>(engine.import_head({.key = call.key,
                                          .tokens = call.request.messages.front().tokens,
                                          .numerics_id = call.to,
                                          .digest = made.digest,
                                          .bytes = made.bytes}));
    return {};
}

namespace {

// A run that is made again, step by step.
class Rerun {
public:
    Rerun(std::span<const Call> calls, Engine& engine, Executor& executor, const RerunOptions& options)
        : calls_(calls), engine_(engine), executor_(&executor), options_(options) {}

    Result<RerunEnd> run() {
        for (int64_t steps = 0; steps != options_.max_steps; ++steps) {
            RETURN_IF_ERROR(make_due(false));
            if (!parted() && next() == nullptr && engine_.waits_for_head())
                end_.parted = fmt::format("step {}: a head is awaited, and none comes", engine_.next_step());
            if (parted() || engine_.idle()) break;
            RETURN_IF_ERROR(take_step());
            if (!parted() && next() == nullptr && engine_.scheduler().waits_for_masks())
                end_.parted = fmt::format("step {}: a mask is missing, and none comes", engine_.next_step() - 1);
            if (parted()) break;
            if (options_.after_step) options_.after_step(end_.num_calls);
        }
        if (!parted() && engine_.idle() && next() != nullptr) {
            end_.parted = fmt::format("a {} before step {}, but step {} is the last one", name(next()->kind),
                                      next()->step, engine_.next_step() - 1);
        }
        return end_;
    }

private:
    [[nodiscard]] bool parted() const { return !end_.parted.empty(); }
    [[nodiscard]] const Call* next() const {
        const auto made = static_cast<size_t>(end_.num_calls);
        return made < calls_.size() ? &calls_[made] : nullptr;
    }
    [[nodiscard]] bool is_due(const Call& call, bool in_open_step) const {
        return call.step == engine_.next_step() && call.in_open_step == in_open_step;
    }

    // But a step's failure: that is the executor's.
    Status make_due(bool in_open_step) {
        for (; !parted() && next() != nullptr && is_due(*next(), in_open_step); ++end_.num_calls) {
            if (next()->kind == CallKind::kFailStep) return {};
            RETURN_IF_ERROR(make(*next()));
        }
        return {};
    }
    Status make(const Call& call) {
        if (call.kind == CallKind::kReplaceExecutor) return replace_executor(call.in_open_step);
        if (call.kind == CallKind::kImportHead) return import_head(call);
        const RequestId id = make_call(call, engine_);
        if (call.kind != CallKind::kSubmit || id == call.id) return {};
        end_.parted = fmt::format("step {}: the request for conversation '{}' was {}, and is {} now", call.step,
                                  call.request.conversation.conversation_id, index(call.id), index(id));
        return {};
    }
    Status replace_executor(bool in_open_step) {
        if (!options_.fresh_executor) {
            end_.parted = fmt::format("step {}: a fresh executor came, and none is here", engine_.next_step());
            return {};
        }
        if (in_open_step || !engine_.idle()) {
            end_.parted = fmt::format("step {}: a fresh executor came, and turns run now", engine_.next_step());
            return {};
        }
        ASSIGN_OR_RETURN(executor_, options_.fresh_executor());
        engine_.replace_executor(*executor_);
        return {};
    }

    Status import_head(const Call& call) {
        if (options_.make_head) return import_again(call, options_.make_head, engine_);
        end_.parted = fmt::format("step {}: a head was imported, and none is here", call.step);
        return {};
    }

    Status take_step() {
        const StepPlan& plan = engine_.plan_step();
        RETURN_IF_ERROR(make_due(true));
        const bool failed = !parted() && next() != nullptr && is_due(*next(), true);  // and not made: a failure
        const Status executed = executor_->execute(plan, result_);
        if (!executed || failed) engine_.fail_step();
        if (!executed && !failed) return executed;
        if (!executed) {
            ++end_.num_calls;
        } else if (failed) {
            end_.parted = fmt::format("step {} failed, and does not now", plan.step);
        } else {
            engine_.apply(result_);
        }
        return {};
    }

    std::span<const Call> calls_;
    Engine& engine_;
    Executor* executor_;
    const RerunOptions& options_;
    StepResult result_;
    RerunEnd end_;
};

}  // namespace

Result<RerunEnd> rerun(std::span<const Call> calls, Engine& engine, Executor& executor, const RerunOptions& options) {
    return Rerun(calls, engine, executor, options).run();
}

}  // namespace verbatim
