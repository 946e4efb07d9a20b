// kernels/cuda/ops/rows.h: owns the element-wise operations: embedding, scaling, activations, residual add, rounding.
#pragma once

#include "kernels/simt/simt.h"
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

SIMT_FUNCTION uint32_t bf16_pair(const float (&two)[2]) {
    return reference::round_to_bf16(two[0]) | static_cast<uint32_t>(reference::round_to_bf16(two[1])) << 16;
}

// Rows as matmuls read them: bf16 pairs padded with +0 (row_pairs_of; NUMERICS N2, N3). An operation whose result is a
// matmul's input also writes this form.
struct KernelPairs {
    simt::Global<uint32_t> data;  // [num_rows, row_pairs]
    int64_t row_pairs;            // 0: not written
    SIMT_FUNCTION void leave(int64_t row, int64_t pair, const float (&two)[2]) const {
        if (pair >= row_pairs) return;
        data[row * row_pairs + pair] = bf16_pair(two);
    }
};

// CTAs of kRowThreads threads along a row; the grid's y is the row.
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
        const int64_t token = tokens[row];
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

// x[i] = value(i) in place for two neighbours of a row, with a rounded copy. One thread per pair.
template <typename Value>
SIMT_FUNCTION void replace_pair(const KernelRows<float>& x, const KernelPairs& pairs, const Value& value) {
    const int64_t row = simt::block_x();
    float two[2] = {};
    SIMT_UNROLL
    for (int h = 0; h < 2; ++h) {
        const int64_t i = 2 * element_of_row() + h;
        if (i >= x.width) continue;
        two[h] = value(i);
        x.data[x.at(row, i)] = two[h];
    }
    pairs.leave(row, element_of_row(), two);
}

struct Swiglu {
    KernelRows<const float> gate;
    float gate_multiplier;
    KernelRows<float> up;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        replace_pair(up, pairs, [&](int64_t i) -> float {
            return up.data[up.at(row, i)] * reference::silu_f32(gate.data[gate.at(row, i)] * gate_multiplier);
        });
    }
};

struct ReluSquared {
    KernelRows<float> up;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        replace_pair(up, pairs, [&](int64_t i) -> float {
            const float rectified = reference::max_f32(up.data[up.at(row, i)], 0.0F);
            return rectified * rectified;
        });
    }
};

// A row of heads, each times the sigmoid of its gate. gate: [head][2][head_dim], gates second.
struct SigmoidGate {
    KernelRows<const float> gate;
    int32_t head_dim;
    KernelRows<float> x;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        replace_pair(x, pairs, [&](int64_t i) -> float {
            const int64_t column = (2 * (i / head_dim) + 1) * head_dim + i % head_dim;
            return x.data[x.at(row, i)] * reference::sigmoid_f32(gate.data[gate.at(row, column)]);
        });
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

// bf16(x · multiplier). One thread per pair.
struct RoundRows {
    KernelRows<const float> x;
    float multiplier;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        float two[2] = {};
        SIMT_UNROLL
        for (int h = 0; h < 2; ++h) {
            const int64_t i = 2 * element_of_row() + h;
            if (i < x.width) two[h] = x.data[x.at(row, i)] * multiplier;
        }
        pairs.leave(row, element_of_row(), two);
    }
};

// N8: marks a row that contains a NaN or an infinity.
struct CheckLogits {
    KernelRows<const float> logits;
    int32_t num_layers;
    simt::Global<int32_t> faults;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= logits.width || reference::is_finite(logits.data[logits.at(row, i)])) return;
        simt::atomic_min(faults, row, num_layers);
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
