// reference/records/causes.h: owns the schedule-independent part of a recorded run: the clients' calls, in an order
// that gives every conversation the same turns, and the end of each turn.
//   K1  a turn that was discarded is discarded in the rerun; a committed turn is committed with the same number of
//       tokens
//   K2  a fork during a turn comes before the turn: the rerun may commit the turn at any time after its submission
//   K3  a call that was refused because a turn ran is left out: in the rerun that turn may have ended
// A record without steps and tokens has no ends: every client call is then a cause (shrink.h).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/base/ids.h"
#include "engine/ingestion.h"
#include "reference/records/format.h"

namespace verbatim::records {

// A call, and the turns of its conversations that had ended before it.
struct Cause {
    Call call;
    std::vector<RequestId> over;
};

// The end of a turn, beyond what its tokens decide.
struct TurnEnd {
    enum class Kind : uint8_t {
        kByItself,  // at a stop token or string, at max_tokens, or at a number that is not finite
        kEnded,     // Engine::end_turn: committed after num_tokens
        kLeft,      // its client left, or an executor failed it: discarded after num_tokens and num_computed positions
        kRevoked,   // its lease was revoked: it runs to its end and is discarded
    };
    Kind kind = Kind::kByItself;
    int64_t num_tokens = 0;     // that its client received
    int64_t num_computed = -1;  // positions; -1: it was never started
    int64_t step = 0;           // kLeft: the next step to be planned at that time
};

struct Causes {
    std::vector<Cause> calls;
    std::map<RequestId, TurnEnd> ends;  // of every turn that the record accepted; empty: the record has no ends
};
[[nodiscard]] Causes causes_of(const Record& record);

}  // namespace verbatim::records
