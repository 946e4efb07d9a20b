// traces/spaces.h: owns the numbering of derived spaces (engine/tokens/token_seq.h), the sources of a trace's tokens.
//
// A space number consists of a kind, the number of the session's copy, and a key. Equal spaces and positions mean equal
// tokens, so kinds are disjoint, and copies of a session share nothing but shared text.
//   bits 60..62 kind | 44..59 copy (0 for shared text) | 0..43 key
#pragma once

#include <cstdint>

#include "engine/base/check.h"

namespace verbatim::traces {

enum class SpaceKind : uint8_t {
    kWritten = 0,     // numbers written in a hand-made file
    kOutput = 1,      // key: row. Output that was not generated
    kBlocks = 2,      // key: strand (traces/recording.h). Token k of block `id` is at id * tokens-per-id + k
    kPartial = 3,     // key: strand. Token k of a last block of `length` tokens is at (id * block + length) * block + k
    kSharedText = 4,  // key: (tool tokens, system tokens). The prompt prefix of all sessions with this pair
    kOwn = 5,         // key: row of the source. Tokens unique to this row
};

inline constexpr int kSpaceKeyBits = 44;
inline constexpr uint64_t kMaxSpaceKey = (uint64_t{1} << kSpaceKeyBits) - 1;
inline constexpr uint64_t kMaxSpaceCopy = 0xffff;
inline constexpr uint64_t kMaxWrittenSpace = (uint64_t{1} << 60) - 1;

// REQUIRES: key <= kMaxSpaceKey, kind is neither kWritten nor kSharedText.
constexpr uint64_t private_space(SpaceKind kind, uint64_t key) {
    CHECK(key <= kMaxSpaceKey);
    return uint64_t{static_cast<uint8_t>(kind)} << 60 | key;
}
// REQUIRES: both < 2^30.
constexpr uint64_t shared_text_space(uint64_t tool_tokens, uint64_t system_tokens) {
    CHECK(tool_tokens >> 30 == 0 && system_tokens >> 30 == 0);
    return uint64_t{static_cast<uint8_t>(SpaceKind::kSharedText)} << 60 | tool_tokens << 30 | system_tokens;
}
constexpr SpaceKind kind_of(uint64_t space) { return static_cast<SpaceKind>(space >> 60); }
// The same text in copy `copy` of its session. REQUIRES: copy <= kMaxSpaceCopy, `space` is of copy 0.
constexpr uint64_t space_of_copy(uint64_t space, uint64_t copy) {
    CHECK(copy <= kMaxSpaceCopy);
    return kind_of(space) == SpaceKind::kSharedText ? space : space | copy << kSpaceKeyBits;
}

}  // namespace verbatim::traces
