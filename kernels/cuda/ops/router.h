// kernels/cuda/ops/router.h: owns a mixture's router (reference/ops/router.h): the rows' logits and chosen experts.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/norms.h"
#include "kernels/cuda/ops/rows.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

inline constexpr int kRouteRows = 4;    // per CTA: they share the loaded weights
inline constexpr int kRouteChunks = 4;  // least chunks in parallel per CTA: one warp adds their sums
static_assert(kRouteExperts * kRouteChunks == simt::kWarpSize && kRouteExperts * kRouteRows == simt::kWarpSize);

// The dot products of N3 over binary32 weights. CTAs of (8 experts, chunks), kMaxRouteChunks at most, take 8 experts
// and 4 rows; chunk sums are added in order.
inline constexpr int kMaxRouteChunks = 16;
struct Route {
    simt::Global<const uint32_t> x;  // [num_rows, row_pairs]
    int64_t row_pairs;
    simt::Global<const float> weight;  // DeviceRouter
    int64_t num_pairs;
    KernelRows<float> out;
    using Sums = float[kRouteRows];

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, sums, kMaxRouteChunks* kRouteRows* kRouteExperts);
        const int thread = simt::thread_y() * kRouteExperts + simt::thread_x();
        const int64_t first_row = int64_t{simt::block_y()} * kRouteRows;
        const int64_t chunks = simt::threads_y();
        float total = 0.0F;  // for one row and expert, in the first warp
        for (int64_t first = 0; first < num_pairs; first += chunks * kChunkPairs) {
            leave_chunk(first + int64_t{simt::thread_y()} * kChunkPairs, first_row, sums);
            simt::sync_block();
            for (int c = 0; thread < simt::kWarpSize && c < chunks && first + c * kChunkPairs < num_pairs; ++c) {
                total = total + sums[c * simt::kWarpSize + thread];
            }
            simt::sync_block();
        }
        const int64_t row = first_row + thread / kRouteExperts;
        const int64_t expert = int64_t{simt::block_x()} * kRouteExperts + thread % kRouteExperts;
        if (thread < simt::kWarpSize && row < out.num_rows && expert < out.width) out.data[out.at(row, expert)] = total;
    }

    // Stores the sums of the chunk that begins at pair `begin`, if it exists: [chunks][rows][experts].
    SIMT_FUNCTION void leave_chunk(int64_t begin, int64_t first_row, const simt::Shared<float>& sums) const {
        if (begin >= num_pairs) return;
        const int64_t end = begin + kChunkPairs < num_pairs ? begin + kChunkPairs : num_pairs;
        Sums acc = {};
        for (int64_t pair = begin; pair < end; pair += 4) add_pairs(pair, end, first_row, acc);
        SIMT_UNROLL
        for (int r = 0; r < kRouteRows; ++r) {
            sums[(simt::thread_y() * kRouteRows + r) * kRouteExperts + simt::thread_x()] = acc[r];
        }
    }
    // Adds four pairs; pairs beyond the last are +0.
    SIMT_FUNCTION void add_pairs(int64_t pair, int64_t end, int64_t first_row, Sums& acc) const {
        const int64_t place = (simt::block_x() * num_pairs + pair) * 2 * kRouteExperts + simt::thread_x();
        float w[8] = {};
        SIMT_UNROLL
        for (int i = 0; i < 8; ++i) {
            if (pair + i / 2 < end) w[i] = weight[place + i * kRouteExperts];
        }
        SIMT_UNROLL
        for (int r = 0; r < kRouteRows; ++r) {
            if (first_row + r >= out.num_rows) continue;
            const simt::Four<uint32_t> in = simt::load4(x, (first_row + r) * row_pairs + pair);
            SIMT_UNROLL
            for (int i = 0; i < 4; ++i) {
                acc[r] = reference::fma_f32(odd_half(in.values[i]), w[2 * i + 1], acc[r]);
                acc[r] = reference::fma_f32(even_half(in.values[i]), w[2 * i], acc[r]);
            }
        }
    }
};

// Softmax in place over a warp's values; lane l holds those at l + 32 · i: two of N4's partial sums.
SIMT_FUNCTION void softmax_of_warp(const simt::Shared<float>& values, int32_t count) {
    const int lane = simt::thread_x();
    float greatest = reference::float_from_bits(0xFF800000U);  // -infinity
    for (int32_t i = lane; i < count; i += simt::kWarpSize) greatest = reference::max_f32(greatest, values[i]);
    for (int lanes = simt::kWarpSize / 2; lanes >= 1; lanes /= 2) {
        greatest = reference::max_f32(greatest, simt::shuffle_xor(simt::kFullWarp, greatest, lanes));
    }
    float partials[2] = {};
    SIMT_UNROLL
    for (int half = 0; half < 2; ++half) {
        for (int32_t i = half * simt::kWarpSize + lane; i < count; i += kPartials) {
            const float p = reference::exp_f32(values[i] - greatest);
            values[i] = p;
            partials[half] = partials[half] + p;
        }
    }
    float sum = partials[0] + partials[1];
    for (int lanes = simt::kWarpSize / 2; lanes >= 1; lanes /= 2) {
        sum = sum + simt::shuffle_xor(simt::kFullWarp, sum, lanes);
    }
    for (int32_t i = lane; i < count; i += simt::kWarpSize) values[i] = values[i] / sum;
}

