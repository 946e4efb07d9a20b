// kernels/cuda/ops/sampling.h: owns reference/ops/sampling.h on a device, from rows of logits to tokens. Sums are
// integers and keys are distinct, so results do not depend on the order of threads; nothing is sorted.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/rows.h"
#include "reference/numerics/draw.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// The division of step 2: logits ÷ temperature; a greedy row is copied.
struct ScaleDraw {
    simt::Global<const DeviceDraw> draws;
    KernelRows<const float> logits;
    KernelRows<float> scaled;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= scaled.width) return;
        const float temperature = static_cast<DeviceDraw>(draws[row]).temperature;
        const float l = logits.data[logits.at(row, i)];
        scaled.data[scaled.at(row, i)] = temperature == 0.0F ? l : l / temperature;
    }
};

// Step 1: recomputes the logits of penalised tokens, with the division. One CTA per row.
struct Penalise {
    simt::Global<const DeviceDraw> draws;
    simt::Global<const DeviceTokenCount> counts;
    KernelRows<const float> logits;
    KernelRows<float> scaled;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const DeviceDraw draw = draws[row];
        for (int32_t i = simt::thread_x(); i < draw.num_counts; i += simt::threads_x()) {
            const DeviceTokenCount token = counts[draw.first_count + i];
            const float l = reference::penalised_logit(logits.data[logits.at(row, token.id)],
                                                       {draw.repetition, draw.presence, draw.frequency}, token.count);
            scaled.data[scaled.at(row, token.id)] = draw.temperature == 0.0F ? l : l / draw.temperature;
        }
    }
};

// A token's rank in the order of step 3 as an integer: a greater key comes first, and keys are distinct.
SIMT_FUNCTION uint64_t order_key(float l, int64_t id, int64_t vocab_size) {
    const uint32_t bits = reference::bits_from_float(l == 0.0F ? 0.0F : l);  // -0 equals +0
    const uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
    return uint64_t{ascending} << 32 | static_cast<uint64_t>(vocab_size - 1 - id);
}
SIMT_FUNCTION int64_t id_of_key(uint64_t key, int64_t vocab_size) {
    return vocab_size - 1 - static_cast<int64_t>(key & 0xFFFFFFFFU);
}

inline constexpr int kKeepThreads = 512;
inline constexpr int kKeepAhead = 8;  // tokens per thread
inline constexpr int kDigits = 16;    // a key is found four bits at a time

// Steps 3 and 4: finds the lowest key that is kept, 0 when all are. One CTA per row. A radix select: for each digit,
// the amounts of the tokens that match the digits found so far are added up by their next digit; each lane of a warp
// has a column of sums.
struct KeepMost {
    simt::Global<const DeviceDraw> draws;
    KernelRows<const float> scaled;
    simt::Global<uint64_t> lowest;  // [num_rows]

