// kernels/cuda/ops/experts.h: owns the multiplication of rows by their chosen experts (reference/ops/experts.h). An
// entry is a row with one of its experts. Entries are sorted by expert, and by row within an expert, so that an
// expert's weights are read once for many rows. Up to part_rows entries of one expert form a part, which a row of CTAs
// multiplies like a separate matmul: an entry's result does not depend on the other entries. The maximal number of
// parts follows from the number of rows alone; parts that a choice leaves unused have no entries.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/hopper_matmul.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/matmul_items.h"
#include "kernels/cuda/ops/matvec.h"
#include "kernels/cuda/ops/rows.h"
#include "kernels/cuda/ops/tensor_items.h"
#include "kernels/cuda/ops/tensor_matmul.h"
#include "kernels/cuda/ops/tensor_matvec.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

SIMT_FUNCTION int32_t count_bits(uint32_t bits) {
    bits = bits - (bits >> 1 & 0x55555555U);
    bits = (bits & 0x33333333U) + (bits >> 2 & 0x33333333U);
    return static_cast<int32_t>(((bits + (bits >> 4)) & 0x0F0F0F0FU) * 0x01010101U >> 24);
}

// One CTA per expert: counts the entries of all lower experts and lists the expert's own entries in row order. Up to 8
// warps.
inline constexpr int kListWarps = 8;
struct ListEntries {
    KernelRows<const float> chosen;
    int32_t n_chosen;
    int32_t part_rows;
    bool parts_by_entry;            // a part's index is its first entry's
    simt::Global<int32_t> rows;     // [entries]
    simt::Global<int32_t> entries;  // [num_rows, n_chosen]
    simt::Global<DeviceExpertPart> parts;

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(int32_t, counts, 2 * kListWarps);
        const int warp = simt::thread_x() / simt::kWarpSize;
        const int lane = simt::thread_x() % simt::kWarpSize;
        const auto num_entries = static_cast<int32_t>(chosen.num_rows) * n_chosen;
        int32_t before = 0;
        int32_t own = 0;
        for (int32_t slot = simt::thread_x(); slot < num_entries; slot += simt::threads_x()) {
            const int32_t id = id_at(slot);
            before += id < simt::block_x() ? 1 : 0;
            own += id == simt::block_x() ? 1 : 0;
        }
        for (int lanes = simt::kWarpSize / 2; lanes >= 1; lanes /= 2) {
            before += simt::shuffle_xor(simt::kFullWarp, before, lanes);
            own += simt::shuffle_xor(simt::kFullWarp, own, lanes);
        }
        if (lane == 0) {
            counts[warp] = before;
            counts[kListWarps + warp] = own;
        }
        simt::sync_block();
        before = sum_of(counts, 0, simt::threads_x() / simt::kWarpSize);
        own = sum_of(counts, kListWarps, simt::threads_x() / simt::kWarpSize);
        list_parts(before, own);
        if (own > 0) list_own(before, num_entries, counts);
    }

    SIMT_FUNCTION int32_t id_at(int32_t slot) const {
        const float id = chosen.data[chosen.at(slot / n_chosen, slot % n_chosen)];
        return static_cast<int32_t>(static_cast<uint64_t>(id));
    }
    SIMT_FUNCTION static int32_t sum_of(const simt::Shared<int32_t>& counts, int first, int num) {
        int32_t sum = 0;
        for (int i = 0; i < num; ++i) sum += counts[first + i];
        return sum;
    }
    // Processes one slot per thread at a time: a prefix sum over the threads gives each entry's index.
    SIMT_FUNCTION void list_own(int32_t next, int32_t num_entries, const simt::Shared<int32_t>& counts) const {
        const int warp = simt::thread_x() / simt::kWarpSize;
        const int lane = simt::thread_x() % simt::kWarpSize;
        for (int32_t first = 0; first < num_entries; first += simt::threads_x()) {
            const int32_t slot = first + simt::thread_x();
            const bool mine = slot < num_entries && id_at(slot) == simt::block_x();
            const uint32_t lanes = simt::ballot(simt::kFullWarp, mine);
            simt::sync_block();  // the previous counts have been read
            if (lane == 0) counts[warp] = count_bits(lanes);
            simt::sync_block();
            if (mine) {
                const int32_t entry = next + sum_of(counts, 0, warp) + count_bits(lanes & ((1U << lane) - 1));
                rows[entry] = slot / n_chosen;
                entries[slot] = entry;
            }
            next += sum_of(counts, 0, simt::threads_x() / simt::kWarpSize);
        }
    }
    // The first part of an expert whose first entry is `entry`. The formula leaves room for all parts of the expert
    // before it.
    SIMT_FUNCTION int32_t first_part(int32_t expert, int32_t entry) const {
        return parts_by_entry ? entry : entry / part_rows + expert;
    }
    SIMT_FUNCTION void list_parts(int32_t first, int32_t count) const {
        const int32_t begin = first_part(simt::block_x(), first);
        const int32_t end = first_part(simt::block_x() + 1, first + count);
        for (int32_t i = begin + simt::thread_x(); i < end; i += simt::threads_x()) {
            const int32_t done = (i - begin) * part_rows;
            const int32_t left = count - done;
            const int32_t num = left < part_rows ? left : part_rows;
            parts[i] = DeviceExpertPart{simt::block_x(), first + done, num > 0 ? num : 0};
        }
    }
};

