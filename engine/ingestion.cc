#include "engine/ingestion.h"

#include "engine/base/check.h"
#include "engine/engine/engine.h"
#include "engine/executor.h"

namespace verbatim {
namespace {

Status make(const Call& call, Engine& engine) {
    switch (call.kind) {
        case CallKind::kSubmit: {
            const auto accepted = engine.submit(call.request);
            const RequestId id = accepted ? accepted->request : RequestId{-1};
            if (id == call.id) return {};
            return error("step {}: the request for conversation '{}' was {}, and is {} now", call.step,
                         call.request.conversation.conversation_id, index(call.id), index(id));
        }
        case CallKind::kAbort: engine.abort(call.id); return {};
        case CallKind::kFork: static_cast<void>(engine.fork(call.key, call.to, call.num_turns)); return {};
        case CallKind::kRewind: static_cast<void>(engine.rewind(call.key, call.num_turns.value_or(0))); return {};
        case CallKind::kRemove: static_cast<void>(engine.remove(call.key)); return {};
        case CallKind::kRevoke: engine.revoke(call.key); return {};
        case CallKind::kRestore:
            static_cast<void>(engine.restore(call.key, call.request.messages,
                                             Version{static_cast<int64_t>(call.num_turns.value_or(0))}));
            return {};
        case CallKind::kEndTurn: engine.end_turn(call.id); return {};
        case CallKind::kCount: break;
    }
    CHECK(false, "call {}", static_cast<int>(call.kind));
}

}  // namespace

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
        case CallKind::kCount: break;
    }
    CHECK(false, "call {}", static_cast<int>(kind));
}

Status rerun(std::span<const Call> calls, Engine& engine, Executor& executor) {
    StepResult result;
    const auto take_while = [&](bool in_open_step) -> Status {
        for (; !calls.empty() && calls.front().step == engine.next_step() && calls.front().in_open_step == in_open_step;
             calls = calls.subspan(1)) {
            RETURN_IF_ERROR(make(calls.front(), engine));
        }
        return {};
    };
    for (;;) {
        RETURN_IF_ERROR(take_while(false));
        if (engine.idle()) break;
        const StepPlan& plan = engine.plan_step();
        RETURN_IF_ERROR(take_while(true));
        RETURN_IF_ERROR(executor.execute(plan, result));
        engine.apply(result);
    }
    if (calls.empty()) return {};
    return error("a {} before step {}, but step {} is the last one", name(calls.front().kind), calls.front().step,
                 engine.next_step() - 1);
}

}  // namespace verbatim
