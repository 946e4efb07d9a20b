#include "kernels/cpu/state_rows.h"

#include "engine/base/check.h"

namespace verbatim::cpu {

using reference::HeadPart;

StateRows::StateRows(const reference::ModelConfig& config, int32_t num_rows)
    : num_rows_(num_rows), layers_(config.layers.size()) {
    constexpr int64_t kLineFloats = 16;
    for (const reference::StateTensor& tensor : reference::state_row(config)) {
        CHECK(tensor.name == "ssm" || tensor.name == "conv", "state tensor {}", tensor.name);
        Layer& layer = layers_[tensor.layer];
        (tensor.name == "ssm" ? layer.ssm : layer.conv) = {row_floats_, tensor.num_elements()};
        row_floats_ += (tensor.num_elements() + kLineFloats - 1) / kLineFloats * kLineFloats;
    }
    floats_.ensure(num_rows_ * row_floats_);
}

std::span<float> StateRows::tensor(StateIndex row, int32_t layer, HeadPart part) const {
    CHECK(index(row) >= 0 && index(row) < num_rows_, "state row {} of {}", index(row), num_rows_);
    const Place& place = part == HeadPart::kSsm ? layers_[layer].ssm : layers_[layer].conv;
    CHECK_GE(place.offset, 0);
    return {floats_.data() + index(row) * row_floats_ + place.offset, static_cast<size_t>(place.size)};
}

}  // namespace verbatim::cpu
