#include "engine/cache/head.h"

#include "engine/base/check.h"

namespace verbatim {

const char* name(HeadKind kind) {
    switch (kind) {
        case HeadKind::kTurn: return "turn";
        case HeadKind::kPrompt: return "prompt";
        case HeadKind::kCheckpoint: return "checkpoint";
        case HeadKind::kBranch: return "branch";
        case HeadKind::kCount: break;
    }
    CHECK(false, "head kind {}", static_cast<int>(kind));
}

const char* name(NotReused reason) {
    switch (reason) {
        case NotReused::kNewConversation: return "new_conversation";
        case NotReused::kNewTokens: return "new_tokens";
        case NotReused::kSeam: return "seam";
        case NotReused::kLastToken: return "last_token";
        case NotReused::kBetweenHeads: return "between_heads";
        case NotReused::kEvicted: return "evicted";
        case NotReused::kNotRetained: return "not_retained";
        case NotReused::kNoRoomToCopy: return "no_room_to_copy";
        case NotReused::kOtherNumerics: return "other_numerics";
        case NotReused::kLost: return "lost";
        case NotReused::kCacheOff: return "cache_off";
        case NotReused::kScored: return "scored";
        case NotReused::kSlowToRestore: return "slow_to_restore";
        case NotReused::kCount: break;
    }
    CHECK(false, "reason {}", static_cast<int>(reason));
}

}  // namespace verbatim
