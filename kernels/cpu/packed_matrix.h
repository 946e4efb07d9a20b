// kernels/cpu/packed_matrix.h: a matmul's weights in the order in which its kernel reads them, made once at load.
//
// [ceil(N/64)][ceil(K/2)][64] pairs: a panel of 64 outputs, one per vector lane, walks along K without a horizontal
// sum. Outputs beyond N and the partner of an odd K's last element are +0.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/pair.h"
#include "reference/model/weights.h"

namespace verbatim::cpu {

inline constexpr int64_t kPanelOutputs = 64;

class PackedMatrix {
public:
    PackedMatrix() = default;
    explicit PackedMatrix(reference::MatrixView weight);

    [[nodiscard]] int64_t num_outputs() const { return num_outputs_; }
    [[nodiscard]] int64_t num_k() const { return num_k_; }
    [[nodiscard]] int64_t num_panels() const { return (num_outputs_ + kPanelOutputs - 1) / kPanelOutputs; }
    [[nodiscard]] const Pair* panel(int64_t i) const { return pairs_.data() + i * num_pairs(num_k_) * kPanelOutputs; }
    [[nodiscard]] int64_t outputs_in(int64_t panel) const {
        return std::min(kPanelOutputs, num_outputs_ - panel * kPanelOutputs);
    }

private:
    int64_t num_outputs_ = 0;  // N
    int64_t num_k_ = 0;        // K
    AlignedArray<Pair> pairs_;
};

}  // namespace verbatim::cpu
