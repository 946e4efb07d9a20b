// server/checkpoints.h: owns the choice of places in a prompt whose states are worth keeping. A later history may turn
// off from this one at any message: a template drops old reasoning, a client edits, or leaves out what is old.
//
//   P1  a place is a message's end, as the tokens show it: behind a special token that ends some text
//   P2  a place is at most twice as far from the prompt's end as the one above it, or there is no message end between
//       them; as far as max_places reach, and the first message's end and the newest four are among them
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"
#include "engine/engine/engine.h"

namespace verbatim::server {

inline constexpr size_t kMaxCheckpoints = 12;  // of a request, and of a conversation

// Where messages end in a rendered conversation, ascending: behind the first special token after some tokens of text.
// What is shorter is a role's name, or belongs to the message beside it.
template <typename IsSpecial>
[[nodiscard]] std::vector<int64_t> message_ends(std::span<const TokenId> ids, const IsSpecial& is_special) {
    constexpr size_t kLeastText = 4;  // a role's name and the line's end are fewer
    std::vector<int64_t> ends;
    size_t text = 0;  // where it begins
    for (size_t i = 0; i < ids.size(); ++i) {
        if (!is_special(ids[i])) continue;
        if (i - text >= kLeastText) ends.push_back(static_cast<int64_t>(i) + 1);
        text = i + 1;
    }
    return ends;
}

// Up to max_places of `ends` (P2). REQUIRES: `ends` ascending; max_places >= 5.
[[nodiscard]] std::vector<int64_t> spread_checkpoints(std::span<const int64_t> ends, int64_t num_tokens,
                                                      size_t max_places);

// An engine that takes and keeps so many.
void keep_checkpoints(EngineConfig& config);

}  // namespace verbatim::server
