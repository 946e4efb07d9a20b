// kernels/sandbox/cuda/source_wmma.h: owns CUDA's warp matrices (nvcuda::wmma) for CUDA source on the emulator
// (kernels/sandbox/cuda/source.h includes it): fragments of 16 x 16 x 16, 32 x 8 x 16 and 8 x 32 x 16 of half, bf16 and
// 8-bit integers, with sums in float, half and int.
//
//   M1  mma_sync is the mma.sync of the same shape, 16 x 8 at a time; sums in half are rounded once, after 16 products
//   M2  which elements a lane holds is not CUDA's to say: here each element is in one lane, as mma.sync has them
//   M3  a pointer is aligned to 32 bytes, and a row's length is a multiple of 16 bytes, as CUDA asks
#pragma once

#include "kernels/sandbox/cuda/source_halves.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

// Where element i of lane `lane` lies, in operands of m16n8k16: 16 rows of `left` by k, k by 8 columns of `right` and
// their sums.
struct Cell {
    unsigned row, column;
};
template <typename T>
constexpr Cell cell_of_left(unsigned lane, unsigned i) {
    constexpr unsigned kInRegister = 4 / sizeof(T);
    const unsigned reg = i / kInRegister, at = i % kInRegister, t = lane % 4;
    return {lane / 4 + 8 * (reg % 2), kInRegister * t + at + 8 * (reg / 2)};
}
template <typename T>
constexpr Cell cell_of_right(unsigned lane, unsigned i) {
    constexpr unsigned kInRegister = 4 / sizeof(T);
    return {kInRegister * (lane % 4) + i % kInRegister + 8 * (i / kInRegister), lane / 4};
}
constexpr Cell cell_of_sum(unsigned lane, unsigned i) { return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2}; }
constexpr Cell transposed(Cell cell) { return {cell.column, cell.row}; }

// M rows and N columns are tiles of 16 by 8; 8 x 32 is the product of the transposed matrices.
template <int M, int N, int K>
struct Shape {
    static_assert(K == 16 && ((M == 16 && N == 16) || (M == 32 && N == 8) || (M == 8 && N == 32)),
                  "a shape that wmma does not have, or that is not taken");
    static constexpr bool kIsTransposed = M == 8;
    static constexpr unsigned kTall = (kIsTransposed ? N : M) / 16, kWide = (kIsTransposed ? M : N) / 8;
};

template <typename Use, int M, int N, int K, typename T, typename Layout = void>
struct fragment {
    using Tiles = Shape<M, N, K>;
    static constexpr bool kIsLeft = std::is_same_v<Use, std::conditional_t<Tiles::kIsTransposed, matrix_b, matrix_a>>;
    static constexpr bool kIsSum = std::is_same_v<Use, accumulator>;
    static constexpr unsigned kInTile = kIsSum ? 4 : kIsLeft ? 8 : 4;
    static constexpr int num_elements = static_cast<int>(kInTile * (kIsSum    ? Tiles::kTall * Tiles::kWide
                                                                    : kIsLeft ? Tiles::kTall
                                                                              : Tiles::kWide));
    using element_type = T;
    T x[num_elements];

    // Of element i of the calling lane, in the matrix as the kernel has it.
    [[nodiscard]] static Cell cell(unsigned i) {
        const auto lane = static_cast<unsigned>(verbatim::cuda_source::lane());
        const unsigned tile = i / kInTile, at = i % kInTile;
        Cell here{};
        if constexpr (kIsSum) {
            here = cell_of_sum(lane, at);
            here.row += 16 * (tile / Tiles::kWide);
            here.column += 8 * (tile % Tiles::kWide);
        } else if constexpr (kIsLeft) {
            here = cell_of_left<T>(lane, at);
            here.row += 16 * tile;
        } else {
            here = cell_of_right<T>(lane, at);
            here.column += 8 * tile;
        }
        return Tiles::kIsTransposed ? transposed(here) : here;
    }
};

template <typename Use, int M, int N, int K, typename T, typename Layout>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& to, std::type_identity_t<T> value) {
    for (T& element : to.x) element = value;
}

