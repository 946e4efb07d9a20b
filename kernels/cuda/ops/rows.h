// kernels/cuda/ops/rows.h: operations of one element each: embedding, scaling, activations, the residual stream, rounding.
#pragma once

#include "kernels/cuda/ops/planted.h"
#include "kernels/cuda/simt/simt.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// Rows of a view: element i of row r at r · stride + i.
template <typename T>
struct KernelRows {
    simt::Global<T> data;
    int64_t num_rows;
    int64_t width;
    int64_t stride;
    SIMT_FUNCTION int64_t at(int64_t row, int64_t i) const { return row * stride + i; }
};

// Blocks of kRowThreads along a row, one row of blocks per row.
inline constexpr int kRowThreads = 64;
SIMT_FUNCTION int64_t element_of_row() { return int64_t{simt::block_y()} * simt::threads_x() + simt::thread_x(); }

// reference/ops/embedding.h
struct Embed {
    simt::Global<const int32_t> tokens;
    simt::Global<const uint16_t> table;
    float multiplier;
    KernelRows<float> out;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= out.width) return;
        const int64_t token = tokens[SIMT_BUG(kPaddingRead) ? row + 1 : row];
        out.data[out.at(row, i)] = reference::bf16_to_float(table[token * out.width + i]) * multiplier;
    }
};

// reference/ops/elementwise.h
struct Scale {
    KernelRows<float> x;
    float multiplier;
    SIMT_FUNCTION void operator()() const {
        const int64_t i = element_of_row();
        if (i >= x.width) return;
        const int64_t at = x.at(simt::block_x(), i);
        x.data[at] = x.data[at] * multiplier;
    }
};

struct AddBranch {
    KernelRows<const float> branch;
    float branch_multiplier;
    float residual_multiplier;
    KernelRows<float> residual;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= residual.width) return;
        const int64_t at = residual.at(row, i);
        const float scaled = branch.data[branch.at(row, i)] * branch_multiplier;
        residual.data[at] = reference::fma_f32(scaled, residual_multiplier, residual.data[at]);
    }
};

struct Swiglu {
    KernelRows<const float> gate;
    float gate_multiplier;
    KernelRows<float> up;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= up.width) return;
        const int64_t at = up.at(row, i);
        up.data[at] = up.data[at] * reference::silu_f32(gate.data[gate.at(row, i)] * gate_multiplier);
    }
};

struct ReluSquared {
    KernelRows<float> up;
    SIMT_FUNCTION void operator()() const {
        const int64_t i = element_of_row();
        if (i >= up.width) return;
        const int64_t at = up.at(simt::block_x(), i);
        const float rectified = reference::max_f32(up.data[at], 0.0F);
        up.data[at] = rectified * rectified;
    }
};

struct ScaleLogits {
    KernelRows<float> logits;
    float multiplier;
    float divisor;
    SIMT_FUNCTION void operator()() const {
        const int64_t i = element_of_row();
        if (i >= logits.width) return;
        const int64_t at = logits.at(simt::block_x(), i);
        logits.data[at] = (logits.data[at] * multiplier) / divisor;
    }
};

// bf16(x · multiplier) as pairs, padded with +0 (NUMERICS N2, N3).
struct RoundRows {
    KernelRows<const float> x;
    float multiplier;
    int64_t row_pairs;             // at least ceil(width/2)
    simt::Global<uint32_t> pairs;  // [num_rows, row_pairs]
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t pair = element_of_row();
        if (pair >= row_pairs) return;
        pairs[row * row_pairs + pair] = rounded(row, 2 * pair) | rounded(row, 2 * pair + 1) << 16;
    }
    SIMT_FUNCTION uint32_t rounded(int64_t row, int64_t i) const {
        return i < x.width ? reference::round_to_bf16(x.data[x.at(row, i)] * multiplier) : 0U;
    }
};

// N8: marks a row's sequence when the row holds a NaN or an infinity.
struct CheckLogits {
    KernelRows<const float> logits;
    simt::Global<const int32_t> logit_rows;
    simt::Global<const int32_t> row_sequences;
    int32_t num_layers;
    simt::Global<int32_t> faults;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= logits.width || reference::is_finite(logits.data[logits.at(row, i)])) return;
        simt::atomic_min(faults, row_sequences[logit_rows[row]], num_layers);
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
