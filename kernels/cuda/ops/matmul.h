// kernels/cuda/ops/matmul.h: owns N3's dot products for many rows. A lane computes whole outputs: one accumulator per
// output and chunk takes the chunk's pairs in order, and chunk sums are added in order. Weights have the layout of
// DeviceMatrix, 64 outputs side by side. The choice between this kernel and those of ops/matvec.h and
// ops/matmul_items.h affects only the speed; it depends on the number of rows and on how many CTAs fill the device.
#pragma once

#include "kernels/cuda/ops/rows.h"
#include "kernels/cuda/ops/weight_spans.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

struct MatmulParameters {
    simt::Global<const uint32_t> x;       // [num_rows, row_pairs]
    int64_t row_pairs;                    // row_pairs_of; +0 beyond num_pairs
    simt::Global<const uint32_t> weight;  // of DeviceMatrix
    simt::Global<const float> bias;       // used when has_bias
    bool has_bias;
    int64_t num_pairs;
    KernelRows<float> out;
    [[nodiscard]] SIMT_FUNCTION int64_t num_panels() const { return (out.width + kPanel - 1) / kPanel; }
    SIMT_FUNCTION void write(int64_t row, int64_t output, float total) const {
        if (row < out.num_rows && output < out.width) {
            out.data[out.at(row, output)] = has_bias ? total + bias[output] : total;
        }
    }
};

// A stage: 16 of K for some outputs and rows as binary32 in shared memory, in multiplication order: slot 2j is the odd
// half of pair j, slot 2j + 1 the even one. kThreads threads copy it through registers, so that the next stage's loads
// are in flight while a stage is multiplied.
template <int kNumOutputs, int kNumRows, int kThreads>
struct MatmulStage {
    static constexpr int kOutputs = kNumOutputs;
    static constexpr int kRows = kNumRows;
    static constexpr int kPairs = 8;
    static constexpr int kSlots = 2 * kPairs;
    static constexpr int kWords = kSlots * (kOutputs + kRows);
    static constexpr int kWeightQuads = kOutputs * kPairs / 4 / kThreads;  // 16-byte vectors per thread
    static constexpr int kAllInputQuads = kRows * kPairs / 4;
    static constexpr int kInputQuads = (kAllInputQuads + kThreads - 1) / kThreads;
    static_assert(kChunkPairs % kPairs == 0 && kWeightQuads * kThreads * 4 == kOutputs * kPairs);

    struct Fetched {
        simt::Four<uint32_t> weights[kWeightQuads];
        simt::Four<uint32_t> inputs[kInputQuads];
    };
    // Elements outside the matrix are +0.
    SIMT_FUNCTION static Fetched fetch(const MatmulParameters& of, int thread, int64_t first_panel, int64_t first_row,
                                       int64_t first_pair) {
        Fetched fetched = {};
        SIMT_UNROLL
        for (int i = 0; i < kWeightQuads; ++i) {
            const int quad = thread + i * kThreads;
            const int64_t panel = first_panel + quad % (kOutputs / 4) / kPanelQuads;
            const int64_t pair = first_pair + quad / (kOutputs / 4);
            if (panel >= of.num_panels() || pair >= of.num_pairs) continue;
            const int64_t place = (panel * of.num_pairs + pair) * kPanel + quad % kPanelQuads * 4;
            fetched.weights[i] = simt::load4(of.weight, place);
        }
        SIMT_UNROLL
        for (int i = 0; i < kInputQuads; ++i) {
            const int quad = thread + i * kThreads;
            const int64_t row = first_row + quad % kRows;
            const int64_t pair = first_pair + quad / kRows * 4;
            if (quad >= kAllInputQuads || row >= of.out.num_rows || pair >= of.row_pairs) continue;
            fetched.inputs[i] = simt::load4(of.x, row * of.row_pairs + pair);
        }
        return fetched;
    }
    SIMT_FUNCTION static void store(const Fetched& fetched, int thread, const simt::Shared<float>& memory) {
        SIMT_UNROLL
        for (int i = 0; i < kWeightQuads; ++i) {
            const int quad = thread + i * kThreads;
            const int place = quad / (kOutputs / 4) * 2 * kOutputs + quad % (kOutputs / 4) * 4;
            const uint32_t(&pairs)[4] = fetched.weights[i].values;
            simt::store4(memory, place,
                         {{odd_half(pairs[0]), odd_half(pairs[1]), odd_half(pairs[2]), odd_half(pairs[3])}});
            simt::store4(memory, place + kOutputs,
                         {{even_half(pairs[0]), even_half(pairs[1]), even_half(pairs[2]), even_half(pairs[3])}});
        }
        const simt::Shared<float> inputs = inputs_of(memory);
        SIMT_UNROLL
        for (int i = 0; i < kInputQuads; ++i) {
            const int quad = thread + i * kThreads;
            if (quad >= kAllInputQuads) continue;
            const int row = quad % kRows;
            SIMT_UNROLL
            for (int j = 0; j < 4; ++j) {
                const int slot = (quad / kRows * 4 + j) * 2;
                inputs[slot * kRows + row] = odd_half(fetched.inputs[i].values[j]);
                inputs[(slot + 1) * kRows + row] = even_half(fetched.inputs[i].values[j]);
            }
        }
    }
    // [slots][kRows], after the weights' [slots][kOutputs].
    SIMT_FUNCTION static simt::Shared<float> inputs_of(const simt::Shared<float>& memory) {
        return memory.slice(kSlots * kOutputs, kSlots * kRows);
    }
};

