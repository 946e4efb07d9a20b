// server/turn_details.h: what a turn shares with the head that it goes on from, and what its windows gave.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim::server {

// A step that verified drafts: how many, and how many of these became tokens of the answer.
struct VerifiedWindow {
    int32_t num_drafts = 0;
    int32_t num_accepted = 0;
    friend bool operator==(const VerifiedWindow&, const VerifiedWindow&) = default;
};

// As of the last time that the turn attached to a head: a preemption makes it attach again.
struct TurnDetails {
    int64_t num_attached_tokens = 0;  // whose KV and state the head holds; 0: it began from zero
    int64_t num_shared_blocks = 0;    // full blocks of these
    int64_t num_copied_tokens = 0;    // the rest of these, of the tail block; 0: nothing was copied
    int64_t block_size = 0;
    StateIndex read_row = kNoState;  // the head's, which the first step reads
    StateIndex own_row = kNoState;   // which the turn writes
    std::vector<VerifiedWindow> windows;
    friend bool operator==(const TurnDetails&, const TurnDetails&) = default;
};
using TurnDetailsPtr = std::shared_ptr<const TurnDetails>;

}  // namespace verbatim::server
