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
// The same with activations in int8 wherever weights in blocks have integers (reference/ops/int8_matmul.h).
inline constexpr std::string_view kExactInt8NumericsId = "exact.int8/2";
// The same with activations in FP8 wherever a checkpoint's recipe has them (reference/ops/fp8_matmul.h).
inline constexpr std::string_view kExactFp8NumericsId = "exact.fp8/1";

inline constexpr int64_t kDotChunk = 256;  // N3: a dot product's chunk; each starts at +0
inline constexpr int64_t kKvTile = 64;     // N5: KV positions in a tile, anchored at absolute position 0
inline constexpr int64_t kRunTiles = 8;    // N5: tiles in a run; runs are merged left to right
inline constexpr int64_t kRunPositions = kKvTile * kRunTiles;
inline constexpr int64_t kNormPartials = 64;             // N4: partial sums, halved 64 -> 32 -> ... -> 1
inline constexpr int64_t kScanChunk = 16;                // N6: state elements in a chunk of y = C·h
inline constexpr int64_t kSmallInt8Block = 32;           // exact.int8: activations under one fp16 scale
inline constexpr int64_t kLargeInt8Block = 256;          // ... or under one binary32 scale, for types in blocks of 256
inline constexpr float kLeastInt8Magnitude = 0x1p-100F;  // a large block below it is zero: 127 ÷ it would overflow
inline constexpr int64_t kFp8Group = 128;  // exact.fp8: activations under one scale, where a row has several
inline constexpr float kL2Eps = 1e-6F;     // N11: under the root of a key's length, independent of norm_eps

static_assert(kDotChunk % 2 == 0, "N3 takes pairs");
static_assert(kKvTile == kNormPartials, "a tile's sum of p is one N4 sum with one element in each partial");

}  // namespace verbatim::reference
