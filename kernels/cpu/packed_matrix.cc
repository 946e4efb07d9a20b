#include "kernels/cpu/packed_matrix.h"

namespace verbatim::cpu {

PackedMatrix::PackedMatrix(reference::MatrixView weight)
    : num_outputs_(weight.rows), num_k_(weight.cols), pairs_(num_panels() * num_pairs(weight.cols) * kPanelOutputs) {
    Pair* out = pairs_.data();
    for (int64_t first = 0; first < num_outputs_; first += kPanelOutputs) {
        const int64_t lanes = std::min(kPanelOutputs, num_outputs_ - first);
        for (int64_t k = 0; k < num_k_; k += 2, out += kPanelOutputs) {
            for (int64_t lane = 0; lane < lanes; ++lane) {
                const uint16_t* two = weight.data + (first + lane) * num_k_ + k;
                out[lane] = make_pair_of(two[0], k + 1 < num_k_ ? two[1] : uint16_t{0});
            }
        }
    }
}

}  // namespace verbatim::cpu
