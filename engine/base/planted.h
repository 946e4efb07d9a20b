// engine/base/planted.h: faults that special programs can switch on, so that a test shows which test catches each of them
// (docs/verification.md). Everywhere else planted() is constant false and the faults do not exist.
#pragma once

#include <cstdint>

namespace verbatim {

enum class Planted : uint8_t {
    kNone,
    kSkipStateCopy,          // the first step after an attach reads its own row instead of the head's
    kTailCopyOneShort,       // the last valid slot of the tail is not copied
    kTailShared,             // the tail block is shared instead of copied
    kStaleStateRow,          // a sequence that starts from zero reads its row as the last owner left it
    kPublishEarly,           // a pending is published before its bytes are materialised
    kSaltDropped,            // lookups ignore the salt
    kLeakOnAbort,            // an abort forgets to release the sequence's state row
    kSampledTokenInHead,     // the turn head claims the last sampled token as resident
    kLeaseUnchecked,         // a commit does not look at the lease's generation
    kGroupsDiffer,           // the prompt head's state is one token older than its KV
    kReuseUnfenced,          // a unit freed in an open step is allocated again in it
    kPinForgotten,           // an attached head is not pinned until its copies are materialised
    kPrefixUnchecked,        // the deepest head is attached without comparing tokens
    kResumeKeepsComputed,    // a preempted sequence resumes where it stopped instead of at its head
    kAbortPublishes,         // an aborted turn moves the name
    kForkUncounted,          // a forked name does not count as one that lists its heads
    kRetryRecomputes,        // a known turn_id is computed again
    kOldestPreempted,        // room is made by preempting the oldest
    kSeamDropped,            // a suffix follows the resident tokens instead of the committed ones
    kStopStringUncommitted,  // the tokens of a stop string are not committed
    kCount,
};

#if VERBATIM_PLANTED_BUGS
// The fault named by the environment variable VERBATIM_BUG, read once.
bool planted(Planted fault);
const char* name(Planted fault);
#else
constexpr bool planted(Planted) { return false; }
#endif

}  // namespace verbatim
