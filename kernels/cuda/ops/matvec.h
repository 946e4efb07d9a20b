// kernels/cuda/ops/matvec.h: matmuls of a few rows, which wait for weights and nothing else, with what comes before and
// behind them: a norm of their inputs, an activation or the residual stream. The bits are those of the operations one
// after another (NUMERICS N3, N4 and the contracts of reference/ops/).
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/norms.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kMatvecThreads = 128;
inline constexpr int kMatvecNormAhead = 8;  // elements of a norm that a thread asks for at once

struct MatvecMatrix {
    simt::Global<const uint32_t> weight;  // [panels, num_pairs, 64]
    simt::Global<const float> bias;       // used when has_bias
    bool has_bias;
    KernelRows<float> out;  // of kWrite; its width is known always
    int32_t num_blocks;     // 0: there is none
    SIMT_FUNCTION float output(int64_t i, float total) const { return has_bias ? total + bias[i] : total; }
};

// rms_norm of x, or gated_norm.
struct MatvecNorm {
    bool norms;
    bool gates;
    bool gate_first;
    int64_t group_width;
    KernelRows<const float> x;
    KernelRows<const float> z;
    simt::Global<const float> weight;
    float eps;
};

struct MatvecParameters {
    int32_t num_rows;
    int64_t num_pairs;
    int64_t row_pairs;
    simt::Global<const uint32_t> pairs;  // [num_rows, row_pairs], of a kernel without a norm
    MatvecNorm norm;
    MatvecMatrix first, second, third;
    MatvecEnd end;
    float branch_multiplier;
    float residual_multiplier;
    KernelRows<float> residual;
    float gate_multiplier;
    KernelPairs left;
};

// A group of a row as its sum takes it.
struct MatvecGroup {
    MatvecNorm of;
    int64_t row;
    int64_t first;
    struct Loaded {
        float plain;
        float gate;
    };
    SIMT_FUNCTION float gate(int64_t i) const { return of.z.data[of.z.at(row, first + i)]; }
    SIMT_FUNCTION Loaded load(int64_t i) const {
        return {of.x.data[of.x.at(row, first + i)], of.gates && of.gate_first ? gate(i) : 0.0F};
    }
    SIMT_FUNCTION float value(Loaded loaded) const {
        return of.gates && of.gate_first ? loaded.plain * reference::silu_f32(loaded.gate) : loaded.plain;
    }
    SIMT_FUNCTION float result(int64_t i, float kept, float scale) const {
        float result = of.norms ? (kept * scale) * of.weight[first + i] : kept;
        if (of.gates && !of.gate_first) result = result * reference::silu_f32(gate(i));
        return result;
    }
};

