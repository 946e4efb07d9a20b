#include "kernels/cpu/packed_matrix.h"

namespace verbatim::cpu {

PackedMatrix::PackedMatrix(reference::MatrixView weight)
    : num_outputs_(weight.rows), num_k_(weight.cols), pairs_(num_panels() * num_pairs(weight.cols) * kPanelOutputs) {
    for (int64_t n = 0; n < num_outputs_; ++n) {
        const uint16_t* row = weight.data + n * num_k_;
        Pair* lane = pairs_.data() + n / kPanelOutputs * num_pairs(num_k_) * kPanelOutputs + n % kPanelOutputs;
        for (int64_t j = 0; j < num_pairs(num_k_); ++j) {
            const uint16_t odd = 2 * j + 1 < num_k_ ? row[2 * j + 1] : uint16_t{0};
            lane[j * kPanelOutputs] = make_pair_of(row[2 * j], odd);
        }
    }
}

}  // namespace verbatim::cpu