// The outputs and rows of a lane, in quads: a warp covers 64 outputs. Neighbouring lanes have different outputs.
template <int kRowLanes, int kRowsEach>
struct MatmulLane {
    static constexpr int kLaneRows = kRowsEach;
    static constexpr int kOutputLanes = simt::kWarpSize / kRowLanes;
    static constexpr int kLaneOutputs = kPanel / kOutputLanes;
    static constexpr int kWarpRows = kRowLanes * kLaneRows;
    static_assert(kLaneOutputs % 4 == 0 && kLaneRows % 4 == 0);
    using Sums = float[kLaneRows][kLaneOutputs];

    // Index in the warp's part of a lane's i-th row or output.
    SIMT_FUNCTION static int row(int lane, int i) { return (i / 4 * kRowLanes + lane / kOutputLanes) * 4 + i % 4; }
    SIMT_FUNCTION static int output(int lane, int i) {
        return (i / 4 * kOutputLanes + lane % kOutputLanes) * 4 + i % 4;
    }

    // Multiplies a stage's slots in order; the warp's part of the stage begins at the two offsets.
    template <typename Stage>
    SIMT_FUNCTION static void multiply(const simt::Shared<float>& memory, int lane, int first_output, int first_row,
                                       Sums& acc) {
        const simt::Shared<float> inputs = Stage::inputs_of(memory);
        SIMT_UNROLL
        for (int slot = 0; slot < Stage::kSlots; ++slot) {
            float w[kLaneOutputs];
            float x[kLaneRows];
            SIMT_UNROLL
            for (int i = 0; i < kLaneOutputs; i += 4) {
                const auto quad = simt::load4(memory, slot * Stage::kOutputs + first_output + output(lane, i));
                SIMT_UNROLL
                for (int k = 0; k < 4; ++k) w[i + k] = quad.values[k];
            }
            SIMT_UNROLL
            for (int i = 0; i < kLaneRows; i += 4) {
                const auto quad = simt::load4(inputs, slot * Stage::kRows + first_row + row(lane, i));
                SIMT_UNROLL
                for (int k = 0; k < 4; ++k) x[i + k] = quad.values[k];
            }
            SIMT_UNROLL
            for (int r = 0; r < kLaneRows; ++r) {
                SIMT_UNROLL
                for (int i = 0; i < kLaneOutputs; ++i) acc[r][i] = reference::fma_f32(x[r], w[i], acc[r][i]);
            }
        }
    }
};

// Many rows: 128 outputs by 128 rows per CTA of (32, 8) threads, 8 by 8 per thread, with sums and accumulators in
// registers. Two stages in shared memory alternate.
struct Matmul : MatmulParameters {
    static constexpr int kWarps = 8;
    static constexpr int kOutputWarps = 2;
    static constexpr int kBlockOutputs = kOutputWarps * kPanel;
    using Lane = MatmulLane<4, 8>;
    static constexpr int kBlockRows = kWarps / kOutputWarps * Lane::kWarpRows;
    static constexpr int kThreads = kWarps * simt::kWarpSize;
    static constexpr int kResidentBlocks = 1;  // leaves registers to fetch a stage while one is multiplied
    using Stage = MatmulStage<kBlockOutputs, kBlockRows, kThreads>;

    SIMT_FUNCTION void operator()() const {
        SIMT_SHARED(float, memory, 2 * Stage::kWords);
        const int64_t first_panel = int64_t{simt::block_x()} * kOutputWarps;
        const int64_t first_row = int64_t{simt::block_y()} * kBlockRows;
        const int lane = simt::thread_x();
        const int thread = simt::thread_y() * simt::kWarpSize + lane;
        const int warp_output = simt::thread_y() % kOutputWarps * kPanel;
        const int warp_row = simt::thread_y() / kOutputWarps * Lane::kWarpRows;
        Lane::Sums total = {};
        Lane::Sums acc = {};
        auto fetched = Stage::fetch(*this, thread, first_panel, first_row, 0);
        int parity = 0;
        for (int64_t pair = 0; pair < num_pairs; pair += Stage::kPairs, parity ^= 1) {
            const simt::Shared<float> stage = memory.slice(parity * Stage::kWords, Stage::kWords);
            Stage::store(fetched, thread, stage);
            simt::sync_block();
            fetched = Stage::fetch(*this, thread, first_panel, first_row, pair + Stage::kPairs);
            Lane::multiply<Stage>(stage, lane, warp_output, warp_row, acc);
            if ((pair + Stage::kPairs) % kChunkPairs == 0) end_chunk(total, acc);
        }
        end_chunk(total, acc);  // the last, partial chunk; +0 after a whole one
        SIMT_UNROLL
        for (int r = 0; r < Lane::kLaneRows; ++r) {
            SIMT_UNROLL
            for (int i = 0; i < Lane::kLaneOutputs; ++i) {
                write(first_row + warp_row + Lane::row(lane, r),
                      first_panel * kPanel + warp_output + Lane::output(lane, i), total[r][i]);
            }
        }
    }
    SIMT_FUNCTION static void end_chunk(Lane::Sums& total, Lane::Sums& acc) {
        SIMT_UNROLL
        for (int r = 0; r < Lane::kLaneRows; ++r) {
            SIMT_UNROLL
            for (int i = 0; i < Lane::kLaneOutputs; ++i) {
                total[r][i] = total[r][i] + acc[r][i];
                acc[r][i] = 0.0F;
            }
        }
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