// All lanes of the warp come here.
inline void meet(const void* matrix, size_t row_bytes, std::source_location where) {
    (void)verbatim::cuda_source::vote(0xFFFFFFFFU, true, where);
    verbatim::cuda_source::look_at_matrix(matrix, row_bytes);
}
constexpr size_t place_of(Cell cell, unsigned length, bool by_rows) {
    return by_rows ? size_t{cell.row} * length + cell.column : size_t{cell.column} * length + cell.row;
}
template <typename Use, int M, int N, int K, typename T, typename Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& to, const T* from, unsigned length, VERBATIM_WHERE) {
    static_assert(!std::is_void_v<Layout>, "a fragment of sums is loaded with a layout");
    meet(from, length * sizeof(T), where);
    constexpr bool kByRows = std::is_same_v<Layout, row_major>;
    for (unsigned i = 0; i < to.num_elements; ++i) to.x[i] = from[place_of(to.cell(i), length, kByRows)];
}
template <int M, int N, int K, typename T>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& to, const T* from, unsigned length, layout_t layout,
                      VERBATIM_WHERE) {
    meet(from, length * sizeof(T), where);
    for (unsigned i = 0; i < to.num_elements; ++i)
        to.x[i] = from[place_of(to.cell(i), length, layout == mem_row_major)];
}
template <int M, int N, int K, typename T>
void store_matrix_sync(T* to, const fragment<accumulator, M, N, K, T>& from, unsigned length, layout_t layout,
                       VERBATIM_WHERE) {
    meet(to, length * sizeof(T), where);
    for (unsigned i = 0; i < from.num_elements; ++i)
        to[place_of(from.cell(i), length, layout == mem_row_major)] = from.x[i];
}

// Register r of a tile's elements.
template <typename T>
VERBATIM_UNCHECKED uint32_t register_of(const T* elements, unsigned r) {
    uint32_t bits = 0;
    __builtin_memcpy(&bits, elements + r * (4 / sizeof(T)), 4);
    return bits;
}
// One tile: 16 x 8 sums of 16 products, added to `sums`.
template <typename T>
void multiply_tile(float (&sums)[4], const T* left, const T* right, std::source_location where) {
    using namespace verbatim::cuda_source;
    static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>, "sums in float are of half or bf16");
    inline_ptx(where,
               std::is_same_v<T, __half> ? "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                                           "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                         : "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                                           "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};",
               ptx_both<'f'>(sums[0]), ptx_both<'f'>(sums[1]), ptx_both<'f'>(sums[2]), ptx_both<'f'>(sums[3]),
               ptx_in<'r'>(register_of(left, 0)), ptx_in<'r'>(register_of(left, 1)), ptx_in<'r'>(register_of(left, 2)),
               ptx_in<'r'>(register_of(left, 3)), ptx_in<'r'>(register_of(right, 0)),
               ptx_in<'r'>(register_of(right, 1)));
}
template <typename T>
void multiply_tile(int (&sums)[4], const T* left, const T* right, std::source_location where) {
    using namespace verbatim::cuda_source;
    static_assert(std::is_integral_v<T> && sizeof(T) == 1, "sums in int are of 8-bit integers");
    inline_ptx(where,
               std::is_signed_v<T> ? "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, "
                                     "{%6}, {%0, %1, %2, %3};"
                                   : "mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5}, "
                                     "{%6}, {%0, %1, %2, %3};",
               ptx_both<'r'>(sums[0]), ptx_both<'r'>(sums[1]), ptx_both<'r'>(sums[2]), ptx_both<'r'>(sums[3]),
               ptx_in<'r'>(register_of(left, 0)), ptx_in<'r'>(register_of(left, 1)),
               ptx_in<'r'>(register_of(right, 0)));
}
template <int M, int N, int K, typename Sum, typename T, typename OfA, typename OfB>
VERBATIM_UNCHECKED void mma_sync(fragment<accumulator, M, N, K, Sum>& to, const fragment<matrix_a, M, N, K, T, OfA>& a,
                                 const fragment<matrix_b, M, N, K, T, OfB>& b,
                                 const fragment<accumulator, M, N, K, Sum>& before, VERBATIM_WHERE) {
    using Tiles = Shape<M, N, K>;
    using Wide = std::conditional_t<std::is_integral_v<Sum>, int, float>;
    const T* const left = Tiles::kIsTransposed ? b.x : a.x;
    const T* const right = Tiles::kIsTransposed ? a.x : b.x;
    for (unsigned tile = 0; tile < Tiles::kTall * Tiles::kWide; ++tile) {
        Wide sums[4];
        for (unsigned i = 0; i < 4; ++i) sums[i] = static_cast<Wide>(before.x[4 * tile + i]);
        multiply_tile(sums, left + 8 * (tile / Tiles::kWide), right + 4 * (tile % Tiles::kWide), where);
        for (unsigned i = 0; i < 4; ++i) to.x[4 * tile + i] = static_cast<Sum>(sums[i]);
    }
}

}  // namespace nvcuda::wmma