    struct Memory {
        simt::Shared<uint64_t> columns;  // [16 digits, 32 lanes]
        simt::Shared<uint64_t> totals;   // [16 digits]
        simt::Shared<uint64_t> answer;   // [2]
    };

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(uint64_t, columns, kDigits * simt::kWarpSize);
        SIMT_SHARED(uint64_t, totals, kDigits);
        SIMT_SHARED(uint64_t, answer, 2);
        const Memory memory{columns, totals, answer};
        const int64_t row = simt::block_x();
        const DeviceDraw draw = draws[row];
        const bool draws_at_random = draw.temperature != 0.0F;
        uint64_t low = 0;
        if (draws_at_random && draw.top_k > 0 && draw.top_k < scaled.width) {
            const auto one = [](float) -> uint64_t { return 1; };
            low = select(row, 0, static_cast<uint64_t>(draw.top_k), one, memory);
        }
        if (draws_at_random && draw.top_p < 1.0F) {
            const float max = greatest(row, memory);
            const auto weight = [max](float l) -> uint64_t { return reference::sampling_weight(l, max); };
            const uint64_t mass = reference::sampling_mass(draw.top_p, total(row, low, weight, memory));
            low = select(row, low, mass, weight, memory);
        }
        if (simt::thread_x() == 0) lowest[row] = low;
    }

    // call(logit, key) for this thread's tokens of a row; the loads of kKeepAhead tokens are in flight at once.
    template <typename Call>
    SIMT_FUNCTION void for_tokens(int64_t row, const Call& call) const {
        for (int64_t first = simt::thread_x(); first < scaled.width; first += kKeepAhead * kKeepThreads) {
            float logits[kKeepAhead] = {};
            SIMT_UNROLL
            for (int i = 0; i < kKeepAhead; ++i) {
                const int64_t id = first + i * kKeepThreads;
                if (id < scaled.width) logits[i] = scaled.data[scaled.at(row, id)];
            }
            SIMT_UNROLL
            for (int i = 0; i < kKeepAhead; ++i) {
                const int64_t id = first + i * kKeepThreads;
                if (id < scaled.width) call(logits[i], order_key(logits[i], id, scaled.width));
            }
        }
    }

    // The greatest key, at least `low`, such that the amounts of tokens with this key or a greater one sum to `target`.
    template <typename Amount>
    SIMT_FUNCTION uint64_t select(int64_t row, uint64_t low, uint64_t target, const Amount& amount,
                                  const Memory& memory) const {
        uint64_t prefix = 0;
        for (int shift = 60; shift >= 0; shift -= 4) {
            if (shift < 32 && (scaled.width - 1) >> shift == 0) {  // no id has this digit
                prefix <<= 4;
                continue;
            }
            clear(memory);
            for_tokens(row, [&](float logit, uint64_t k) {
                if (k < low || k >> shift >> 4 != prefix) return;
                const auto digit = static_cast<int64_t>(k >> shift & (kDigits - 1));
                const int64_t at = digit * simt::kWarpSize + simt::thread_x() % simt::kWarpSize;
                simt::atomic_add(memory.columns, at, amount(logit));
            });
            add_columns(memory);
            if (simt::thread_x() == 0) {
                int digit = kDigits - 1;
                for (; digit > 0 && memory.totals[digit] < target; --digit) target -= memory.totals[digit];
                memory.answer[0] = static_cast<uint64_t>(digit);
                memory.answer[1] = target;
            }
            simt::sync_block();
            prefix = prefix << 4 | memory.answer[0];
            target = memory.answer[1];
        }
        return prefix;
    }

    // The sum of the amounts of tokens with keys from `low` up.
    template <typename Amount>
    SIMT_FUNCTION uint64_t total(int64_t row, uint64_t low, const Amount& amount, const Memory& memory) const {
        clear(memory);
        uint64_t mine = 0;
        for_tokens(row, [&](float logit, uint64_t k) {
            if (k >= low) mine += amount(logit);
        });
        simt::atomic_add(memory.columns, simt::thread_x(), mine);
        add_columns(memory);
        uint64_t sum = 0;
        for (int digit = 0; digit < kDigits; ++digit) sum += memory.totals[digit];
        return sum;
    }

    SIMT_FUNCTION float greatest(int64_t row, const Memory& memory) const {
        uint64_t mine = 0;
        for_tokens(row, [&](float, uint64_t k) { mine = k > mine ? k : mine; });
        memory.columns[simt::thread_x()] = mine;
        simt::sync_block();
        if (simt::thread_x() < kDigits) {
            const int64_t first = int64_t{simt::thread_x()} * simt::kWarpSize;
            memory.totals[simt::thread_x()] = greatest_of(memory.columns, first, simt::kWarpSize);
        }
        simt::sync_block();
        const uint64_t top = greatest_of(memory.totals, 0, kDigits);
        simt::sync_block();
        return scaled.data[scaled.at(row, id_of_key(top, scaled.width))];
    }
    SIMT_FUNCTION static uint64_t greatest_of(const simt::Shared<uint64_t>& keys, int64_t first, int count) {
        uint64_t top = 0;
        for (int i = 0; i < count; ++i) {
            const uint64_t k = keys[first + i];
            top = k > top ? k : top;
        }
        return top;
    }

    // REQUIRES: a barrier after the last read of the columns.
    SIMT_FUNCTION void clear(const Memory& memory) const {
        for (int i = simt::thread_x(); i < kDigits * simt::kWarpSize; i += kKeepThreads) memory.columns[i] = 0;
        simt::sync_block();
    }
    SIMT_FUNCTION void add_columns(const Memory& memory) const {
        simt::sync_block();
        if (simt::thread_x() < kDigits) {
            uint64_t sum = 0;
            for (int i = 0; i < simt::kWarpSize; ++i) sum += memory.columns[simt::thread_x() * simt::kWarpSize + i];
            memory.totals[simt::thread_x()] = sum;
        }
        simt::sync_block();
    }
};
static_assert(kKeepThreads == kDigits * simt::kWarpSize, "a thread's sum has a column of its own");

