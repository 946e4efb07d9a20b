// The plain loops of sampling for CUDA, per `verbatim kernel list --contract sampling`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/draw.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::bits_from_float;
using verbatim::reference::gumbel_noise;
using verbatim::reference::penalised_logit;
using verbatim::reference::sampling_mass;
using verbatim::reference::sampling_weight;

// One thread per row; its penalised and divided logits are in the workspace.
struct Sampling {
    sandbox::RowsView<const float> logits;
    simt::Global<const uint64_t> draws;  // [num_rows, 5] words of verbatim_draw
    simt::Global<const int32_t> prompt, num_prompt, generated, num_generated;
    int64_t max_prompt, max_generated;
    simt::Global<int32_t> tokens;
    simt::Global<float> workspace;

    SIMT_FUNCTION verbatim_draw draw_of(int64_t row) const {
        uint64_t words[sizeof(verbatim_draw) / 8];
        for (int i = 0; i < static_cast<int>(sizeof(verbatim_draw) / 8); ++i) {
            words[i] = draws[row * static_cast<int64_t>(sizeof(verbatim_draw) / 8) + i];
        }
        verbatim_draw draw;
        __builtin_memcpy(&draw, words, sizeof(draw));
        return draw;
    }
    // How often an id was generated; -1: it is not in the prefix.
    SIMT_FUNCTION int64_t times(int64_t row, int32_t id) const {
        int64_t count = 0;
        bool seen = false;
        for (int64_t i = 0; i < num_prompt[row]; ++i) seen = seen || prompt[row * max_prompt + i] == id;
        for (int64_t i = 0; i < num_generated[row]; ++i) count += generated[row * max_generated + i] == id ? 1 : 0;
        return seen || count > 0 ? count : -1;
    }
    // A rank key: greater for a token earlier in the order, by logit, then by lower id.
    SIMT_FUNCTION static uint64_t order(float l, int64_t id) {
        const uint32_t bits = bits_from_float(l == 0.0F ? 0.0F : l);
        const uint32_t rising = (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
        return uint64_t{rising} << 32 | (0xFFFFFFFFU - static_cast<uint32_t>(id));
    }
    // The greatest bound whose tokens, from it up, weigh at least `wanted`; each weighs 1, or as N7 says.
    SIMT_FUNCTION uint64_t bound(const simt::Global<float>& l, uint64_t least, bool weighs, float max,
                                 uint64_t wanted) const {
        uint64_t result = 0;
        for (int bit = 63; bit >= 0; --bit) {
            const uint64_t tried = result | uint64_t{1} << bit;
            if (weight_from(l, tried > least ? tried : least, weighs, max) >= wanted) result = tried;
        }
        return result > least ? result : least;
    }
    SIMT_FUNCTION uint64_t weight_from(const simt::Global<float>& l, uint64_t from, bool weighs, float max) const {
        uint64_t sum = 0;
        for (int64_t id = 0; id < logits.width; ++id) {
            const float value = l[id];
            if (order(value, id) >= from) sum += weighs ? sampling_weight(value, max) : 1;
        }
        return sum;
    }
    SIMT_FUNCTION void operator()() const {
        const int64_t row = sandbox::global_thread();
        if (row >= logits.num_rows) return;
        const verbatim_draw draw = draw_of(row);
        const auto l = workspace.slice(row * logits.width, logits.width);
        uint64_t first = 0;  // lowest kept key
        float max = 0.0F;
        for (int64_t id = 0; id < logits.width; ++id) {
            float value = logits.data[logits.at(row, id)];
            const int64_t count = times(row, static_cast<int32_t>(id));
            const verbatim::reference::Penalties penalties{draw.repetition_penalty, draw.presence_penalty,
                                                           draw.frequency_penalty};
            if (count >= 0) value = penalised_logit(value, penalties, count);
            if (draw.temperature != 0.0F) value = value / draw.temperature;
            l[id] = value;
            if (id == 0 || value > max) max = value;
            first = order(value, id) > first ? order(value, id) : first;
        }
        tokens[row] = draw.temperature == 0.0F ? static_cast<int32_t>(0xFFFFFFFFU - static_cast<uint32_t>(first))
                                               : picked(draw, l, max);
    }
    SIMT_FUNCTION int32_t picked(const verbatim_draw& draw, const simt::Global<float>& l, float max) const {
        uint64_t least = 0;
        if (draw.top_k > 0 && draw.top_k < logits.width) {
            least = bound(l, 0, false, max, static_cast<uint64_t>(draw.top_k));
        }
        if (draw.top_p < 1.0F) {
            const uint64_t total = weight_from(l, least, true, max);
            least = bound(l, least, true, max, sampling_mass(draw.top_p, total));
        }
        int64_t best = -1;
        float best_score = 0.0F;
        for (int64_t id = 0; id < logits.width; ++id) {
            if (order(l[id], id) < least) continue;
            const float score = l[id] + gumbel_noise(draw.seed, draw.position, static_cast<int32_t>(id));
            if (best < 0 || score > best_score) {
                best = id;
                best_score = score;
            }
        }
        return static_cast<int32_t>(best);
    }
};

int64_t workspace_floats(const verbatim_sampling& op) { return op.logits.num_rows * op.logits.width; }
int64_t workspace_bytes(const verbatim_kernel*, verbatim_args args, int32_t) {
    return workspace_floats(*args.sampling) * static_cast<int64_t>(sizeof(float));
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_sampling& op = *run->args.sampling;
    const int64_t rows = op.logits.num_rows;
    const int64_t words = rows * static_cast<int64_t>(sizeof(verbatim_draw) / 8);
    const int32_t threads = sandbox::block_threads(*run, 32);
    sandbox::launch(
        *run, "sampling", {sandbox::blocks_for(rows, threads)}, {threads},
        Sampling{sandbox::rows_view(*run, op.logits),
                 sandbox::view(*run, reinterpret_cast<const uint64_t*>(op.draws), words),
                 sandbox::view(*run, op.prompt, rows * op.max_prompt), sandbox::view(*run, op.num_prompt, rows),
                 sandbox::view(*run, op.generated, rows * op.max_generated),
                 sandbox::view(*run, op.num_generated, rows), op.max_prompt, op.max_generated,
                 sandbox::view(*run, op.tokens, rows),
                 sandbox::view(*run, static_cast<float*>(run->workspace), workspace_floats(op))});
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "sampling",
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
