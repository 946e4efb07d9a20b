// The walk of docs/kernel-sandbox.md, last step: channels side by side, tokens one after another. Time steps are made
// once for a row and head, and a head's channels stay in the first cache from token to token.
#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::exp_f32;
using verbatim::reference::fma_f32;
using verbatim::reference::softplus_f32;

constexpr int64_t kLanes = 16;
constexpr int64_t kVectors = 2;  // of channels, whose chains run side by side
constexpr int64_t kChunk = 16;

using Vector = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));

// Fused lane by lane: one instruction where the processor has it.
inline Vector fma_lanes(Vector a, Vector b, Vector c) {
    Vector sum;
    for (int i = 0; i < kLanes; ++i) sum[i] = fma_f32(a[i], b[i], c[i]);
    return sum;
}
inline Vector all_lanes(float x) { return Vector{} + x; }

struct Steps {
    float dt;
    float decay;
};
Steps* steps_of(const verbatim_run* run) { return static_cast<Steps*>(run->workspace); }

Steps step(const verbatim_scan& op, int64_t row, int64_t h) {
    float dt = softplus_f32(op.dt.data[row * op.dt.stride + h] + op.dt_bias[h]);
    dt = dt > op.dt_max ? op.dt_max : dt;
    dt = dt < op.dt_min ? op.dt_min : dt;
    return {dt, exp_f32(dt * op.a[h])};
}

// One head of one sequence.
struct Head {
    const verbatim_scan& op;
    const Steps* steps;  // [num_rows, n_heads]
    int64_t sequence, head;

    const float* state_in() const { return op.states_in == nullptr ? nullptr : op.states_in + state_offset(); }
    float* state_out() const { return op.states_out + state_offset(); }
    int64_t state_offset() const { return (sequence * op.n_heads + head) * op.d_state * op.head_dim; }
    int64_t group() const { return head / (op.n_heads / op.n_groups) * op.d_state; }
};

// kVectors · kLanes channels from `first` on, over one token; the state comes from `from`, null: it is zero.
void step_vectors(const Head& of, int64_t row, int64_t first, const float* from) {
    const verbatim_scan& op = of.op;
    const Steps& steps = of.steps[row * op.n_heads + of.head];
    const float* b = op.b.data + row * op.b.stride + of.group();
    const float* c = op.c.data + row * op.c.stride + of.group();
    const int64_t at = of.head * op.head_dim + first;
    const auto* x = reinterpret_cast<const Vector*>(op.x.data + row * op.x.stride + at);
    auto* y = reinterpret_cast<Vector*>(op.y.data + row * op.y.stride + at);
    const Vector decay = all_lanes(steps.decay);
    Vector u[kVectors], total[kVectors] = {};
    for (int v = 0; v < kVectors; ++v) u[v] = x[v] * steps.dt;
    for (int64_t begin = 0; begin < op.d_state; begin += kChunk) {
        Vector acc[kVectors] = {};
        const int64_t end = begin + kChunk < op.d_state ? begin + kChunk : op.d_state;
        for (int64_t n = begin; n < end; ++n) {
            const auto* before = reinterpret_cast<const Vector*>(from + n * op.head_dim + first);
            auto* h = reinterpret_cast<Vector*>(of.state_out() + n * op.head_dim + first);
            for (int v = 0; v < kVectors; ++v) {
                const Vector old = from != nullptr ? before[v] : Vector{};
                const Vector element = fma_lanes(old, decay, u[v] * b[n]);
                h[v] = element;
                acc[v] = fma_lanes(all_lanes(c[n]), element, acc[v]);
            }
        }
        for (int v = 0; v < kVectors; ++v) total[v] = total[v] + acc[v];
    }
    for (int v = 0; v < kVectors; ++v) y[v] = fma_lanes(all_lanes(op.d[of.head]), x[v], total[v]);
}

// The channels that fill no vector.
void step_channel(const Head& of, int64_t row, int64_t p, const float* from) {
    const verbatim_scan& op = of.op;
    const Steps& steps = of.steps[row * op.n_heads + of.head];
    const float x = op.x.data[row * op.x.stride + of.head * op.head_dim + p];
    const float u = steps.dt * x;
    float total = 0.0F;
    for (int64_t begin = 0; begin < op.d_state; begin += kChunk) {
        float acc = 0.0F;
        for (int64_t n = begin; n < op.d_state && n < begin + kChunk; ++n) {
            const float old = from != nullptr ? from[n * op.head_dim + p] : 0.0F;
            const float element = fma_f32(old, steps.decay, u * op.b.data[row * op.b.stride + of.group() + n]);
            of.state_out()[n * op.head_dim + p] = element;
            acc = fma_f32(op.c.data[row * op.c.stride + of.group() + n], element, acc);
        }
        total = total + acc;
    }
    op.y.data[row * op.y.stride + of.head * op.head_dim + p] = fma_f32(op.d[of.head], x, total);
}

void scan_head(const Head& of) {
    constexpr int64_t kChannels = kVectors * kLanes;
    const verbatim_scan& op = of.op;
    const int64_t begin = op.sequences.first_row[of.sequence];
    const int64_t end = op.sequences.first_row[of.sequence + 1];
    int64_t first = 0;
    for (; first + kChannels <= op.head_dim; first += kChannels) {
        for (int64_t row = begin; row < end; ++row) {
            step_vectors(of, row, first, row == begin ? of.state_in() : of.state_out());
        }
    }
    for (; first < op.head_dim; ++first) {
        for (int64_t row = begin; row < end; ++row) {
            step_channel(of, row, first, row == begin ? of.state_in() : of.state_out());
        }
    }
}

void scan_task(void* mine, int32_t index) {
    const auto* run = static_cast<const verbatim_run*>(mine);
    const verbatim_scan& op = *run->args.scan;
    scan_head({op, steps_of(run), index / op.n_heads, index % op.n_heads});
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return args.scan->x.num_rows * args.scan->n_heads * static_cast<int64_t>(sizeof(Steps));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_scan& op = *run->args.scan;
    for (int64_t i = 0; i < op.x.num_rows * op.n_heads; ++i) {
        steps_of(run)[i] = step(op, i / op.n_heads, i % op.n_heads);
    }
    run->parallel(run, static_cast<int32_t>(op.sequences.num_sequences * op.n_heads), scan_task,
                  const_cast<verbatim_run*>(run));
    return 0;
}

constexpr verbatim_kernel kKernel = {VERBATIM_KERNEL_ABI, "channels", "scan",  "exact", "cpu", nullptr, nullptr,
                                     workspace_bytes,     nullptr,    nullptr, run};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
