#include "kernels/cpu/state_log.h"

#include "engine/base/check.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kLineFloats = 16;  // vectors are loaded from whole lines

int64_t whole_lines(int64_t floats) { return (floats + kLineFloats - 1) / kLineFloats * kLineFloats; }

}  // namespace

StateLog::StateLog(const reference::ModelConfig& config, int32_t max_tokens) : max_tokens_(max_tokens) {
    CHECK_GE(max_tokens, 0);
    for (const reference::LayerConfig& layer : config.layers) {
        Layer& of = layers_.emplace_back();
        if (!layer.mamba && !layer.delta) continue;
        const int64_t n_heads = layer.delta ? layer.delta->n_value_heads : layer.mamba->n_heads;
        of.first = slot_floats_;
        of.conv_dim = whole_lines(layer.delta ? layer.delta->conv_dim() : layer.mamba->conv_dim());
        of.stride = 2 * of.conv_dim + whole_lines(2 * n_heads);
        slot_floats_ += of.stride * max_tokens;
    }
}

void StateLog::make_room(SequenceSlot slot) {
    CHECK_GE(index(slot), 0);
    const auto place = static_cast<size_t>(index(slot));
    if (place >= slots_.size()) slots_.resize(place + 1);
    slots_[place].ensure(slot_floats_);
}

LoggedToken StateLog::at(SequenceSlot slot, int32_t layer, int64_t i) {
    CHECK(i >= 0 && i < max_tokens_, "logged token {} of {}", i, max_tokens_);
    const Layer& of = layers_[layer];
    float* first = slots_[static_cast<size_t>(index(slot))].data() + of.first + i * of.stride;
    return {first, first + of.conv_dim, first + 2 * of.conv_dim};
}

}  // namespace verbatim::cpu
