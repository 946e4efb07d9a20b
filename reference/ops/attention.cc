#include "reference/ops/attention.h"

#include <algorithm>
#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"
#include "reference/numerics/tensor_lanes.h"
#include "reference/ops/rms_norm.h"

namespace verbatim::reference {

namespace {

// What a row has gathered over some tiles: out = o / l.
struct Softmax {
    explicit Softmax(int64_t head_dim) : o(static_cast<size_t>(head_dim)) {}
    float m = 0.0F;        // the greatest s
    float l = 0.0F;        // sum of exp(s - m)
    std::vector<float> o;  // [head_dim], sum of exp(s - m) · v
    bool empty = true;
};

// One KV head's K and V as binary32. K stands transposed within its tiles so that the dot products of a tile's 64
// positions are computed side by side; positions that do not exist are +0.
struct KvHead {
    int64_t head_dim = 0;
    std::vector<float> k;  // [num_tiles, head_dim, 64]
    std::vector<float> v;  // [num_tiles · 64, head_dim]
};

KvHead unpack(const AttentionArgs& args, int64_t kv_head) {
    const int64_t d = args.head_dim;
    const int64_t num_tiles = (args.k.num_rows + kKvTile - 1) / kKvTile;
    const auto size = static_cast<size_t>(num_tiles * kKvTile * d);
    KvHead head{d, std::vector<float>(size), std::vector<float>(size)};
    for (int64_t position = 0; position < args.k.num_rows; ++position) {
        const uint16_t* k = args.k.row(position) + kv_head * d;
        const uint16_t* v = args.v.row(position) + kv_head * d;
        float* k_tile = &head.k[position / kKvTile * kKvTile * d + position % kKvTile];
        for (int64_t i = 0; i < d; ++i) k_tile[i * kKvTile] = bf16_to_float(k[i]);
        for (int64_t i = 0; i < d; ++i) head.v[position * d + i] = bf16_to_float(v[i]);
    }
    return head;
}

// s[j] = dot_n3(q, k[j]) · scale for the 64 positions of a tile; q holds bf16 values.
VERBATIM_CLONES void tile_scores(const float* q, const float* k_tile, int64_t head_dim, float scale, float* s) {
    float total[kKvTile] = {};
    for (int64_t first = 0; first < head_dim; first += kDotChunk) {
        const int64_t last = std::min(first + kDotChunk, head_dim);
        float acc[kKvTile] = {};
        for (int64_t i = first; i < last; i += 2) {
            if (i + 1 < last) {
                for (int64_t j = 0; j < kKvTile; ++j) acc[j] = fma_f32(q[i + 1], k_tile[(i + 1) * kKvTile + j], acc[j]);
            }
            for (int64_t j = 0; j < kKvTile; ++j) acc[j] = fma_f32(q[i], k_tile[i * kKvTile + j], acc[j]);
        }
        for (int64_t j = 0; j < kKvTile; ++j) total[j] += acc[j];
    }
    for (int64_t j = 0; j < kKvTile; ++j) s[j] = total[j] * scale;
}

// p[j] = exp(s[j] - m), masked: +0.
VERBATIM_CLONES void tile_weights(const float* s, int64_t num_visible, float m, float* p) {
    for (int64_t j = 0; j < kKvTile; ++j) {
        const float weight = exp_f32(s[j] - m);
        p[j] = j < num_visible ? weight : 0.0F;
    }
}

// pv[d] = dot_n3 over the tile's positions of (p, v[.][d]); p holds bf16 values. Of masked positions v is not read:
// their products are +0, and fma(+0, +0, acc) is acc.
VERBATIM_CLONES void tile_values(const float* p, const float* v_tile, int64_t num_visible, int64_t head_dim,
                                 float* pv) {
    std::fill_n(pv, head_dim, 0.0F);
    for (int64_t j = 0; j < num_visible; j += 2) {
        if (j + 1 < num_visible) {
            for (int64_t i = 0; i < head_dim; ++i) pv[i] = fma_f32(p[j + 1], v_tile[(j + 1) * head_dim + i], pv[i]);
        }
        for (int64_t i = 0; i < head_dim; ++i) pv[i] = fma_f32(p[j], v_tile[j * head_dim + i], pv[i]);
    }
}
static_assert(kKvTile <= kDotChunk, "a tile's p·v is one chunk of N3, and +0 + acc is acc, which cannot be -0");

// --- both in tensor.sm90

constexpr int kOutputLanes = 32;  // outputs side by side; their number changes no bit

VERBATIM_CLONES void tensor_tile_scores(const float* q, const float* k_tile, int64_t head_dim, float scale, float* s) {
    for (int64_t first = 0; first < kKvTile; first += kOutputLanes) {
        const auto k = [&](int64_t i, int64_t lane) { return k_tile[i * kKvTile + first + lane]; };
        tensor_dots<kOutputLanes>(q, head_dim, k, s + first);
    }
    for (int64_t j = 0; j < kKvTile; ++j) s[j] = s[j] * scale;
}

VERBATIM_CLONES void tensor_tile_values(const float* p, const float* v_tile, int64_t num_visible, int64_t head_dim,
                                        float* pv) {
    for (int64_t first = 0; first < head_dim; first += kOutputLanes) {
        const auto v = [&](int64_t j, int64_t lane) {
            return first + lane < head_dim ? v_tile[j * head_dim + first + lane] : 0.0F;
        };
        float total[kOutputLanes];
        tensor_dots<kOutputLanes>(p, num_visible, v, total);
        std::copy_n(total, std::min<int64_t>(kOutputLanes, head_dim - first), pv + first);
    }
}

void add_tile(const float* q, const KvHead& head, int64_t tile, int64_t num_visible, const AttentionArgs& args,
              Softmax& run) {
    const int64_t d = head.head_dim;
    const bool on_tensor_cores = args.profile == Profile::kTensorSm90;
    float s[kKvTile];
    (on_tensor_cores ? tensor_tile_scores : tile_scores)(q, &head.k[tile * kKvTile * d], d, args.scale, s);
    float m = run.empty ? s[0] : run.m;
    for (int64_t j = 0; j < num_visible; ++j) m = max_f32(m, s[j]);
    float p[kKvTile];
    tile_weights(s, num_visible, m, p);
    const float sum = sum_n4(p, kKvTile);
    for (float& value : p) value = bf16_value(value);
    std::vector<float> pv(static_cast<size_t>(d));
    (on_tensor_cores ? tensor_tile_values : tile_values)(p, &head.v[tile * kKvTile * d], num_visible, d, pv.data());
    if (run.empty) {
        run.l = sum;
        run.o = pv;
    } else {
        const float decay = exp_f32(run.m - m);
        run.l = fma_f32(run.l, decay, sum);
        for (int64_t i = 0; i < d; ++i) run.o[i] = fma_f32(run.o[i], decay, pv[i]);
    }
    run.m = m;
    run.empty = false;
}

void merge_run(const Softmax& run, Softmax& row) {
    if (row.empty) {
        row = run;
        return;
    }
    const float m = max_f32(row.m, run.m);
    const float row_decay = exp_f32(row.m - m);
    const float run_decay = exp_f32(run.m - m);
    row.l = fma_f32(row.l, row_decay, run.l * run_decay);
    for (size_t i = 0; i < row.o.size(); ++i) row.o[i] = fma_f32(row.o[i], row_decay, run.o[i] * run_decay);
    row.m = m;
}

// One query row and head at absolute position `position`.
void attend(const float* q, const KvHead& head, int64_t position, const AttentionArgs& args, float* out) {
    const int64_t num_tiles = position / kKvTile + 1;
    Softmax row(head.head_dim);
    for (int64_t first = 0; first < num_tiles; first += kRunTiles) {
        Softmax run(head.head_dim);
        for (int64_t tile = first; tile < std::min(first + kRunTiles, num_tiles); ++tile) {
            add_tile(q, head, tile, std::min(kKvTile, position + 1 - tile * kKvTile), args, run);
        }
        merge_run(run, row);
    }
    for (int64_t i = 0; i < head.head_dim; ++i) out[i] = row.o[i] / row.l;
}

}  // namespace

void check(const StoreBf16Args& args) {
    check_rows(args.x, args.out.num_rows, args.out.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
}

void store_bf16(const StoreBf16Args& args) {
    check(args);
    for (int64_t r = 0; r < args.x.num_rows; ++r) {
        for (int64_t i = 0; i < args.x.width; ++i) args.out.row(r)[i] = round_to_bf16(args.x.row(r)[i]);
    }
}

void check(const AttentionArgs& args) {
    CHECK_GE(args.first_position, 0);
    CHECK(args.n_heads > 0 && args.n_kv_heads > 0 && args.head_dim > 0);
    CHECK_EQ(args.n_heads % args.n_kv_heads, 0);
    const int64_t num_rows = args.q.num_rows;
    check_rows(args.q, num_rows, args.n_heads * args.head_dim);
    check_rows(args.out, num_rows, args.n_heads * args.head_dim);
    check_rows(args.k, args.first_position + num_rows, args.n_kv_heads * args.head_dim);
    check_rows(args.v, args.first_position + num_rows, args.n_kv_heads * args.head_dim);
    CHECK(args.q.data != args.out.data || num_rows == 0, "attention cannot write what it reads");
}

void attention(const AttentionArgs& args) {
    check(args);
    const int64_t d = args.head_dim;
    const int64_t heads_per_kv_head = args.n_heads / args.n_kv_heads;
    std::vector<float> q(static_cast<size_t>(d));
    for (int64_t kv_head = 0; kv_head < args.n_kv_heads; ++kv_head) {
        const KvHead head = unpack(args, kv_head);
        for (int64_t r = 0; r < args.q.num_rows; ++r) {
            for (int64_t h = kv_head * heads_per_kv_head; h < (kv_head + 1) * heads_per_kv_head; ++h) {
                for (int64_t i = 0; i < d; ++i) q[i] = bf16_value(args.q.row(r)[h * d + i]);
                attend(q.data(), head, args.first_position + r, args, args.out.row(r) + h * d);
            }
        }
    }
}

}  // namespace verbatim::reference
