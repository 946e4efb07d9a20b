// kernels/cuda/ops/matvec_parts.h: owns the operations that are fused with matmuls of a few rows: before, a norm of the
// inputs; after, the ordered sum of the chunks, and an activation or the residual add. The bits are those of the
// separate operations (NUMERICS N3, N4 and the contracts of reference/ops/).
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/norms.h"
#include "kernels/cuda/ops/rows.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kMatvecNormAhead = 8;  // elements of a norm that a thread loads at once

struct MatvecMatrix {
    simt::Global<const uint32_t> weight;  // in the layout that the kernel reads
    simt::Global<const float> bias;       // used when has_bias
    bool has_bias;
    KernelRows<float> out;  // written for kWrite; its width is always set
    int32_t num_blocks;     // 0: no matrix
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
    simt::Global<const uint32_t> pairs;  // [num_rows, row_pairs], for a kernel without a norm
    MatvecNorm norm;
    MatvecMatrix first, second, third;
    MatvecEnd end;
    float branch_multiplier;
    float residual_multiplier;
    KernelRows<float> residual;
    float gate_multiplier;
    KernelPairs left;
};

// One group of a row, as the norm's sum reads it.
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

struct MatvecParts : MatvecParameters {
    SIMT_FUNCTION static int this_thread() { return simt::thread_y() * simt::threads_x() + simt::thread_x(); }
    SIMT_FUNCTION static int num_threads() { return simt::threads_y() * simt::threads_x(); }

    // The CTAs of the second matrix follow those of the first, and so on.
    SIMT_FUNCTION int block_matrix() const {
        if (simt::block_x() < first.num_blocks) return 0;
        return simt::block_x() < first.num_blocks + second.num_blocks ? 1 : 2;
    }
    SIMT_FUNCTION int block_of_matrix() const {
        const int matrix = block_matrix();
        return simt::block_x() - (matrix > 0 ? first.num_blocks : 0) - (matrix > 1 ? second.num_blocks : 0);
    }
    // For single pointers: when a whole struct is selected, the compiler loses track of the address space.
    template <typename T>
    SIMT_FUNCTION static T one_of(int which, const T& zeroth, const T& one, const T& two) {
        return which == 0 ? zeroth : which == 1 ? one : two;
    }

    // Adds the sums of `count` chunks, [count][num_sums], in order to `totals`.
    SIMT_FUNCTION static void add_in_order(const simt::Shared<float>& sums, int count, int num_sums, bool is_first,
                                           const simt::Shared<float>& totals) {
        for (int i = this_thread(); i < num_sums; i += num_threads()) {
            float total = 0.0F;
            if (!is_first) total = totals[i];
            for (int c = 0; c < count; ++c) {
                total = total + sums[c * num_sums + i];
            }
            totals[i] = total;
        }
    }

    // --- before the product: the inputs

    // Writes row r of the normed inputs from inputs[r * stride] on.
    SIMT_FUNCTION void take_norm(const simt::Shared<float>& tile, const simt::Shared<float>& partials,
                                 const simt::Shared<uint32_t>& inputs, int64_t stride) const {
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
                    inputs[row * stride + pair] = bf16_pair(two);
                }
                simt::sync_block();
            }
        }
    }
    // N4's sum of the squares in the tile, for any number of threads.
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

    // --- after the product

    // totals: [num_rows][outputs of the CTA]; with kSwiglu the gates', followed by as many of up.
    SIMT_FUNCTION void finish(const simt::Shared<float>& totals, int outputs) const {
        switch (end) {
            case MatvecEnd::kWrite:
            case MatvecEnd::kAddBranch: return write(totals, outputs);
            case MatvecEnd::kSwiglu:
            case MatvecEnd::kReluSquared: return leave_pairs(totals, outputs);
        }
    }
    SIMT_FUNCTION void write(const simt::Shared<float>& totals, int outputs) const {
        switch (block_matrix()) {
            case 0: return write(first, totals, outputs);
            case 1: return write(second, totals, outputs);
            default: return write(third, totals, outputs);
        }
    }
    SIMT_FUNCTION void write(const MatvecMatrix& matrix, const simt::Shared<float>& totals, int outputs) const {
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
    SIMT_FUNCTION void leave_pairs(const simt::Shared<float>& totals, int outputs) const {
        const int block_outputs = end == MatvecEnd::kSwiglu ? outputs / 2 : outputs;  // in the gates' half
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

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
