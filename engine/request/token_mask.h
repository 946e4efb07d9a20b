// engine/request/token_mask.h: which tokens a grammar allows at one position.
//
//   M1  a mask lists runs from token 0 on: lengths of forbidden and allowed tokens in turn, a forbidden run first
//   M2  of equal sets of tokens there is one mask: only the first length may be 0, the last run is an allowed one, and
//       what lies behind it is forbidden
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim {

struct TokenMask {
    std::vector<int32_t> runs;  // in tokens; without runs: no mask, every token is allowed
    friend bool operator==(const TokenMask&, const TokenMask&) = default;
};

// Whether the runs have the form of M1 and M2, allow a token, and end within the vocabulary.
[[nodiscard]] bool is_valid_mask(std::span<const int32_t> runs, int32_t vocab_size);
// REQUIRES: valid runs.
[[nodiscard]] bool allows(std::span<const int32_t> runs, TokenId token);
// Whether one of the tokens that the runs allow is not in `tokens`. REQUIRES: valid runs.
[[nodiscard]] bool allows_beyond(std::span<const int32_t> runs, std::span<const TokenId> tokens);
// The mask of a set of tokens as bits, the lowest bit of a byte first; without runs where the set is empty. Bits beyond
// the vocabulary count for nothing. REQUIRES: a bit for each token.
[[nodiscard]] TokenMask mask_of_bits(std::span<const std::byte> bits, int32_t vocab_size);

}  // namespace verbatim
