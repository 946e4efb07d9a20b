// kernels/packed_matrix.h: owns the packed layout of a matmul's weights, which the CPU's kernels and a device's read.
//
// [ceil(N/64)][ceil(K/2)][64] pairs: a panel of 64 outputs, one output per vector lane, is read along K without a
// horizontal sum. Outputs beyond N and the partner of an odd K's last element are +0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/pair.h"
#include "reference/model/weights.h"

namespace verbatim {

inline constexpr int64_t kPanelOutputs = 64;

// A view: a PackedWeights or the caller owns the pairs.
class PackedMatrix {
public:
    PackedMatrix() = default;
    // `pairs`: [num_pairs_of(N, K)].
    PackedMatrix(int64_t num_outputs, int64_t num_k, const Pair* pairs)
        : num_outputs_(num_outputs), num_k_(num_k), pairs_(pairs) {}
    // Weights in blocks, as they lie in the model's file: dequantised panel by panel when they are multiplied.
    // `runs`: the same weights, repacked by the CPU's kernels (kernels/cpu/block_runs.h), which then read these; or
    // null.
    explicit PackedMatrix(reference::MatrixView blocks, const std::byte* runs = nullptr)
        : num_outputs_(blocks.rows), num_k_(blocks.cols), blocks_(blocks), runs_(runs) {}
    // The same for the profile exact.int8: `int8` is of kernels/cpu/int8_panels.h.
    [[nodiscard]] static PackedMatrix in_int8(reference::MatrixView blocks, const std::byte* int8) {
        PackedMatrix matrix(blocks);
        matrix.int8_blocks_ = int8;
        return matrix;
    }
    // The same for the profile exact.fp8, of weights whose recipe has FP8 activations: `runs` as above, of
    // kernels/cpu/block_runs.h's pack_fp8_runs().
    [[nodiscard]] static PackedMatrix in_fp8(reference::MatrixView blocks, const std::byte* runs) {
        PackedMatrix matrix(blocks, runs);
        matrix.is_fp8_ = true;
        return matrix;
    }
    // For the fast profile: int8 times a scale per output; `scales`: [num_panels · 64].
    PackedMatrix(int64_t num_outputs, int64_t num_k, const Int8Pair* pairs, const float* scales)
        : num_outputs_(num_outputs), num_k_(num_k), int8_pairs_(pairs), scales_(scales) {}

    [[nodiscard]] static int64_t num_pairs_of(int64_t num_outputs, int64_t num_k) {
        return (num_outputs + kPanelOutputs - 1) / kPanelOutputs * num_pairs(num_k) * kPanelOutputs;
    }
    [[nodiscard]] int64_t num_outputs() const { return num_outputs_; }
    [[nodiscard]] int64_t num_k() const { return num_k_; }
    [[nodiscard]] int64_t num_panels() const { return (num_outputs_ + kPanelOutputs - 1) / kPanelOutputs; }
    [[nodiscard]] const Pair* panel(int64_t i) const { return pairs_ + i * panel_pairs(); }
    [[nodiscard]] bool is_quantised() const { return blocks_.is_quantised(); }
    [[nodiscard]] const reference::MatrixView& blocks() const { return blocks_; }
    [[nodiscard]] const std::byte* runs() const { return runs_; }
    [[nodiscard]] const std::byte* int8_blocks() const { return int8_blocks_; }
    [[nodiscard]] bool is_fp8() const { return is_fp8_; }
    [[nodiscard]] bool is_int8() const { return int8_pairs_ != nullptr; }
    [[nodiscard]] const Int8Pair* int8_panel(int64_t i) const { return int8_pairs_ + i * panel_pairs(); }
    [[nodiscard]] const float* scales(int64_t panel) const { return scales_ + panel * kPanelOutputs; }
    [[nodiscard]] int64_t panel_pairs() const { return num_pairs(num_k_) * kPanelOutputs; }
    [[nodiscard]] int64_t outputs_in(int64_t panel) const {
        return std::min(kPanelOutputs, num_outputs_ - panel * kPanelOutputs);
    }

private:
    int64_t num_outputs_ = 0;  // N
    int64_t num_k_ = 0;        // K
    const Pair* pairs_ = nullptr;
    const Int8Pair* int8_pairs_ = nullptr;
    const float* scales_ = nullptr;
    reference::MatrixView blocks_ = {};
    const std::byte* runs_ = nullptr;
    const std::byte* int8_blocks_ = nullptr;
    bool is_fp8_ = false;
};

// Panel `panel` of the weights, [num_pairs(K), 64].
void pack_panel(reference::MatrixView weight, int64_t panel, Pair* out);
// The same rounded to int8 · scale, scale = the output's greatest magnitude ÷ 127. scales: [64], 0 beyond N; padding
// values are multiplied by a scale or an activation of 0.
void pack_panel_int8(reference::MatrixView weight, int64_t panel, Int8Pair* out, float* scales);

}  // namespace verbatim
