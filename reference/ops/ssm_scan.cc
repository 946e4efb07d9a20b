#include "reference/ops/ssm_scan.h"

#include <algorithm>
#include <vector>

#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"

namespace verbatim::reference {

void decay_rates(std::span<const float> a_log, std::span<float> out) {
    CHECK_EQ(a_log.size(), out.size());
    for (size_t h = 0; h < a_log.size(); ++h) out[h] = -exp_f32(a_log[h]);
}

namespace {

// What one token gives one head.
struct HeadInput {
    float dt;        // after softplus and limits
    float decay;     // exp(dt · A)
    float d;         // D
    const float* x;  // [head_dim]
    const float* b;  // [d_state]
    const float* c;  // [d_state]
};

// y[p] and the head's state [d_state, head_dim] after one token. Channels are independent of each other: p may be
// vectorised, n may not.
VERBATIM_CLONES void scan_token(const HeadInput& in, int64_t head_dim, int64_t d_state, float* state, float* scratch,
                                float* y) {
    float* u = scratch;
    float* acc = scratch + head_dim;
    float* total = scratch + 2 * head_dim;
    for (int64_t p = 0; p < head_dim; ++p) u[p] = in.dt * in.x[p];
    std::fill_n(total, head_dim, 0.0F);
    for (int64_t first = 0; first < d_state; first += kScanChunk) {
        std::fill_n(acc, head_dim, 0.0F);
        for (int64_t n = first; n < std::min(first + kScanChunk, d_state); ++n) {
            float* h = state + n * head_dim;
            for (int64_t p = 0; p < head_dim; ++p) {
                h[p] = fma_f32(h[p], in.decay, u[p] * in.b[n]);
                acc[p] = fma_f32(in.c[n], h[p], acc[p]);
            }
        }
        for (int64_t p = 0; p < head_dim; ++p) total[p] += acc[p];
    }
    for (int64_t p = 0; p < head_dim; ++p) y[p] = fma_f32(in.d, in.x[p], total[p]);
}

float time_step(const SsmScanArgs& args, int64_t t, int64_t head) {
    const float dt = softplus_f32(args.dt.row(t)[head] + args.dt_bias[head]);
    const float limited = dt > args.dt_max ? args.dt_max : dt;
    return dt < args.dt_min ? args.dt_min : limited;
}

}  // namespace

void check(const SsmScanArgs& args) {
    CHECK(args.n_heads > 0 && args.head_dim > 0 && args.d_state > 0 && args.n_groups > 0);
    CHECK_EQ(args.n_heads % args.n_groups, 0);
    CHECK_LE(args.dt_min, args.dt_max);
    const int64_t num_tokens = args.x.num_rows;
    check_rows(args.x, num_tokens, args.n_heads * args.head_dim);
    check_rows(args.b, num_tokens, args.n_groups * args.d_state);
    check_rows(args.c, num_tokens, args.n_groups * args.d_state);
    check_rows(args.dt, num_tokens, args.n_heads);
    check_rows(args.y, num_tokens, args.n_heads * args.head_dim);
    for (const float* per_head : {args.a, args.d, args.dt_bias}) check_pointer(per_head, args.n_heads);
    check_pointer(args.state_in, 0);
    check_pointer(args.state_out, 1);
    check(args.snapshots, num_tokens);
    CHECK(args.x.data != args.y.data || num_tokens == 0, "a scan cannot write what it reads");
}

void ssm_scan(const SsmScanArgs& args) {
    check(args);
    const int64_t head_size = args.d_state * args.head_dim;
    const int64_t state_size = args.n_heads * head_size;
    const int64_t heads_per_group = args.n_heads / args.n_groups;
    std::vector<float> scratch(static_cast<size_t>(3 * args.head_dim));
    if (args.state_in == nullptr) {
        std::fill_n(args.state_out, state_size, 0.0F);
    } else if (args.state_in != args.state_out) {
        std::copy_n(args.state_in, state_size, args.state_out);
    }
    auto snapshot = args.snapshots.begin();
    for (int64_t t = 0; t < args.x.num_rows; ++t) {
        for (int64_t head = 0; head < args.n_heads; ++head) {
            const int64_t group = head / heads_per_group;
            const float dt = time_step(args, t, head);
            const HeadInput in{dt,
                               exp_f32(dt * args.a[head]),
                               args.d[head],
                               args.x.row(t) + head * args.head_dim,
                               args.b.row(t) + group * args.d_state,
                               args.c.row(t) + group * args.d_state};
            scan_token(in, args.head_dim, args.d_state, args.state_out + head * head_size, scratch.data(),
                       args.y.row(t) + head * args.head_dim);
        }
        if (snapshot != args.snapshots.end() && snapshot->num_tokens == t + 1) {
            std::copy_n(args.state_out, state_size, snapshot->out);
            ++snapshot;
        }
    }
}

}  // namespace verbatim::reference
