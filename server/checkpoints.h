// server/checkpoints.h: owns the choice of positions in a prompt whose states are kept as checkpoints. A later history
// may diverge at any message: a template drops old reasoning, a client edits or removes old messages.
//
//   P1  a checkpoint is a message's end in the tokens: after a special token that ends some text
//   P2  the distance of a checkpoint from the prompt's end is at most twice that of the next later one, unless no
//       message end lies between them; within max_places, and always with the first message's end and the newest four
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"
#include "engine/engine.h"

namespace verbatim::server {

inline constexpr size_t kMaxCheckpoints = 12;  // per request, and per conversation

// Ends of messages in a rendered conversation, ascending: after the first special token that follows some tokens of
// text. A shorter text is a role's name, or belongs to the neighbouring message.
template <typename IsSpecial>
[[nodiscard]] std::vector<int64_t> message_ends(std::span<const TokenId> ids, const IsSpecial& is_special) {
    constexpr size_t kLeastText = 4;  // a role's name and a line end are fewer
    std::vector<int64_t> ends;
    size_t text = 0;  // index where the text begins
    for (size_t i = 0; i < ids.size(); ++i) {
        if (!is_special(ids[i])) continue;
        if (i - text >= kLeastText) ends.push_back(static_cast<int64_t>(i) + 1);
        text = i + 1;
    }
    return ends;
}

// At most max_places of `ends` (P2). REQUIRES: `ends` ascending; max_places >= 5.
[[nodiscard]] std::vector<int64_t> spread_checkpoints(std::span<const int64_t> ends, int64_t num_tokens,
                                                      size_t max_places);

// Sets the engine's limits to this number of checkpoints.
void keep_checkpoints(EngineConfig& config);

}  // namespace verbatim::server