// Gathers the entries' inputs into consecutive rows. One thread per word.
struct GatherEntries {
    simt::Global<const uint32_t> x;  // [num_rows, row_words]
    int64_t row_words;
    simt::Global<const int32_t> rows;
    simt::Global<uint32_t> out;  // [entries, row_words]
    SIMT_FUNCTION void operator()() const {
        const int64_t entry = simt::block_x();
        const int64_t i = element_of_row();
        if (i < row_words) out[entry * row_words + i] = x[rows[entry] * row_words + i];
    }
};

// Replaces a matmul's parameters by a part's rows and its expert's weights.
SIMT_FUNCTION void take_part(MatmulParameters& own, const DeviceExpertPart& part, int64_t matrix_words) {
    own.x = own.x.from(part.first_entry * own.row_pairs);
    own.weight = own.weight.from(part.expert * matrix_words);
    own.out.data = own.out.data.from(part.first_entry * own.out.stride);
    own.out.num_rows = part.num_entries;
}
SIMT_FUNCTION void take_part(MatvecParameters& own, const DeviceExpertPart& part, int64_t matrix_words) {
    own.pairs = own.pairs.from(part.first_entry * own.row_pairs);
    own.first.weight = own.first.weight.from(part.expert * matrix_words);
    own.first.out.data = own.first.out.data.from(part.first_entry * own.first.out.stride);
    own.num_rows = part.num_entries;
}
SIMT_FUNCTION void take_part(TensorParameters& own, const DeviceExpertPart& part, int64_t matrix_words) {
    own.x = own.x.from(part.first_entry * own.row_pairs());
    own.fragments = own.fragments.from(part.expert * matrix_words);
    own.out.data = own.out.data.from(part.first_entry * own.out.stride);
    own.out.num_rows = part.num_entries;
}

// Runs a matmul kernel for part block_z.
template <typename Multiply>
struct OfExperts {
    Multiply all;  // entries; consecutive weights of all experts
    simt::Global<const DeviceExpertPart> parts;
    int64_t matrix_words;
    SIMT_FUNCTION void operator()() const {
        const DeviceExpertPart part = parts[simt::block_z()];
        if (part.num_entries == 0) return;
        Multiply own = all;
        take_part(own, part, matrix_words);
        own();
    }
};
template <typename Multiply>
struct OfExpertsInLargeShared : OfExperts<Multiply> {
    static constexpr int kSharedBytes = Multiply::kSharedBytes;
};
template <typename Multiply>
struct OfExpertsResident : OfExperts<Multiply> {
    static constexpr int kThreads = Multiply::kThreads;
    static constexpr int kResidentBlocks = Multiply::kResidentBlocks;
};
template <typename Multiply>
struct OfExpertsInLargeSharedResident : OfExpertsResident<Multiply> {
    static constexpr int kSharedBytes = Multiply::kSharedBytes;
};
struct ExpertMatvec1 : OfExpertsResident<Matvec1> {};
struct ExpertMatvec2 : OfExpertsResident<Matvec2> {};
struct ExpertMatvec4 : OfExpertsResident<Matvec4> {};
struct ExpertMatmul8 : OfExpertsInLargeSharedResident<Matmul8> {};
struct ExpertMatmul16 : OfExpertsInLargeSharedResident<Matmul16> {};
struct ExpertMatmul32 : OfExpertsInLargeSharedResident<Matmul32> {};
struct ExpertMatmul : OfExpertsResident<Matmul> {};
struct TensorExpertMatvec8 : OfExpertsResident<TensorMatvec8> {};
struct TensorExpertItems16 : OfExpertsInLargeSharedResident<TensorItems16> {};
struct TensorExpertItems32 : OfExpertsInLargeSharedResident<TensorItems32> {};
struct TensorExpertMatmul : OfExpertsInLargeShared<TensorMatmul> {};
// 128 outputs by the 128 rows of a part.
struct HopperPart : HopperBlocks<128, 6, true> {};
struct HopperExpertMatmul : OfExpertsInLargeSharedResident<HopperPart> {};

// Adds a row's experts in ascending id, from +0. One thread per pair.
struct Combine {
    KernelRows<const float> chosen;
    int32_t n_chosen;
    simt::Global<const int32_t> entries;  // [num_rows, n_chosen]
    KernelRows<const float> results;      // [entries, width]
    KernelRows<float> out;
    KernelPairs pairs;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        replace_pair(out, pairs, [&](int64_t j) -> float {
            float acc = 0.0F;
            for (int32_t i = 0; i < n_chosen; ++i) {
                const int64_t entry = entries[row * n_chosen + i];
                const float weight = chosen.data[chosen.at(row, n_chosen + i)];
                acc = reference::fma_f32(weight, results.data[results.at(entry, j)], acc);
            }
            return acc;
        });
    }
};

// Adds the routed experts to the shared expert's branch, in place.
struct AddRouted {
    KernelRows<const float> routed;
    bool gated;
    KernelRows<const float> gate;  // [num_rows, 1]
    KernelRows<float> branch;
    SIMT_FUNCTION void operator()() const {
        const int64_t row = simt::block_x();
        const int64_t i = element_of_row();
        if (i >= branch.width) return;
        const float open = gated ? reference::sigmoid_f32(gate.data[gate.at(row, 0)]) : 1.0F;
        const float rest = routed.data[routed.at(row, i)];
        const int64_t at = branch.at(row, i);
        branch.data[at] = gated ? reference::fma_f32(open, branch.data[at], rest) : rest + branch.data[at];
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
