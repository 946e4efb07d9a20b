// Correct in the fast profile: Mamba-2's chunked algorithm (state space duality). Within a chunk, outputs are products
// of C, B and exponentials of differences of cumulative sums; between chunks the state is carried.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/numerics/math.h"
#include "tests/planted_kernels/planted.h"

namespace {

constexpr int64_t kChunk = 16;

struct Head {
    const verbatim_scan& op;
    int64_t h;
    float* state;  // [d_state, head_dim]

    [[nodiscard]] float step(int64_t row) const {
        const float dt = verbatim::reference::softplus_f32(op.dt.data[row * op.dt.stride + h] + op.dt_bias[h]);
        return std::min(std::max(dt, op.dt_min), op.dt_max);
    }
    [[nodiscard]] const float* group_row(const verbatim_const_floats& rows, int64_t row) const {
        return rows.data + row * rows.stride + h / (op.n_heads / op.n_groups) * op.d_state;
    }
    [[nodiscard]] float x(int64_t row, int64_t p) const { return op.x.data[row * op.x.stride + h * op.head_dim + p]; }
};

// Rows [first, end), at most kChunk of them.
void scan_chunk(const Head& head, int64_t first, int64_t end) {
    const verbatim_scan& op = head.op;
    const int64_t count = end - first;
    float steps[kChunk], sums[kChunk];  // sums of dt A up to and including a row
    for (int64_t i = 0; i < count; ++i) {
        steps[i] = head.step(first + i);
        sums[i] = (i > 0 ? sums[i - 1] : 0.0F) + steps[i] * op.a[head.h];
    }
    for (int64_t i = 0; i < count; ++i) {
        const float* c = head.group_row(op.c, first + i);
        float* y = op.y.data + (first + i) * op.y.stride + head.h * op.head_dim;
        for (int64_t p = 0; p < op.head_dim; ++p) {
            float carried = 0.0F;
            for (int64_t n = 0; n < op.d_state; ++n) carried += c[n] * head.state[n * op.head_dim + p];
            y[p] = std::exp(sums[i]) * carried + op.d[head.h] * head.x(first + i, p);
        }
        for (int64_t j = 0; j <= i; ++j) {
            const float* b = head.group_row(op.b, first + j);
            float product = 0.0F;
            for (int64_t n = 0; n < op.d_state; ++n) product += c[n] * b[n];
            product *= std::exp(sums[i] - sums[j]) * steps[j];
            for (int64_t p = 0; p < op.head_dim; ++p) y[p] += product * head.x(first + j, p);
        }
    }
    for (int64_t n = 0; n < op.d_state; ++n) {
        for (int64_t p = 0; p < op.head_dim; ++p) {
            float& element = head.state[n * op.head_dim + p];
            element *= std::exp(sums[count - 1]);
            for (int64_t j = 0; j < count; ++j) {
                const float weight = std::exp(sums[count - 1] - sums[j]) * steps[j];
                element += weight * head.group_row(op.b, first + j)[n] * head.x(first + j, p);
            }
        }
    }
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    const int64_t size = op.d_state * op.head_dim;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t h = 0; h < op.n_heads; ++h) {
            const int64_t at = (s * op.n_heads + h) * size;
            std::vector<float> state(static_cast<size_t>(size));
            if (op.states_in != nullptr) std::copy_n(op.states_in + at, size, state.begin());
            const int64_t end = op.sequences.first_row[s + 1];
            for (int64_t first = op.sequences.first_row[s]; first < end; first += kChunk) {
                scan_chunk({op, h, state.data()}, first, std::min(end, first + kChunk));
            }
            std::copy_n(state.begin(), size, op.states_out + at);
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("scan", "fast", "cpu", run)
