// engine/ingestion.h: what came in at the engine's door, call by call, with every argument: enough to run a run again,
// or to have its conversations back.
//
// Not in it, and the caller's when a run is made again: who computes, and who guesses (Engine::draft_with: a drafter
// that guesses the same again). That a step failed and that a fresh executor came are calls; the failure itself is the
// executor's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/request/request.h"

namespace verbatim {

class Engine;
class Executor;

enum class CallKind : uint8_t {
    kSubmit,
    kAbort,
    kFork,
    kRewind,
    kRemove,
    kRevoke,
    kRestore,
    kEndTurn,
    kFailStep,         // the executor could not carry the open step out
    kReplaceExecutor,  // a fresh one computes from here on
    kUnload,           // a conversation that the caller restores before it names it again
    kCount,
};
[[nodiscard]] const char* name(CallKind kind);

// A call, whether it was granted or refused.
struct Call {
    CallKind kind = CallKind::kSubmit;
    int64_t step = 0;                   // the next one to be planned
    bool in_open_step = false;          // between a step's plan and its result
    RequestId id{-1};                   // kSubmit: what it became, -1 where nothing runs; kAbort, kEndTurn
    ChatRequest request;                // kSubmit, with the seed that it is drawn with; of kRestore the messages
    ConversationKey key;                // of a name: kFork (from), kRewind, kRemove, kRevoke, kRestore, kUnload
    std::string to;                     // kFork
    std::optional<uint64_t> num_turns;  // kFork, kRewind; kRestore, in logs that have no `version`: that
    Version version = kNoVersion;       // kRestore
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
        visit("version", self.version);
    }
    friend bool operator==(const Call&, const Call&) = default;
};

// Makes the call again; what a submit becomes: -1 where nothing runs, as for every other call. REQUIRES: a client's:
// neither kFailStep nor kReplaceExecutor.
RequestId make_call(const Call& call, Engine& engine);

struct RerunOptions {
    int64_t max_steps = -1;                             // so many and no more; -1: to the end
    std::function<void(int64_t num_calls)> after_step;  // with how many calls are made; it may take the events
    // Takes the place of one that failed, in the same arithmetic; none: the run ends there. An error ends it, too.
    std::function<Result<Executor*>()> fresh_executor;
};

// How a run that was made again ended.
struct RerunEnd {
    int64_t num_calls = 0;  // that were made
    std::string parted;     // where and how it became another run than it was; empty: it did not
};

// Makes the calls again, each before the step that it came before, and runs to the end of the last one, or to where the
// run becomes another one: a request is another, or a step that failed does not. The engine is fresh, of the same
// configuration, and borrows the executor; the requests' tokens are of its store. An error is the executor's, in a step
// that did not fail, or says why no fresh one can be made.
[[nodiscard]] Result<RerunEnd> rerun(std::span<const Call> calls, Engine& engine, Executor& executor,
                                     const RerunOptions& options = {});

}  // namespace verbatim
