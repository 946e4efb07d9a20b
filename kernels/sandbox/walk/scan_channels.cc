// The walk of docs/kernel-sandbox.md, last step: channels in parallel, tokens in order. Time steps are computed once
// per row and head; a chunk of the state stays in registers while a block of tokens passes.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::exp_f32;
using verbatim::reference::fma_f32;
using verbatim::reference::softplus_f32;

constexpr int64_t kLanes = 16;
constexpr int64_t kChunk = 16;         // the contract's; as many vectors stay in registers
constexpr int64_t kTokens = 32;        // per block, that pass over a chunk
constexpr int kInterleavedTokens = 4;  // tokens whose sums are interleaved

using Vector = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

// Fused per lane: one instruction if the processor has it.
inline Vector fma_lanes(Vector a, Vector b, Vector c) {
    Vector sum;
    for (int i = 0; i < kLanes; ++i) sum[i] = fma_f32(a[i], b[i], c[i]);
    return sum;
}
// Every lane named: in `Vector{} + x` the addition remains, because 0 + x differs from x if x is -0.
inline Vector all_lanes(float x) { return Vector{x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x}; }

// [num_rows, n_heads] each: the loop that fills them can be vectorised.
struct Steps {
    float* dt;
    float* decay;
};
Steps steps_of(const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    auto* const memory = static_cast<float*>(run->workspace);
    return {memory, memory + op.x.num_rows * op.n_heads};
}

void make_steps(const verbatim_scan& op, int64_t row, const Steps& steps) {
    float* dt = steps.dt + row * op.n_heads;
    float* decay = steps.decay + row * op.n_heads;
    const float* raw = op.dt.data + row * op.dt.stride;
    for (int64_t h = 0; h < op.n_heads; ++h) {
        float step = softplus_f32(raw[h] + op.dt_bias[h]);
        step = step > op.dt_max ? op.dt_max : step;
        step = step < op.dt_min ? op.dt_min : step;
        dt[h] = step;
        decay[h] = exp_f32(step * op.a[h]);
    }
}

// One head of one sequence.
struct Head {
    const verbatim_scan& op;
    Steps steps;
    int64_t sequence, head;

    float dt(int64_t row) const { return steps.dt[row * op.n_heads + head]; }
    float decay(int64_t row) const { return steps.decay[row * op.n_heads + head]; }
    const float* state_in() const { return op.states_in == nullptr ? nullptr : op.states_in + state_offset(); }
    float* state_out() const { return op.states_out + state_offset(); }
    int64_t state_offset() const { return (sequence * op.n_heads + head) * op.d_state * op.head_dim; }
    int64_t group() const { return head / (op.n_heads / op.n_groups) * op.d_state; }
};

// Some rows of a sequence, kLanes channels of one head.
struct Block {
    int64_t begin, end;  // rows, at most kTokens
    int64_t channel;
    const float* from;  // state before them; null: zero
};

// Some tokens in order. A token's sum is a dependency chain over all elements; interleaving several tokens hides its
// latency and does not change any bit.
template <int num_tokens>
inline __attribute__((always_inline)) void scan_tokens(const Head& of, int64_t row, int64_t channel, int64_t n,
                                                       int64_t count, Vector (&h)[kChunk], Vector* totals) {
    const verbatim_scan& op = of.op;
    const float* b = op.b.data + row * op.b.stride + of.group() + n;
    const float* c = op.c.data + row * op.c.stride + of.group() + n;
    const float* x = op.x.data + row * op.x.stride + of.head * op.head_dim + channel;
    Vector u[num_tokens], decay[num_tokens], acc[num_tokens] = {};
    for (int t = 0; t < num_tokens; ++t) {
        u[t] = *reinterpret_cast<const Vector*>(x + t * op.x.stride) * of.dt(row + t);
        decay[t] = all_lanes(of.decay(row + t));
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 4
        for (int t = 0; t < num_tokens; ++t) {
            h[i] = fma_lanes(h[i], decay[t], u[t] * b[t * op.b.stride + i]);
            acc[t] = fma_lanes(all_lanes(c[t * op.c.stride + i]), h[i], acc[t]);
        }
    }
    for (int t = 0; t < num_tokens; ++t) totals[t] = totals[t] + acc[t];
}

