// engine/cache/name.h: a conversation's heads, and what is known of those that are gone.
//   N1  `heads` are alive, oldest publication first
//   N2  `gone` is ascending and has kMaxGone entries at most, however long the conversation lives
//   N3  `former` are heads that left the list and can still be found by their tokens (LookupMode::kPrefix)
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/rare_list.h"
#include "engine/cache/head.h"
#include "engine/request/request.h"

namespace verbatim {

struct NamedHead {
    int64_t length = 0;
    HeadKind kind = HeadKind::kTurn;
    HeadId head = kNoHead;
};

// A head of length `last` was here and went for this reason; first < last: so did shorter ones, from `first` on.
struct GoneHeads {
    int64_t first = 0;
    int64_t last = 0;
    NotReused reason = NotReused::kEvicted;
    friend bool operator==(const GoneHeads&, const GoneHeads&) = default;
};

struct Name {
    static constexpr size_t kMaxGone = 32;

    ConversationKey key;
    std::vector<NamedHead> heads;
    RareList<GoneHeads> gone;
    RareList<HeadId> former;  // ascending
    bool committed = false;   // a turn head was published: the conversation exists, and is loaded

    // A head of this length, no longer in `heads`, is gone. Beyond kMaxGone the two shortest entries become one.
    void note_gone(int64_t length, NotReused reason);
    [[nodiscard]] bool knows_gone(int64_t length) const;
    // What lay beyond `length` is no longer of this conversation's history.
    void forget_gone_beyond(int64_t length);
    [[nodiscard]] bool has_heads() const { return !heads.empty() || !former.empty(); }
};

}  // namespace verbatim
