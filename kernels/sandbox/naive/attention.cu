// The plain loops of attention for CUDA, per `verbatim kernel list --contract attention`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;
using verbatim::reference::exp_f32;
using verbatim::reference::fma_f32;
using verbatim::reference::max_f32;

constexpr int64_t kTile = 64;
constexpr int64_t kRunPositions = 512;
constexpr int64_t kChunk = 256;

// A row's softmax state over some tiles; o is in the workspace.
struct Softmax {
    bool empty = true;
    float m = 0.0F;
    float l = 0.0F;
};

// One thread per row and attention head. o of the run and o of all runs are in the workspace, [2, head_dim].
struct Attention {
    int64_t n_heads, n_kv_heads, head_dim, max_blocks, block_size, num_sequences;
    float scale;
    simt::Global<const int64_t> first_row, first_position;
    simt::Global<const int32_t> block_tables;
    simt::Global<const uint16_t> k, v;
    sandbox::RowsView<const float> q;
    sandbox::RowsView<float> out;
    simt::Global<float> workspace;

    struct Place {
        int64_t sequence, row, head, position;
    };

    SIMT_FUNCTION void operator()() const {
        const int64_t row = sandbox::global_thread() / n_heads;
        if (row >= q.num_rows) return;
        Place place{0, row, sandbox::global_thread() % n_heads, 0};
        while (first_row[place.sequence + 1] <= row) ++place.sequence;
        place.position = first_position[place.sequence] + row - first_row[place.sequence];
        const auto run_o = workspace.slice(sandbox::global_thread() * 2 * head_dim, head_dim);
        const auto o = workspace.slice((sandbox::global_thread() * 2 + 1) * head_dim, head_dim);
        Softmax total;
        for (int64_t first = 0; first <= place.position; first += kRunPositions) {
            Softmax of_run;
            for (int64_t tile = first; tile <= place.position && tile < first + kRunPositions; tile += kTile) {
                add_tile(place, tile, of_run, run_o);
            }
            merge(of_run, run_o, total, o);
        }
        for (int64_t d = 0; d < head_dim; ++d) out.data[out.at(row, place.head * head_dim + d)] = o[d] / total.l;
    }

    SIMT_FUNCTION int64_t slot(const Place& place, int64_t i) const {
        const int64_t block = block_tables[place.sequence * max_blocks + i / block_size];
        const int64_t kv_head = place.head / (n_heads / n_kv_heads);
        return ((block * block_size + i % block_size) * n_kv_heads + kv_head) * head_dim;
    }
    SIMT_FUNCTION float product(const Place& place, int64_t key, int64_t d, float acc) const {
        return fma_f32(bf16_value(q.data[q.at(place.row, place.head * head_dim + d)]), bf16_to_float(k[key + d]), acc);
    }
    SIMT_FUNCTION float score(const Place& place, int64_t i) const {
        const int64_t key = slot(place, i);
        float total = 0.0F;
        for (int64_t first = 0; first < head_dim; first += kChunk) {
            const int64_t last = first + kChunk < head_dim ? first + kChunk : head_dim;
            float acc = 0.0F;
            for (int64_t d = first; d < last; d += 2) {
                if (d + 1 < last) acc = product(place, key, d + 1, acc);
                acc = product(place, key, d, acc);
            }
            total = total + acc;
        }
        return total * scale;
    }
    SIMT_FUNCTION float tile_value(const Place& place, int64_t first, int64_t count, const float (&p)[kTile],
                                   int64_t d) const {
        float pv = 0.0F;
        for (int64_t j = 0; j < count; j += 2) {
            if (j + 1 < count) {
                pv = fma_f32(bf16_value(p[j + 1]), bf16_to_float(v[slot(place, first + j + 1) + d]), pv);
            }
            pv = fma_f32(bf16_value(p[j]), bf16_to_float(v[slot(place, first + j) + d]), pv);
        }
        return pv;
    }
    SIMT_FUNCTION void add_tile(const Place& place, int64_t first, Softmax& of_run,
                                const simt::Global<float>& o) const {
        const int64_t count = place.position + 1 - first < kTile ? place.position + 1 - first : kTile;
        float p[kTile] = {};
        for (int64_t j = 0; j < count; ++j) p[j] = score(place, first + j);
        float m = of_run.empty ? p[0] : of_run.m;
        for (int64_t j = 0; j < count; ++j) m = max_f32(m, p[j]);
        float partial[kTile] = {};
        for (int64_t j = 0; j < count; ++j) partial[j] = p[j] = exp_f32(p[j] - m);
        for (int64_t half = kTile / 2; half >= 1; half /= 2) {
            for (int64_t j = 0; j < half; ++j) partial[j] += partial[j + half];
        }
        const float decay = exp_f32(of_run.m - m);
        for (int64_t d = 0; d < head_dim; ++d) {
            const float pv = tile_value(place, first, count, p, d);
            o[d] = of_run.empty ? pv : fma_f32(o[d], decay, pv);
        }
        of_run.l = of_run.empty ? partial[0] : fma_f32(of_run.l, decay, partial[0]);
        of_run.m = m;
        of_run.empty = false;
    }
    SIMT_FUNCTION void merge(const Softmax& of_run, const simt::Global<float>& run_o, Softmax& total,
                             const simt::Global<float>& o) const {
        const float m = total.empty ? of_run.m : max_f32(total.m, of_run.m);
        const float a = exp_f32(total.m - m);
        const float b = exp_f32(of_run.m - m);
        for (int64_t d = 0; d < head_dim; ++d) {
            o[d] = total.empty ? static_cast<float>(run_o[d]) : fma_f32(o[d], a, run_o[d] * b);
        }
        total.l = total.empty ? of_run.l : fma_f32(total.l, a, of_run.l * b);
        total.m = m;
        total.empty = false;
    }
};

int64_t workspace_floats(const verbatim_attention& op) { return op.q.num_rows * op.n_heads * 2 * op.head_dim; }
int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return workspace_floats(*args.attention) * static_cast<int64_t>(sizeof(float));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_attention& op = *run->args.attention;
    const int64_t num_sequences = op.sequences.num_sequences;
    const int64_t pages = op.num_blocks * op.block_size * op.n_kv_heads * op.head_dim;
    const int32_t threads = sandbox::block_threads(*run, 32);
    sandbox::launch(
        *run, "attention", {sandbox::blocks_for(op.q.num_rows * op.n_heads, threads)}, {threads},
        Attention{op.n_heads, op.n_kv_heads, op.head_dim, op.max_blocks, op.block_size, num_sequences, op.scale,
                  sandbox::view(*run, op.sequences.first_row, num_sequences + 1),
                  sandbox::view(*run, op.first_position, num_sequences),
                  sandbox::view(*run, op.block_tables, num_sequences * op.max_blocks), sandbox::view(*run, op.k, pages),
                  sandbox::view(*run, op.v, pages), sandbox::rows_view(*run, op.q), sandbox::rows_view(*run, op.out),
                  sandbox::view(*run, static_cast<float*>(run->workspace), workspace_floats(op))});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "attention",
    .profile = "exact",
    .machine = "cuda",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = workspace_bytes,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