// State elements [n, n + count), at most kChunk, over the block's rows; totals: one per row.
template <bool whole>
void scan_chunk(const Head& of, const Block& block, int64_t n, int64_t count, Vector* totals) {
    const verbatim_scan& op = of.op;
    count = whole ? kChunk : count;
    const int64_t at = n * op.head_dim + block.channel;
    Vector h[kChunk] = {};
    const int64_t there = block.from != nullptr ? count : 0;
    for (int64_t i = 0; i < there; ++i) {
        h[i] = *reinterpret_cast<const Vector*>(block.from + at + i * op.head_dim);
    }
    int64_t row = block.begin;
    for (; row + kInterleavedTokens <= block.end; row += kInterleavedTokens) {
        scan_tokens<kInterleavedTokens>(of, row, block.channel, n, count, h, totals + row - block.begin);
    }
    for (; row < block.end; ++row) scan_tokens<1>(of, row, block.channel, n, count, h, totals + row - block.begin);
#pragma GCC unroll 16
    for (int64_t i = 0; i < count; ++i) {
        *reinterpret_cast<Vector*>(of.state_out() + at + i * op.head_dim) = h[i];
    }
}

void scan_block(const Head& of, const Block& block) {
    const verbatim_scan& op = of.op;
    Vector totals[kTokens] = {};
    int64_t n = 0;
    for (; n + kChunk <= op.d_state; n += kChunk) scan_chunk<true>(of, block, n, kChunk, totals);
    if (n < op.d_state) scan_chunk<false>(of, block, n, op.d_state - n, totals);
    for (int64_t row = block.begin; row < block.end; ++row) {
        const int64_t at = of.head * op.head_dim + block.channel;
        const Vector x = *reinterpret_cast<const Vector*>(op.x.data + row * op.x.stride + at);
        *reinterpret_cast<Vector*>(op.y.data + row * op.y.stride + at) =
            fma_lanes(all_lanes(op.d[of.head]), x, totals[row - block.begin]);
    }
}

// The remaining channels, fewer than a vector.
void step_channel(const Head& of, int64_t row, int64_t p, const float* from) {
    const verbatim_scan& op = of.op;
    const float x = op.x.data[row * op.x.stride + of.head * op.head_dim + p];
    const float u = of.dt(row) * x;
    float total = 0.0F;
    for (int64_t begin = 0; begin < op.d_state; begin += kChunk) {
        float acc = 0.0F;
        for (int64_t n = begin; n < op.d_state && n < begin + kChunk; ++n) {
            const float old = from != nullptr ? from[n * op.head_dim + p] : 0.0F;
            const float element = fma_f32(old, of.decay(row), u * op.b.data[row * op.b.stride + of.group() + n]);
            of.state_out()[n * op.head_dim + p] = element;
            acc = fma_f32(op.c.data[row * op.c.stride + of.group() + n], element, acc);
        }
        total = total + acc;
    }
    op.y.data[row * op.y.stride + of.head * op.head_dim + p] = fma_f32(op.d[of.head], x, total);
}

void scan_head(const Head& of) {
    const verbatim_scan& op = of.op;
    const int64_t begin = op.sequences.first_row[of.sequence];
    const int64_t end = op.sequences.first_row[of.sequence + 1];
    const auto state_before = [&](int64_t row) { return row == begin ? of.state_in() : of.state_out(); };
    int64_t channel = 0;
    for (; channel + kLanes <= op.head_dim; channel += kLanes) {
        for (int64_t row = begin; row < end; row += kTokens) {
            scan_block(of, {row, row + kTokens < end ? row + kTokens : end, channel, state_before(row)});
        }
    }
    for (; channel < op.head_dim; ++channel) {
        for (int64_t row = begin; row < end; ++row) step_channel(of, row, channel, state_before(row));
    }
}

void scan_task(void* mine, int32_t index) {
    const auto* run = static_cast<const verbatim_run*>(mine);
    const verbatim_scan& op = *run->args.scan;
    scan_head({op, steps_of(run), index / op.n_heads, index % op.n_heads});
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return 2 * args.scan->x.num_rows * args.scan->n_heads * static_cast<int64_t>(sizeof(float));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    for (int64_t row = 0; row < op.x.num_rows; ++row) make_steps(op, row, steps_of(run));
    run->parallel(run, static_cast<int32_t>(op.sequences.num_sequences * op.n_heads), scan_task,
                  const_cast<verbatim_run*>(run));
    return 0;
}

constexpr verbatim_kernel kKernel = {VERBATIM_KERNEL_ABI, "channels", "scan",  "exact", "cpu", nullptr, nullptr,
                                     workspace_bytes,     nullptr,    nullptr, run};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
