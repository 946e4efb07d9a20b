// kernels/cpu/state_rows.h: owns the bytes of the state rows. A row is the list of tensors of reference::state_row,
// each in its logical order (an SSM state is [n_heads, d_state, head_dim]: its vectors run along head_dim), starting
// on a 64-byte line.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/ids.h"
#include "kernels/cpu/aligned_array.h"
#include "reference/head_digest.h"
#include "reference/model/model_config.h"

namespace verbatim::cpu {

class StateRows {
public:
    StateRows(const reference::ModelConfig& config, int32_t num_rows);

    // `part` is kSsm or kConv of a Mamba layer.
    [[nodiscard]] std::span<float> tensor(StateIndex row, int32_t layer, reference::HeadPart part) const;

private:
    struct Place {
        int64_t offset = -1;  // floats, in a row
        int64_t size = 0;
    };
    struct Layer {
        Place ssm, conv;
    };
    int32_t num_rows_;
    int64_t row_floats_ = 0;
    std::vector<Layer> layers_;
    AlignedArray<float> floats_;  // [num_rows, row_floats]
};

}  // namespace verbatim::cpu
