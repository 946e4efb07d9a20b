// engine/ingestion.h: every call of the engine's interface with its arguments: enough to make a run again, or to
// restore its conversations.
//
// Calls do not contain the executor and the drafter: the caller that makes a run again supplies an executor of the same
// arithmetic and a drafter with the same drafts (Engine::draft_with). A failed step and a replaced executor are calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/digest.h"
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
    kImportHead,       // of one message; `to` says what made it. Its bytes are those that its tokens give
    kAllow,            // of one mask, in request.masks
    kAwaitHead,        // the waiting request is not admitted until kStopAwaiting
    kStopAwaiting,
    kCount,
};
[[nodiscard]] const char* name(CallKind kind);

// Drafts that a step was to verify for a request.
struct RequestDrafts {
    RequestId request{};
    std::vector<TokenId> tokens;
    friend bool operator==(const RequestDrafts&, const RequestDrafts&) = default;
};

// A call, whether it was granted or refused.
struct Call {
    CallKind kind = CallKind::kSubmit;
    int64_t step = 0;           // the next one to be planned
    bool in_open_step = false;  // between a step's plan and its result
    RequestId id{-1};           // kSubmit: what it became, -1 where nothing runs; kAbort, kEndTurn, kAllow,
                                // kAwaitHead, kStopAwaiting
    ChatRequest request;  // kSubmit, with the seed that it is drawn with; of kRestore the messages; of kAllow the mask
    ConversationKey key;  // of a name: kFork (from), kRewind, kRemove, kRevoke, kRestore, kUnload,
                          // kImportHead
    std::string to;       // kFork; kImportHead: its numerics id
    std::optional<uint64_t> num_turns;  // kFork, kRewind; kRestore, in logs that have no `version`: that
    Version version = kNoVersion;       // kRestore
    std::vector<RequestDrafts> drafts;  // kFailStep, in records: of the step, which allocated memory for them
    friend bool operator==(const Call&, const Call&) = default;
};

// Makes the call again; what a submit becomes: -1 where nothing runs, as for every other call. REQUIRES: a client's:
// none of kFailStep, kReplaceExecutor and kImportHead.
RequestId make_call(const Call& call, Engine& engine);

// The bytes of a head that kImportHead named, and their digest: what its tokens give in its arithmetic.
struct MadeHead {
    Digest digest;
    std::vector<std::byte> bytes;
};
using HeadMaker = std::function<Result<MadeHead>(const Call& call)>;

// Imports the head of a kImportHead call. Errors: `maker`'s.
[[nodiscard]] Status import_again(const Call& call, const HeadMaker& maker, Engine& engine);

struct RerunOptions {
    int64_t max_steps = -1;                             // so many and no more; -1: to the end
    std::function<void(int64_t num_calls)> after_step;  // with how many calls are made; it may take the events
    // Takes the place of one that failed, in the same arithmetic; none: the run ends there. An error ends it, too.
    std::function<Result<Executor*>()> fresh_executor;
    HeadMaker make_head;  // none: the run ends at the first import
};

// The end of a run that was made again.
struct RerunEnd {
    int64_t num_calls = 0;  // that were made
    std::string parted;     // where and how it diverged from the recorded run; empty: it did not
};

// Makes the calls again, each before the step that it preceded, and runs to the end of the last request, or to where
// the run diverges: a submit becomes another request, or a step that failed succeeds. The engine is new, has the same
// configuration and borrows the executor; the requests' tokens are in its store. Errors: the executor's, in a step that
// succeeded in the recorded run, or fresh_executor's.
[[nodiscard]] Result<RerunEnd> rerun(std::span<const Call> calls, Engine& engine, Executor& executor,
                                     const RerunOptions& options = {});

}  // namespace verbatim
