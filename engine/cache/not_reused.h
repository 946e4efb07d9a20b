// engine/cache/not_reused.h: owns the reasons why prompt tokens are computed.
#pragma once

#include <cstdint>

namespace verbatim {

// Why a prompt token was computed: every token that is not reused has exactly one reason.
enum class NotReused : uint8_t {
    kNewConversation,  // the conversation has no committed tokens and no prefix was found
    kNewTokens,        // beyond what the conversation has committed
    kSeam,             // the last sampled token of the turn before: committed, never computed
    kLastToken,        // a request computes at least one token, else there are no logits
    kBetweenHeads,     // committed, or known from a head, and no head ends at or after it that the prompt begins with
    kEvicted,          // a head lay there and was evicted to make room
    kNotRetained,      // a head lay there and was let go, or an earlier prompt had the token and no head kept it
    kNoRoomToCopy,     // a head lies there, and there was no room for its tail or a state row
    kOtherNumerics,    // a head lies there, made by other arithmetic
    kLost,             // a head lay there, and its bytes went with its executor
    kCacheOff,         // the request asked for no reuse
    kScored,           // the request asked for logits of the position before it, or of one before that
    kSlowToRestore,    // a head outside of memory has it, and computing was expected to be quicker than reading
    kCount,
};
[[nodiscard]] const char* name(NotReused reason);

}  // namespace verbatim