// A thread computes 4 outputs over one chunk, and has the weights of kAhead pairs under way at once. Blocks of (quads
// of outputs, chunks), kMatvecThreads at most; the chunks' sums are added in order. With a norm every block computes
// the inputs for itself, while its first weights are on their way.
template <int kRows, bool kNormed>
struct MatvecOf : MatvecParameters {
    static constexpr int kAhead = kRows == 1 ? 16 : 8;
    static constexpr int kThreads = kMatvecThreads;
    static constexpr int kResidentBlocks =
        kRows == 4 ? 2 : 3;  // so that the compiler asks for all of them before it uses the first
    static constexpr int kInputWords = kRows * static_cast<int>(kMatvecNormWidth / 2);
    static constexpr int kSharedBytes = kNormed ? kInputWords * 4 : 0;
    using Sums = float[kRows][4];
    struct Weights {
        simt::Four<uint32_t> of_pair[kAhead];
    };
    struct Lane {
        simt::Global<const uint32_t> weight;
        int64_t quad;
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, sums, kMatvecThreads* kRows * 4);
        SIMT_SHARED(float, totals, kMatvecThreads* kRows * 4);  // [kRows][outputs]
        const Lane lane = this_lane();
        const Weights weights = fetch(lane, int64_t{simt::thread_y()} * kChunkPairs);
        if constexpr (kNormed) {
            SIMT_LARGE_SHARED(uint32_t, inputs, kInputWords);
            SIMT_SHARED(float, tile, kMatvecNormWidth);
            SIMT_SHARED(float, partials, kPartials);
            take_norm(tile, partials, inputs);
            add_chunks(lane, weights, inputs, sums, totals);
        } else {
            add_chunks(lane, weights, pairs, sums, totals);
        }
        finish(totals);
    }

    SIMT_FUNCTION static int this_thread() { return simt::thread_y() * simt::threads_x() + simt::thread_x(); }
    SIMT_FUNCTION static int num_threads() { return simt::threads_y() * simt::threads_x(); }

    // Blocks of one matrix follow those of another.
    SIMT_FUNCTION int block_matrix() const {
        if (simt::block_x() < first.num_blocks) return 0;
        return simt::block_x() < first.num_blocks + second.num_blocks ? 1 : 2;
    }
    SIMT_FUNCTION int block_of_matrix() const {
        const int matrix = block_matrix();
        return simt::block_x() - (matrix > 0 ? first.num_blocks : 0) - (matrix > 1 ? second.num_blocks : 0);
    }
    // Of pointers, one by one: of a struct that is chosen as a whole the compiler forgets where they point to.
    template <typename T>
    SIMT_FUNCTION static T one_of(int which, const T& zeroth, const T& one, const T& two) {
        return which == 0 ? zeroth : which == 1 ? one : two;
    }
    SIMT_FUNCTION Lane this_lane() const {
        if (end != MatvecEnd::kSwiglu) {
            return {one_of(block_matrix(), first.weight, second.weight, third.weight),
                    int64_t{block_of_matrix()} * simt::threads_x() + simt::thread_x()};
        }
        const int quads = simt::threads_x() / 2;
        return {one_of(simt::thread_x() / quads, first.weight, second.weight, third.weight),
                int64_t{simt::block_x()} * quads + simt::thread_x() % quads};
    }

    // Of kAhead pairs of a chunk; what does not exist is +0.
    SIMT_FUNCTION Weights fetch(const Lane& lane, int64_t first_pair) const {
        Weights weights = {};
        const int64_t place = (lane.quad / kPanelQuads * num_pairs + first_pair) * kPanel + lane.quad % kPanelQuads * 4;
        SIMT_UNROLL
        for (int i = 0; i < kAhead; ++i) {
            if (first_pair + i < num_pairs) weights.of_pair[i] = simt::load4(lane.weight, place + i * kPanel);
        }
        return weights;
    }

    // The sums of every chunk, added in order.
    template <typename Inputs>
    SIMT_FUNCTION void add_chunks(const Lane& lane, Weights weights, const Inputs& inputs,
                                  const simt::Shared<float>& sums, const simt::Shared<float>& totals) const {
        const int num_sums = simt::threads_x() * 4 * kRows;  // of a chunk
        const int64_t groups = simt::threads_y();
        for (int64_t turn = 0; turn < num_pairs; turn += groups * kChunkPairs) {
            leave_chunk(lane, turn + int64_t{simt::thread_y()} * kChunkPairs, weights, inputs, sums);
            simt::sync_block();
            for (int i = this_thread(); i < num_sums; i += num_threads()) {
                float total = 0.0F;
                if (turn > 0) total = totals[i];
                for (int g = 0; g < groups && turn + g * kChunkPairs < num_pairs; ++g) {
                    total = total + sums[g * num_sums + i];
                }
                totals[i] = total;
            }
            simt::sync_block();
        }
    }
    // Those of the chunk that begins at pair `begin`, if there is one: [chunks][kRows][outputs]. `weights` are its
    // first, and then those of the thread's next chunk.
    template <typename Inputs>
    SIMT_FUNCTION void leave_chunk(const Lane& lane, int64_t begin, Weights& weights, const Inputs& inputs,
                                   const simt::Shared<float>& sums) const {
        if (begin >= num_pairs) return;
        const int64_t end_pair = begin + kChunkPairs < num_pairs ? begin + kChunkPairs : num_pairs;
        Sums acc = {};
        for (int64_t pair = begin; pair < end_pair; pair += kAhead) {
            add_pairs(weights, inputs, pair, acc);
            const int64_t next = pair + kAhead;
            weights = fetch(lane, next < end_pair ? next : begin + int64_t{simt::threads_y()} * kChunkPairs);
        }
        SIMT_UNROLL
        for (int r = 0; r < kRows; ++r) {
            const int row = simt::thread_y() * kRows + r;
            simt::store4(sums, (row * simt::threads_x() + simt::thread_x()) * 4,
                         {{acc[r][0], acc[r][1], acc[r][2], acc[r][3]}});
        }
    }
    template <typename Inputs>
    SIMT_FUNCTION void add_pairs(const Weights& weights, const Inputs& inputs, int64_t first_pair, Sums& acc) const {
        simt::Four<uint32_t> x[kRows][kAhead / 4] = {};
        SIMT_UNROLL
        for (int r = 0; r < kRows; ++r) {
            SIMT_UNROLL
            for (int i = 0; i < kAhead / 4; ++i) {
                if (r >= num_rows || first_pair + 4 * i >= row_pairs) continue;
                x[r][i] = simt::load4(inputs, r * row_pairs + first_pair + 4 * i);
            }
        }
        SIMT_UNROLL
        for (int i = 0; i < kAhead; ++i) {
            SIMT_UNROLL
            for (int r = 0; r < kRows; ++r) {
                SIMT_UNROLL
                for (int k = 0; k < 4; ++k) {
                    acc[r][k] = add_pair(x[r][i / 4].values[i % 4], weights.of_pair[i].values[k], acc[r][k]);
                }
            }
        }
    }

    // --- before: the inputs

    SIMT_FUNCTION void take_norm(const simt::Shared<float>& tile, const simt::Shared<float>& partials,
                                 const simt::Shared<uint32_t>& inputs) const {
        const auto width = static_cast<int>(norm.group_width);
        for (int64_t row = 0; row < num_rows; ++row) {
            for (int64_t begin = 0; begin < norm.x.width; begin += width) {
                const MatvecGroup group{norm, row, begin};
                bring<kMatvecNormAhead>(group, 0, width, tile, this_thread(), num_threads());
                simt::sync_block();
                const float scale = norm.norms ? scale_of(tile, partials) : 1.0F;
                const int64_t end_pair = begin + width < norm.x.width ? (begin + width) / 2 : row_pairs;
                for (int64_t pair = begin / 2 + this_thread(); pair < end_pair; pair += num_threads()) {
                    float two[2] = {};
                    SIMT_UNROLL
                    for (int h = 0; h < 2; ++h) {
                        const auto i = static_cast<int>(2 * pair + h - begin);
                        if (i < width) two[h] = group.result(i, tile[i], scale);
                    }
                    inputs[row * row_pairs + pair] = bf16_pair(two);
                }
                simt::sync_block();
            }
        }
    }
    // By however many threads: N4's sum of the squares in the tile.
    SIMT_FUNCTION float scale_of(const simt::Shared<float>& tile, const simt::Shared<float>& partials) const {
        const auto width = static_cast<int>(norm.group_width);
        for (int j = this_thread(); j < kPartials; j += num_threads()) {
            float partial = 0.0F;
            for (int i = j; i < width; i += kPartials) {
                const float x = tile[i];
                partial = reference::fma_f32(x, x, partial);
            }
            partials[j] = partial;
        }
        simt::sync_block();
        for (int half = kPartials / 2; half >= 1; half /= 2) {
            for (int j = this_thread(); j < half; j += num_threads()) partials[j] = partials[j] + partials[j + half];
            simt::sync_block();
        }
        const float mean = partials[0] / static_cast<float>(width);
        return 1.0F / reference::sqrt_f32(mean + norm.eps);
    }

    // --- behind: what becomes of the sums

    SIMT_FUNCTION void finish(const simt::Shared<float>& totals) const {
        switch (end) {
            case MatvecEnd::kWrite:
            case MatvecEnd::kAddBranch: return write(totals);
            case MatvecEnd::kSwiglu:
            case MatvecEnd::kReluSquared: return leave_pairs(totals);
        }
    }
    SIMT_FUNCTION void write(const simt::Shared<float>& totals) const {
        switch (block_matrix()) {
            case 0: return write(first, totals);
            case 1: return write(second, totals);
            default: return write(third, totals);
        }
    }
    SIMT_FUNCTION void write(const MatvecMatrix& matrix, const simt::Shared<float>& totals) const {
        const int outputs = simt::threads_x() * 4;
        for (int i = this_thread(); i < outputs * num_rows; i += num_threads()) {
            const int64_t row = i / outputs;
            const int64_t output = int64_t{block_of_matrix()} * outputs + i % outputs;
            if (output >= matrix.out.width) continue;
            const float value = matrix.output(output, totals[i]);
            if (end == MatvecEnd::kWrite) {
                matrix.out.data[matrix.out.at(row, output)] = value;
            } else {
                const int64_t at = residual.at(row, output);
                residual.data[at] =
                    reference::fma_f32(value * branch_multiplier, residual_multiplier, residual.data[at]);
            }
        }
    }
    SIMT_FUNCTION void leave_pairs(const simt::Shared<float>& totals) const {
        const int outputs = simt::threads_x() * 4;
        const int block_outputs = end == MatvecEnd::kSwiglu ? outputs / 2 : outputs;  // behind the gates
        const int block_pairs = block_outputs / 2;
        for (int i = this_thread(); i < block_pairs * num_rows; i += num_threads()) {
            const int row = i / block_pairs;
            const int64_t pair = int64_t{simt::block_x()} * block_pairs + i % block_pairs;
            float two[2] = {};
            SIMT_UNROLL
            for (int h = 0; h < 2; ++h) {
                const int64_t output = 2 * pair + h;
                const int place = row * outputs + i % block_pairs * 2 + h;
                if (output < first.out.width) two[h] = activation(output, totals, place, block_outputs);
            }
            left.leave(row, pair, two);
        }
    }
    SIMT_FUNCTION float activation(int64_t output, const simt::Shared<float>& totals, int place,
                                   int block_outputs) const {
        const float value = first.output(output, totals[place]);
        if (end == MatvecEnd::kSwiglu) {
            const float up = second.output(output, totals[place + block_outputs]);
            return up * reference::silu_f32(value * gate_multiplier);
        }
        const float rectified = reference::max_f32(value, 0.0F);
        return rectified * rectified;
    }
};
struct Matvec1 : MatvecOf<1, false> {};
struct Matvec2 : MatvecOf<2, false> {};
struct Matvec4 : MatvecOf<4, false> {};
struct NormMatvec1 : MatvecOf<1, true> {};
struct NormMatvec2 : MatvecOf<2, true> {};
struct NormMatvec4 : MatvecOf<4, true> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