// One warp (a CTA) per row. Scores map to integer keys: a greater key comes first, the key of NaN is 1, and 0 excludes
// an expert.
struct Choose {
    ChooseShape of;
    KernelRows<const float> logits;
    simt::Global<const float> choice_bias;
    KernelRows<float> out;

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, scores, kMaxExperts);
        SIMT_SHARED(uint32_t, keys, kMaxExperts);
        SIMT_SHARED(uint32_t, group_keys, kMaxExperts);
        SIMT_SHARED(int32_t, picked, kMaxExperts);
        SIMT_SHARED(float, weights, kMaxExperts);
        const int64_t row = simt::block_x();
        const int lane = simt::thread_x();
        for (int32_t e = lane; e < of.n_experts; e += simt::kWarpSize) scores[e] = logits.data[logits.at(row, e)];
        if (of.score == RouterScore::kSoftmaxAll) softmax_of_warp(scores, of.n_experts);
        for (int32_t e = lane; e < of.n_experts; e += simt::kWarpSize) {
            if (of.score == RouterScore::kSigmoidBias) scores[e] = reference::sigmoid_f32(scores[e]);
            keys[e] = key_of(choice(scores, e));
        }
        if (of.n_groups > 1) exclude_groups(scores, keys, group_keys, picked);
        pick(keys, of.n_experts, of.n_chosen, picked);
        for (int32_t i = lane; i < of.n_chosen; i += simt::kWarpSize) {
            const int32_t id = picked[i];
            int32_t place = 0;
            for (int32_t other = 0; other < of.n_chosen; ++other) place += picked[other] < id ? 1 : 0;
            weights[place] = scores[id];
            out.data[out.at(row, place)] = static_cast<float>(id);
        }
        leave_weights(row, weights);
    }

    SIMT_FUNCTION static uint32_t key_of(float score) {
        if (score != score) return 1;
        const uint32_t bits = reference::bits_from_float(score == 0.0F ? 0.0F : score);  // -0 equals +0
        return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
    }
    SIMT_FUNCTION float choice(const simt::Shared<float>& scores, int32_t e) const {
        const float score = scores[e];
        return of.score == RouterScore::kSigmoidBias ? score + choice_bias[e] : score;
    }

    // Picks the indices of the `count` greatest keys, the lower index among equals, and sets these keys to 0.
    SIMT_FUNCTION static void pick(const simt::Shared<uint32_t>& keys, int32_t num, int32_t count,
                                   const simt::Shared<int32_t>& picked) {
        simt::sync_block();
        for (int32_t n = 0; n < count; ++n) {
            uint32_t key = 0;
            int32_t place = num;
            for (int32_t i = simt::thread_x(); i < num; i += simt::kWarpSize) {
                const uint32_t other = keys[i];
                if (!comes_first(other, i, key, place)) continue;
                key = other;
                place = i;
            }
            for (int lanes = simt::kWarpSize / 2; lanes >= 1; lanes /= 2) {
                const uint32_t other = simt::shuffle_xor(simt::kFullWarp, key, lanes);
                const int32_t there = simt::shuffle_xor(simt::kFullWarp, place, lanes);
                if (!comes_first(other, there, key, place)) continue;
                key = other;
                place = there;
            }
            if (simt::thread_x() != place % simt::kWarpSize) continue;
            keys[place] = 0;
            picked[n] = place;
        }
        simt::sync_block();
    }
    SIMT_FUNCTION static bool comes_first(uint32_t key, int32_t place, uint32_t than, int32_t there) {
        return key > than || (key == than && place < there);
    }

    // Sets the keys of experts in excluded groups to 0.
    SIMT_FUNCTION void exclude_groups(const simt::Shared<float>& scores, const simt::Shared<uint32_t>& keys,
                                      const simt::Shared<uint32_t>& group_keys,
                                      const simt::Shared<int32_t>& picked) const {
        const int32_t size = of.n_experts / of.n_groups;
        simt::sync_block();
        for (int32_t g = simt::thread_x(); g < of.n_groups; g += simt::kWarpSize) {
            int32_t first = g * size;
            int32_t second = -1;
            for (int32_t e = g * size + 1; e < (g + 1) * size; ++e) {
                if (keys[e] > keys[first]) {
                    second = first;
                    first = e;
                } else if (second < 0 || keys[e] > keys[second]) {
                    second = e;
                }
            }
            group_keys[g] = key_of(choice(scores, first) + choice(scores, second));
        }
        pick(group_keys, of.n_groups, of.n_chosen_groups, picked);
        for (int32_t e = simt::thread_x(); e < of.n_experts; e += simt::kWarpSize) {
            if (group_keys[e / size] != 0) keys[e] = 0;
        }
    }

    // `weights`: the chosen experts' scores in ascending id.
    SIMT_FUNCTION void leave_weights(int64_t row, const simt::Shared<float>& weights) const {
        simt::sync_block();
        if (of.score == RouterScore::kSoftmaxChosen) softmax_of_warp(weights, of.n_chosen);
        simt::sync_block();
        float total = 0.0F;
        for (int32_t i = 0; of.normalize && i < of.n_chosen; ++i) total = total + weights[i];
        total = total + of.sum_epsilon;
        for (int32_t i = simt::thread_x(); i < of.n_chosen; i += simt::kWarpSize) {
            const float weight = weights[i];
            out.data[out.at(row, of.n_chosen + i)] = (of.normalize ? weight / total : weight) * of.scale;
        }
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
