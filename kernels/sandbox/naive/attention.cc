// The plain loops of attention, as `verbatim kernel list --contract attention` defines it: correct and slow.
#include <cstdint>
#include <vector>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"

namespace {

using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;
using verbatim::reference::exp_f32;
using verbatim::reference::fma_f32;
using verbatim::reference::max_f32;

constexpr int64_t kTile = 64;
constexpr int64_t kRunTiles = 8;
constexpr int64_t kChunk = 256;

// A row's softmax state over some tiles.
struct Softmax {
    bool empty = true;
    float m = 0.0F;
    float l = 0.0F;
    std::vector<float> o;
};

// One row's query for one attention head, and the location of its keys and values.
struct Query {
    const verbatim_attention& op;
    int64_t sequence;
    int64_t kv_head;
    int64_t position;
    const float* q;  // [head_dim], bf16 values

    const uint16_t* slot(const uint16_t* pages, int64_t i) const {
        const int64_t block = op.block_tables[sequence * op.max_blocks + i / op.block_size];
        return pages + ((block * op.block_size + i % op.block_size) * op.n_kv_heads + kv_head) * op.head_dim;
    }
};

float score(const Query& query, int64_t i) {
    const uint16_t* k = query.slot(query.op.k, i);
    float total = 0.0F;
    for (int64_t first = 0; first < query.op.head_dim; first += kChunk) {
        const int64_t last = first + kChunk < query.op.head_dim ? first + kChunk : query.op.head_dim;
        float acc = 0.0F;
        for (int64_t d = first; d < last; d += 2) {
            if (d + 1 < last) acc = fma_f32(query.q[d + 1], bf16_to_float(k[d + 1]), acc);
            acc = fma_f32(query.q[d], bf16_to_float(k[d]), acc);
        }
        total = total + acc;
    }
    return total * query.op.scale;
}

float sum_of_tile(const float* p) {
    float partial[kTile];
    for (int64_t j = 0; j < kTile; ++j) partial[j] = 0.0F + p[j];
    for (int64_t half = kTile / 2; half >= 1; half /= 2) {
        for (int64_t j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    return partial[0];
}

void add_tile(const Query& query, int64_t first, Softmax& run) {
    const int64_t count = query.position + 1 - first < kTile ? query.position + 1 - first : kTile;
    float p[kTile] = {};
    for (int64_t j = 0; j < count; ++j) p[j] = score(query, first + j);
    float m = run.empty ? p[0] : run.m;
    for (int64_t j = 0; j < count; ++j) m = max_f32(m, p[j]);
    for (int64_t j = 0; j < count; ++j) p[j] = exp_f32(p[j] - m);
    const float sum = sum_of_tile(p);
    const float decay = exp_f32(run.m - m);
    for (int64_t d = 0; d < query.op.head_dim; ++d) {
        float pv = 0.0F;
        for (int64_t j = 0; j < count; j += 2) {
            if (j + 1 < count) {
                pv = fma_f32(bf16_value(p[j + 1]), bf16_to_float(query.slot(query.op.v, first + j + 1)[d]), pv);
            }
            pv = fma_f32(bf16_value(p[j]), bf16_to_float(query.slot(query.op.v, first + j)[d]), pv);
        }
        run.o[d] = run.empty ? pv : fma_f32(run.o[d], decay, pv);
    }
    run.l = run.empty ? sum : fma_f32(run.l, decay, sum);
    run.m = m;
    run.empty = false;
}

void merge(const Softmax& run, Softmax& row) {
    if (row.empty) {
        row = run;
        return;
    }
    const float m = max_f32(row.m, run.m);
    const float a = exp_f32(row.m - m);
    const float b = exp_f32(run.m - m);
    row.l = fma_f32(row.l, a, run.l * b);
    for (int64_t d = 0; d < static_cast<int64_t>(row.o.size()); ++d) row.o[d] = fma_f32(row.o[d], a, run.o[d] * b);
    row.m = m;
}

void attend(const Query& query, float* out) {
    const std::vector<float> zeros(query.op.head_dim);
    Softmax row{.o = zeros};
    for (int64_t first = 0; first <= query.position; first += kTile * kRunTiles) {
        Softmax run{.o = zeros};
        for (int64_t tile = first; tile <= query.position && tile < first + kTile * kRunTiles; tile += kTile) {
            add_tile(query, tile, run);
        }
        merge(run, row);
    }
    for (int64_t d = 0; d < query.op.head_dim; ++d) out[d] = row.o[d] / row.l;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_attention& op = *run->args.attention;
    std::vector<float> q(op.head_dim);
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
            const int64_t position = op.first_position[s] + row - op.sequences.first_row[s];
            for (int64_t h = 0; h < op.n_heads; ++h) {
                for (int64_t d = 0; d < op.head_dim; ++d) {
                    q[d] = bf16_value(op.q.data[row * op.q.stride + h * op.head_dim + d]);
                }
                attend({op, s, h / (op.n_heads / op.n_kv_heads), position, q.data()},
                       op.out.data + row * op.out.stride + h * op.head_dim);
            }
        }
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "attention",
    .profile = "exact",
    .machine = "cpu",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = nullptr,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
