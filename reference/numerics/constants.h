// reference/numerics/constants.h: the sizes that fix the order of sums in the exact profile. They are part of the
// numbers' ABI: changing one changes bits, and takes a new version and new golden digests.
#pragma once

#include <cstdint>
#include <string_view>

namespace verbatim::reference {

inline constexpr int kNumericsVersion = 1;
// "exact" and its version: part of every head, record and golden file made in this profile.
inline constexpr std::string_view kExactNumericsId = "exact/1";
// The same over a model with weights in blocks, which are not rounded to bf16 (reference/ops/quantised.h).
inline constexpr std::string_view kExactBlocksNumericsId = "exact.blocks/1";

inline constexpr int64_t kDotChunk = 256;  // N3: a dot product's chunk; each starts at +0
inline constexpr int64_t kKvTile = 64;     // N5: KV positions in a tile, anchored at absolute position 0
inline constexpr int64_t kRunTiles = 8;    // N5: tiles in a run; runs are merged left to right
inline constexpr int64_t kRunPositions = kKvTile * kRunTiles;
inline constexpr int64_t kNormPartials = 64;  // N4: partial sums, halved 64 -> 32 -> ... -> 1
inline constexpr int64_t kScanChunk = 16;     // N6: state elements in a chunk of y = C·h
inline constexpr float kL2Eps = 1e-6F;        // N11: under the root of a key's length, independent of norm_eps

static_assert(kDotChunk % 2 == 0, "N3 takes pairs");
static_assert(kKvTile == kNormPartials, "a tile's sum of p is one N4 sum with one element in each partial");

}  // namespace verbatim::reference
