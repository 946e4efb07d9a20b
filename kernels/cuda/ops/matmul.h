// kernels/cuda/ops/matmul.h: N3's dot products: a thread owns outputs and adds a chunk's pairs in order, one accumulator per output
// and chunk; chunk sums are added in order. Weights come as in DeviceMatrix, 64 outputs side by side.
#pragma once

#include "kernels/cuda/ops/rows.h"
#include "reference/numerics/constants.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kPanel = 64;  // outputs side by side
inline constexpr int kChunkPairs = static_cast<int>(reference::kDotChunk / 2);
inline constexpr int kTileRows = 16;   // of a block of Matmul
inline constexpr int kTileGroups = 4;  // threads_y
inline constexpr int kRowsPerThread = kTileRows / kTileGroups;
inline constexpr int kMatvecRows = 4;           // at most, of Matvec
inline constexpr int kMatvecGroups = 8;         // threads_y
inline constexpr int kPanelQuads = kPanel / 4;  // threads_x
static_assert(kPanelQuads * kMatvecGroups == 2 * kPanel, "two rows are added up at a time");

SIMT_FUNCTION float even_half(uint32_t pair) { return reference::float_from_bits(pair << 16); }
SIMT_FUNCTION float odd_half(uint32_t pair) { return reference::float_from_bits(pair & 0xFFFF0000U); }

// One pair of N3: the odd product first.
SIMT_FUNCTION float add_pair(uint32_t a, uint32_t b, float acc) {
    acc = reference::fma_f32(odd_half(a), odd_half(b), acc);
    return reference::fma_f32(even_half(a), even_half(b), acc);
}

struct MatmulParameters {
    simt::Global<const uint32_t> x;       // [num_rows, num_pairs]
    simt::Global<const uint32_t> weight;  // [panels, num_pairs, 64]
    simt::Global<const float> bias;       // used when has_bias
    bool has_bias;
    int64_t num_pairs;
    KernelRows<float> out;
    SIMT_FUNCTION void write(int64_t row, int64_t output, float total) const {
        if (row < out.num_rows && output < out.width) {
            out.data[out.at(row, output)] = has_bias ? total + bias[output] : total;
        }
    }
};

// 16 rows by 64 outputs per block of (64, 4) threads; a thread computes one output of 4 rows. The rows' inputs of a chunk are
// staged in shared memory while the chunk before is computed.
struct Matmul : MatmulParameters {
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(uint32_t, tiles, 2 * kTileRows * kChunkPairs);
        const int64_t panel = simt::block_x();
        const int64_t first_row = int64_t{simt::block_y()} * kTileRows;
        const int lane = simt::thread_x();
        float total[kRowsPerThread] = {};
        stage(tiles.slice(0, kTileRows * kChunkPairs), first_row, 0);
        int parity = 0;
        for (int64_t first = 0; first < num_pairs; first += kChunkPairs, parity ^= 1) {
            const simt::Shared<uint32_t> tile = tiles.slice(parity * kTileRows * kChunkPairs, kTileRows * kChunkPairs);
            const simt::Shared<uint32_t> next =
                tiles.slice((parity ^ 1) * kTileRows * kChunkPairs, kTileRows * kChunkPairs);
            if (!SIMT_BUG(kAsyncNotAwaited)) simt::wait_async<0>();
            simt::sync_block();
            if (first + kChunkPairs < num_pairs) stage(next, first_row, first + kChunkPairs);
            const auto count =
                static_cast<int>(num_pairs - first < kChunkPairs ? num_pairs - first : int64_t{kChunkPairs});
            float acc[kRowsPerThread] = {};
            for (int j = 0; j < count; ++j) {
                const uint32_t w = weight[(panel * num_pairs + first + j) * kPanel + lane];
                for (int r = 0; r < kRowsPerThread; ++r) {
                    acc[r] = add_pair(tile[(simt::thread_y() * kRowsPerThread + r) * kChunkPairs + j], w, acc[r]);
                }
            }
            for (int r = 0; r < kRowsPerThread; ++r) total[r] = total[r] + acc[r];
            simt::sync_block();
        }
        for (int r = 0; r < kRowsPerThread; ++r) {
            write(first_row + simt::thread_y() * kRowsPerThread + r, panel * kPanel + lane, total[r]);
        }
    }

    // Inputs [first, first + 128) of the block's rows; rows and pairs that do not exist are zero.
    SIMT_FUNCTION void stage(const simt::Shared<uint32_t>& tile, int64_t first_row, int64_t first) const {
        const int thread = simt::thread_y() * kPanel + simt::thread_x();
        constexpr int kRows = kTileRows;
        const int num = (kRows + (SIMT_BUG(kTileOffByOne) ? 1 : 0)) * kChunkPairs;
        for (int i = thread; i < num; i += kPanel * kTileGroups) {
            const int64_t row = first_row + i / kChunkPairs;
            const int64_t pair = first + i % kChunkPairs;
            if (row < out.num_rows && pair < num_pairs) {
                simt::copy_async(tile, i, x, row * num_pairs + pair, 1);
            } else {
                tile[i] = 0;
            }
        }
        simt::commit_async();
    }
};

