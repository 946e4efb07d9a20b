// kernels/cuda/ops/block_matmul.h: owns the kernels over quantised weights (kernels/cuda/block_layout.h): the embedding
// lookup, and the matmuls of ops/matvec.h and ops/matmul_items.h, which dequantise a span's weights in registers when
// they multiply them. A weight is the value of reference/model/quantised_blocks.h and scaled_blocks.h; sums are N3's.
#pragma once

#include "kernels/cuda/ops/experts.h"
#include "kernels/cuda/ops/matmul_items.h"
#include "kernels/cuda/ops/matvec.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// A matmul, or, where `has_parts`, that of a mixture's part block_z (ops/experts.h).
template <typename Multiply>
struct OfMatrixOrExperts {
    Multiply all;  // of a mixture: all entries; consecutive weights of all experts
    simt::Global<const DeviceExpertPart> parts;
    int64_t matrix_words;
    bool has_parts;
    SIMT_FUNCTION void operator()() const {
        Multiply own = all;
        if (has_parts) {
            const DeviceExpertPart part = parts[simt::block_z()];
            if (part.num_entries == 0) return;
            take_part(own, part, matrix_words);
        }
        own();
    }
    static constexpr int kThreads = Multiply::kThreads;
    static constexpr int kResidentBlocks = Multiply::kResidentBlocks;
};

// A matvec of kRows rows; the grid's y counts such groups of rows.
template <typename Matvec, int kRows>
struct GroupsOfRows : Matvec {
    SIMT_FUNCTION void operator()() const {
        const int64_t first = int64_t{simt::block_y()} * kRows;
        if (first >= this->num_rows) return;
        Matvec own = *this;
        own.pairs = own.pairs.from(first * own.row_pairs);
        own.first.out.data = own.first.out.data.from(first * own.first.out.stride);
        own.num_rows -= static_cast<int32_t>(first);
        if (own.num_rows > kRows) own.num_rows = kRows;
        own();
    }
};

// Halves of a unit that a matvec loads at once. A whole unit leaves no registers in formats of bytes.
template <typename Format, int kRows>
inline constexpr int kMatvecHalves = kRows == 1 && layout_of(Format::kFormat).low_bits < 8 ? 2 : 1;

// Up to kRows rows.
template <typename Format, int kRows>
struct BlockMatvec : OfMatrixOrExperts<MatvecOf<kRows, false, BlockSpan<Format, kMatvecHalves<Format, kRows>>>> {};

// Any number of rows, in groups of up to kRows.
template <typename Format, int kRows>
struct BlockMatvecs
    : OfMatrixOrExperts<GroupsOfRows<MatvecOf<kRows, false, BlockSpan<Format, kMatvecHalves<Format, kRows>>>, kRows>> {
};

// Multiply: MatmulOfItems. One CTA per SM: with the registers of two, sums would lie in local memory.
template <typename Multiply>
struct ItemsOfMatrixOrExperts : OfMatrixOrExperts<Multiply> {
    static constexpr int kResidentBlocks = 1;
    static constexpr int64_t kChunkPairs = Multiply::kChunkPairs;
    static constexpr int kWarps = Multiply::kWarps;
    static constexpr int kBlockRows = Multiply::kBlockRows;
    static constexpr int kSums = Multiply::kSums;
    static constexpr int kSharedBytes = Multiply::kSharedBytes;
    [[nodiscard]] int64_t shared_bytes() const { return this->all.shared_bytes(); }
};

// Tiles of 64 outputs by kRows rows.
template <typename Format, int kRows>
struct BlockMatmul : ItemsOfMatrixOrExperts<MatmulOfItems<2, kRows / 2, 4, BlockSpan<Format, 1>>> {};

// reference/ops/quantised.h's embedding: one thread per element.
template <typename Format>
struct EmbedBlocks {
    using Span = BlockSpan<Format, 1>;
    simt::Global<const int32_t> tokens;
    simt::Global<const uint32_t> table;
    float multiplier;
    KernelRows<float> out;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= out.width) return;
        const int64_t token = tokens[row];
        const int64_t first_row = token / kPanel * Span::panel_rows(out.width / 2);
        const auto word = [&](int64_t r) -> uint32_t { return table[(first_row + r) * kPanel + token % kPanel]; };
        out.data[out.at(row, i)] = Span::weight_at(i, word) * multiplier;
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