// The best of a set of tokens: the greatest score, the lowest id among equal scores. id -1: none.
struct Best {
    float score;
    int32_t id;
    SIMT_FUNCTION void take(float other_score, int32_t other_id) {
        if (other_id < 0) return;
        const bool better = id < 0 || other_score > score || (other_score == score && other_id < id);
        if (better) score = other_score;
        if (better) id = other_id;
    }
};

inline constexpr int kScoreThreads = 64;
static_assert(kScoreThreads == 2 * simt::kWarpSize, "two warps are compared at the end");

// The best of a CTA of 64 threads; thread 0 receives it.
SIMT_FUNCTION Best best_of_block(Best best, const simt::Shared<float>& scores, const simt::Shared<int32_t>& ids) {
    for (int lanes = simt::kWarpSize / 2; lanes >= 1; lanes /= 2) {
        const float score = simt::shuffle_down(simt::kFullWarp, best.score, lanes);
        const int32_t id = simt::shuffle_down(simt::kFullWarp, best.id, lanes);
        best.take(score, id);
    }
    if (simt::thread_x() % simt::kWarpSize == 0) {
        scores[simt::thread_x() / simt::kWarpSize] = best.score;
        ids[simt::thread_x() / simt::kWarpSize] = best.id;
    }
    simt::sync_block();
    if (simt::thread_x() == 0) best.take(scores[1], ids[1]);
    return best;
}

// Step 5, or step 2 for a greedy row: the best of 1024 tokens. A thread takes four consecutive tokens at a time,
// because they share the words of one noise counter.
struct ScorePart {
    simt::Global<const DeviceDraw> draws;
    simt::Global<const uint64_t> lowest;
    KernelRows<const float> scaled;
    simt::Global<float> scores;  // [num_rows, num_parts]
    simt::Global<int32_t> ids;   // [num_rows, num_parts]
    int64_t num_parts;
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, warp_scores, 2);
        SIMT_SHARED(int32_t, warp_ids, 2);
        const int64_t row = simt::block_x();
        const int64_t part = simt::block_y();
        const DeviceDraw draw = draws[row];
        const uint64_t low = lowest[row];
        Best best{0.0F, -1};
        for (int64_t first = 4 * simt::thread_x(); first < kDrawPart; first += 4 * kScoreThreads) {
            take_four(row, part * kDrawPart + first, draw, low, best);
        }
        best = best_of_block(best, warp_scores, warp_ids);
        if (simt::thread_x() != 0) return;
        scores[row * num_parts + part] = best.score;
        ids[row * num_parts + part] = best.id;
    }

    SIMT_FUNCTION void take_four(int64_t row, int64_t first, const DeviceDraw& draw, uint64_t low, Best& best) const {
        if (first >= scaled.width) return;
        const reference::PhiloxWords words =
            reference::noise_words(draw.seed, draw.position, static_cast<uint32_t>(first / 4));
        SIMT_UNROLL
        for (int i = 0; i < 4; ++i) {
            if (first + i >= scaled.width) continue;
            const float l = scaled.data[scaled.at(row, first + i)];
            if (order_key(l, first + i, scaled.width) < low) continue;
            best.take(draw.temperature == 0.0F ? l : l + reference::gumbel_of(words.word[i]),
                      static_cast<int32_t>(first + i));
        }
    }
};

// The best of a row's parts. One CTA per row.
struct PickToken {
    simt::Global<const float> scores;  // [num_rows, num_parts]
    simt::Global<const int32_t> ids;   // [num_rows, num_parts]
    int64_t num_parts;
    simt::Global<int32_t> tokens;  // [num_rows]
    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, warp_scores, 2);
        SIMT_SHARED(int32_t, warp_ids, 2);
        const int64_t row = simt::block_x();
        Best best{0.0F, -1};
        for (int64_t part = simt::thread_x(); part < num_parts; part += kScoreThreads) {
            best.take(scores[row * num_parts + part], ids[row * num_parts + part]);
        }
        best = best_of_block(best, warp_scores, warp_ids);
        if (simt::thread_x() == 0) tokens[row] = best.id;
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
