// kernels/transpose.h: owns the transposition of a square of words in registers.
#pragma once

#include <cstdint>
#include <cstring>

namespace verbatim {

inline constexpr int64_t kSquareSide = 4;  // words

// out[c * out_stride + r] = word c of rows + r * stride, for r and c below kSquareSide. Strides are in elements; a row
// is read as 16 bytes, whatever its elements are.
template <typename Row, typename Word>
inline __attribute__((always_inline)) void transpose_square(const Row* rows, int64_t stride, Word* out,
                                                            int64_t out_stride) {
    using Four = uint32_t __attribute__((vector_size(16)));  // only moved, never computed with
    static_assert(sizeof(Four) == kSquareSide * sizeof(Word));
    Four row[kSquareSide];
    for (int64_t r = 0; r < kSquareSide; ++r) std::memcpy(&row[r], rows + r * stride, sizeof(Four));
    const Four ab_low = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const Four cd_low = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const Four ab_high = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const Four cd_high = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const Four column[kSquareSide] = {
        __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5), __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
        __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5), __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
    for (int64_t c = 0; c < kSquareSide; ++c) std::memcpy(out + c * out_stride, &column[c], sizeof(Four));
}

}  // namespace verbatim
