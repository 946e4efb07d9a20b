// The integer model of a tensor core over panels: one group of 16 of K for 32 outputs at a time; all rows use a group
// before the next one, so that its weights are unpacked once.
#include "kernels/cpu/ops/tensor_panel.h"

#include <algorithm>

#include "reference/numerics/host_device.h"
#include "reference/numerics/tensor_lanes.h"

namespace verbatim::cpu {

using reference::kTensorChunk;
using reference::kTensorGroup;
using reference::TensorOperand;

namespace {

constexpr int kLanes = 32;           // outputs per vector block
constexpr int64_t kRowsAtOnce = 64;  // whose accumulators stay in the L1 cache
constexpr int64_t kGroupPairs = kTensorGroup / 2;
constexpr int64_t kChunkPairs = kTensorChunk / 2;

// Unpacks a group of up to 8 pairs; missing ones are +0.
VERBATIM_CLONES void take_weights(const Pair* panel, int64_t count, TensorOperand<kLanes>& out) {
    for (int64_t j = 0; j < kGroupPairs; ++j) {
        for (int lane = 0; lane < kLanes; ++lane) {
            const Pair pair = j < count ? panel[j * kPanelOutputs + lane] : Pair{0};
            out.set(static_cast<int>(2 * j), lane, even_bits(pair));
            out.set(static_cast<int>(2 * j + 1), lane, odd_bits(pair));
        }
    }
}

VERBATIM_CLONES void add_group(const TensorOperand<1>& a, const TensorOperand<kLanes>& b, float* acc) {
    reference::tensor_group_lanes(a, b, acc);
}

TensorOperand<1> inputs_of(const Pair* row, int64_t count) {
    TensorOperand<1> inputs;
    for (int64_t j = 0; j < kGroupPairs; ++j) {
        const Pair pair = j < count ? row[j] : Pair{0};
        inputs.set(static_cast<int>(2 * j), 0, even_bits(pair));
        inputs.set(static_cast<int>(2 * j + 1), 0, odd_bits(pair));
    }
    return inputs;
}

// Rows [first_row, first_row + num_rows) by outputs [first_lane, first_lane + kLanes).
void multiply(const PanelArgs& args, int64_t first_row, int64_t num_rows, int64_t first_lane) {
    float total[kRowsAtOnce][kLanes] = {};
    float acc[kRowsAtOnce][kLanes];
    TensorOperand<kLanes> weights;
    for (int64_t chunk = 0; chunk < args.rows.num_pairs; chunk += kChunkPairs) {
        const int64_t end = std::min(chunk + kChunkPairs, args.rows.num_pairs);
        for (int64_t r = 0; r < num_rows; ++r) std::fill_n(acc[r], kLanes, 0.0F);
        for (int64_t j = chunk; j < end; j += kGroupPairs) {
            const int64_t count = std::min(kGroupPairs, end - j);
            take_weights(args.panel + j * kPanelOutputs + first_lane, count, weights);
            for (int64_t r = 0; r < num_rows; ++r) {
                const Pair* row = args.rows.pairs + (first_row + r) * args.rows.num_pairs + j;
                add_group(inputs_of(row, count), weights, acc[r]);
            }
        }
        for (int64_t r = 0; r < num_rows; ++r) {
            for (int lane = 0; lane < kLanes; ++lane) total[r][lane] += acc[r][lane];
        }
    }
    for (int64_t r = 0; r < num_rows; ++r) {
        float* out = args.out + (first_row + r) * args.out_stride + first_lane;
        for (int lane = 0; lane < kLanes; ++lane) {
            out[lane] = args.bias != nullptr ? total[r][lane] + args.bias[first_lane + lane] : total[r][lane];
        }
    }
}

}  // namespace

void tensor_panel(const PanelArgs& args) {
    for (int64_t row = 0; row < args.rows.num_rows; row += kRowsAtOnce) {
        const int64_t num_rows = std::min(kRowsAtOnce, args.rows.num_rows - row);
        for (int64_t lane = 0; lane < kPanelOutputs; lane += kLanes) multiply(args, row, num_rows, lane);
    }
}

}  // namespace verbatim::cpu
