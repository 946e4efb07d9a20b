#include "reference/ops/delta.h"

#include <algorithm>
#include <vector>

#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"
#include "reference/ops/rms_norm.h"

namespace verbatim::reference {

void check(const DeltaGatesArgs& args) {
    CHECK_GT(args.b.width, 0);
    check_rows(args.b, args.b.num_rows, args.b.width);
    check_rows(args.a, args.b.num_rows, args.b.width);
    check_pointer(args.rate, args.b.width);
    check_pointer(args.dt_bias, args.b.width);
}

void delta_gates(const DeltaGatesArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.b.num_rows; ++r) {
        float* b = args.b.row(r);
        float* a = args.a.row(r);
        for (int64_t h = 0; h < args.b.width; ++h) {
            b[h] = sigmoid_f32(b[h]);
            a[h] = exp_f32(softplus_f32(a[h] + args.dt_bias[h]) * args.rate[h]);
        }
    }
}

void check(const L2NormArgs& args) {
    CHECK(args.n_heads > 0 && args.dim > 0);
    check_rows(args.x, args.x.num_rows, args.n_heads * args.dim);
}

void l2_norm(const L2NormArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.x.num_rows; ++r) {
        for (int64_t h = 0; h < args.n_heads; ++h) {
            float* x = args.x.row(r) + h * args.dim;
            const float root = sqrt_f32(sum_squares_n4(x, args.dim) + kL2Eps);
            for (int64_t i = 0; i < args.dim; ++i) x[i] = (x[i] / root) * args.scale;
        }
    }
}

namespace {

// What one token gives one value head.
struct DeltaInput {
    float beta;
    float decay;
    const float* q;  // [key_dim]
    const float* k;  // [key_dim]
    const float* v;  // [value_dim]
};

// y[j] and the head's state [key_dim, value_dim] after one token. Columns are independent of each other: j may be
// vectorised, i may not.
VERBATIM_CLONES void update_token(const DeltaInput& in, int64_t key_dim, int64_t value_dim, float* state, float* d,
                                  float* y) {
    std::fill_n(d, value_dim, 0.0F);
    for (int64_t i = 0; i < key_dim; ++i) {
        const float* s = state + i * value_dim;
        for (int64_t j = 0; j < value_dim; ++j) d[j] = fma_f32(in.decay * s[j], in.k[i], d[j]);
    }
    for (int64_t j = 0; j < value_dim; ++j) d[j] = in.beta * (in.v[j] - d[j]);
    std::fill_n(y, value_dim, 0.0F);
    for (int64_t i = 0; i < key_dim; ++i) {
        float* s = state + i * value_dim;
        for (int64_t j = 0; j < value_dim; ++j) {
            s[j] = fma_f32(in.k[i], d[j], in.decay * s[j]);
            y[j] = fma_f32(s[j], in.q[i], y[j]);
        }
    }
}

}  // namespace

void check(const DeltaUpdateArgs& args) {
    CHECK(args.n_key_heads > 0 && args.n_value_heads > 0 && args.key_dim > 0 && args.value_dim > 0);
    CHECK_EQ(args.n_value_heads % args.n_key_heads, 0);
    const int64_t num_tokens = args.v.num_rows;
    check_rows(args.q, num_tokens, args.n_key_heads * args.key_dim);
    check_rows(args.k, num_tokens, args.n_key_heads * args.key_dim);
    check_rows(args.v, num_tokens, args.n_value_heads * args.value_dim);
    check_rows(args.beta, num_tokens, args.n_value_heads);
    check_rows(args.decay, num_tokens, args.n_value_heads);
    check_rows(args.y, num_tokens, args.n_value_heads * args.value_dim);
    check_pointer(args.state_in, 0);
    check_pointer(args.state_out, 1);
    check(args.snapshots, num_tokens);
    CHECK(args.v.data != args.y.data || num_tokens == 0, "a delta update cannot write what it reads");
}

void delta_update(const DeltaUpdateArgs& args) {
    check(args);
    const int64_t head_size = args.key_dim * args.value_dim;
    const int64_t state_size = args.n_value_heads * head_size;
    const int64_t values_per_key = args.n_value_heads / args.n_key_heads;
    std::vector<float> scratch(static_cast<size_t>(args.value_dim));
    if (args.state_in == nullptr) {
        std::fill_n(args.state_out, state_size, 0.0F);
    } else if (args.state_in != args.state_out) {
        std::copy_n(args.state_in, state_size, args.state_out);
    }
    auto snapshot = args.snapshots.begin();
    for (int64_t t = 0; t < args.v.num_rows; ++t) {
        for (int64_t head = 0; head < args.n_value_heads; ++head) {
            const int64_t key = (args.tiled_values ? head % args.n_key_heads : head / values_per_key) * args.key_dim;
            const DeltaInput in{args.beta.row(t)[head], args.decay.row(t)[head], args.q.row(t) + key,
                                args.k.row(t) + key, args.v.row(t) + head * args.value_dim};
            update_token(in, args.key_dim, args.value_dim, args.state_out + head * head_size, scratch.data(),
                         args.y.row(t) + head * args.value_dim);
        }
        if (snapshot != args.snapshots.end() && snapshot->num_tokens == t + 1) {
            std::copy_n(args.state_out, state_size, snapshot->out);
            ++snapshot;
        }
    }
}

}  // namespace verbatim::reference