// Few rows: the chunks of an output are computed by 8 groups of threads side by side and added in order; a thread loads the
// weights of 4 outputs at once. One block of (16, 8) threads per panel.
struct Matvec : MatmulParameters {
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, sums, kMatvecGroups* kMatvecRows* kPanel);
        const int thread = simt::thread_y() * kPanelQuads + simt::thread_x();
        const int output = thread % kPanel;  // that it adds up and writes, of rows thread / 64, + 2, ...
        float total[kMatvecRows / 2] = {};
        for (int64_t first = 0; first < num_pairs; first += kMatvecGroups * kChunkPairs) {
            add_chunk(first + simt::thread_y() * kChunkPairs, sums);
            simt::sync_block();
            for (int g = 0; g < kMatvecGroups && first + g * kChunkPairs < num_pairs; ++g) {
                for (int i = 0; i < kMatvecRows / 2; ++i) {
                    const int row = thread / kPanel + 2 * i;
                    total[i] = total[i] + sums[(g * kMatvecRows + row) * kPanel + output];
                }
            }
            simt::sync_block();
        }
        for (int i = 0; i < kMatvecRows / 2; ++i) {
            write(thread / kPanel + 2 * i, int64_t{simt::block_x()} * kPanel + output, total[i]);
        }
    }

    // This thread's 4 outputs over the chunk that begins at pair `begin`, every row.
    SIMT_FUNCTION void add_chunk(int64_t begin, const simt::Shared<float>& sums) const {
        const int64_t end = begin + kChunkPairs < num_pairs ? begin + kChunkPairs : num_pairs;
        const int64_t panel_pairs = int64_t{simt::block_x()} * num_pairs;
        float acc[kMatvecRows][4] = {};
        for (int64_t j = begin; j < end; ++j) {
            const int64_t place = (panel_pairs + j) * kPanel + 4 * simt::thread_x();
            const simt::Four<uint32_t> w = simt::load4(weight, SIMT_BUG(kUnalignedLoad) ? place + 1 : place);
            for (int r = 0; r < kMatvecRows; ++r) {
                if (r >= out.num_rows) continue;
                const uint32_t input = x[r * num_pairs + j];
                for (int i = 0; i < 4; ++i) acc[r][i] = add_pair(input, w.values[i], acc[r][i]);
            }
        }
        for (int r = 0; r < kMatvecRows; ++r) {
            for (int i = 0; i < 4; ++i) {
                sums[(simt::thread_y() * kMatvecRows + r) * kPanel + 4 * simt::thread_x() + i] = acc[r][i];
            }
        }
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
