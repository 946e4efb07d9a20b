// engine/ingestion.h: what came in at the engine's door, call by call, with every argument: enough to run a run again,
// or to have its conversations back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/request/request.h"

namespace verbatim {

class Engine;
class Executor;

enum class CallKind : uint8_t { kSubmit, kAbort, kFork, kRewind, kRemove, kRevoke, kRestore, kEndTurn, kCount };
[[nodiscard]] const char* name(CallKind kind);

// A call, whether it was granted or refused.
struct Call {
    CallKind kind = CallKind::kSubmit;
    int64_t step = 0;                   // the next one to be planned
    bool in_open_step = false;          // between a step's plan and its result
    RequestId id{-1};                   // kSubmit: what it became, -1 where nothing runs; kAbort, kEndTurn
    ChatRequest request;                // kSubmit, with the seed that it is drawn with; of kRestore the messages
    ConversationKey key;                // of a name: kFork (from), kRewind, kRemove, kRevoke, kRestore
    std::string to;                     // kFork
    std::optional<uint64_t> num_turns;  // kFork, kRewind; kRestore: the version
    template <typename Self, typename Visit>
    static void visit_fields(Self& self, const Visit& visit) {
        visit("kind", self.kind);
        visit("step", self.step);
        visit("in_open_step", self.in_open_step);
        visit("id", self.id);
        visit("request", self.request);
        visit("key", self.key);
        visit("to", self.to);
        visit("num_turns", self.num_turns);
    }
    friend bool operator==(const Call&, const Call&) = default;
};

// Makes the calls again, each before the step that it came before, and runs to the end of the last one. The engine is
// fresh, of the same configuration, and borrows the executor; the requests' tokens are of its store. Errors: the
// executor's; a call that now becomes another request.
[[nodiscard]] Status rerun(std::span<const Call> calls, Engine& engine, Executor& executor);

}  // namespace verbatim
