#include "kernels/cuda/state_log.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::cuda {
namespace {

constexpr int64_t kSectorFloats = 8;  // the smallest memory access
constexpr int64_t kMinSlots = 4;

// Floats per token in a layer's log.
struct LoggedToken {
    int64_t conv_in = 0;  // 0: the layer has no log
    int64_t scan_in = 0;
    int64_t steps = 0;
};
LoggedToken logged_token(const reference::LayerConfig& layer) {
    if (layer.mamba) {
        return {layer.mamba->conv_dim(), layer.mamba->conv_dim() - layer.mamba->bc_rows(),
                2 * int64_t{layer.mamba->n_heads}};
    }
    if (!layer.delta) return {};
    return {layer.delta->conv_dim(), layer.delta->conv_dim() - layer.delta->key_rows(),
            2 * int64_t{layer.delta->n_value_heads}};
}

int64_t whole_sectors(int64_t floats) { return (floats + kSectorFloats - 1) / kSectorFloats * kSectorFloats; }

}  // namespace

StateLog::StateLog(Device& device, const reference::ModelConfig& config, int32_t max_tokens)
    : device_(device), max_tokens_(max_tokens) {
    CHECK_GE(max_tokens, 0);
    for (const reference::LayerConfig& layer : config.layers) {
        Layer& of = layers_.emplace_back();
        const LoggedToken token = logged_token(layer);
        if (token.conv_in == 0) continue;
        of.first = slot_floats_;
        of.scan_at = whole_sectors(token.conv_in);
        of.steps_at = of.scan_at + whole_sectors(token.scan_in);
        of.entry_floats = of.steps_at + whole_sectors(token.steps);
        slot_floats_ += of.entry_floats * num_entries();
    }
}

StateLog::Place StateLog::place_of(const PooledSequence& sequence, int32_t num_rows) {
    const bool is_written = sequence.state_dst != kNoState;
    const int32_t num_kept = is_written ? sequence.num_drafts() : num_rows;
    if (slot_floats_ == 0 || sequence.slot == kNoSlot || sequence.num_logged_tokens + num_kept == 0) return {};
    CHECK(sequence.num_logged_tokens <= max_tokens_ && num_kept <= max_tokens_,
          "slot {} logs {} tokens behind {} of {}", index(sequence.slot), num_kept, sequence.num_logged_tokens,
          max_tokens_);
    const auto slot = static_cast<size_t>(index(sequence.slot));
    if (slot >= first_entry_.size()) {
        first_entry_.resize(std::max({static_cast<size_t>(kMinSlots), slot + 1, 2 * first_entry_.size()}));
        memory_.grow(device_, static_cast<int64_t>(first_entry_.size()) * slot_floats_);
    }
    const Place place{index(sequence.slot), first_entry_[slot]};
    if (is_written) first_entry_[slot] = (place.first_entry + sequence.num_logged_tokens) % num_entries();
    return place;
}

DeviceLog StateLog::layer(int32_t layer) const {
    if (memory_.data() == nullptr) return {};
    const Layer& of = layers_[layer];
    return {.data = memory_.data() + of.first,
            .num_slots = memory_.count() / slot_floats_,
            .slot_floats = slot_floats_,
            .num_entries = num_entries(),
            .entry_floats = of.entry_floats,
            .scan_at = of.scan_at,
            .steps_at = of.steps_at};
}

}  // namespace verbatim::cuda
