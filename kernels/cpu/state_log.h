// kernels/cpu/state_log.h: owns the state logs: per slot, the conv and scan inputs of the tokens that its Mamba layers
// and delta nets have taken in since the state row was written. A state cannot be truncated, but a log can: a rollback
// shortens the log, and the next step replays it.
//
//   G1  entry i of a log is the token i tokens after the row's state
//   G2  a slot's memory is allocated when the slot first logs a token, and kept
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/ids.h"
#include "kernels/cpu/aligned_array.h"
#include "reference/model/model_config.h"

namespace verbatim::cpu {

// One token of one layer.
struct LoggedToken {
    float* conv_in = nullptr;   // [conv_dim], inputs of the convolution
    float* conv_out = nullptr;  // [conv_dim], its outputs as the scan reads them: x, B and C; or q, k and v
    float* steps = nullptr;     // [2, n_heads]: dt and decay; or beta and decay
};

class StateLog {
public:
    // Borrows config. max_tokens: log length per slot; 0: nothing is ever logged.
    StateLog(const reference::ModelConfig& config, int32_t max_tokens);

    [[nodiscard]] int32_t max_tokens() const { return max_tokens_; }
    void make_room(SequenceSlot slot);
    // REQUIRES: the slot has memory; 0 <= i < max_tokens(); a layer with a state. Entries are token_stride(layer)
    // apart.
    [[nodiscard]] LoggedToken at(SequenceSlot slot, int32_t layer, int64_t i);
    [[nodiscard]] int64_t token_stride(int32_t layer) const { return layers_[layer].stride; }
    [[nodiscard]] int64_t bytes_per_slot() const { return slot_floats_ * static_cast<int64_t>(sizeof(float)); }

private:
    struct Layer {
        int64_t first = 0;     // floats, offset in a slot's memory
        int64_t stride = 0;    // floats between tokens
        int64_t conv_dim = 0;  // rounded up to whole cache lines
    };
    int32_t max_tokens_;
    int64_t slot_floats_ = 0;
    std::vector<Layer> layers_;
    std::vector<AlignedArray<float>> slots_;
};

}  // namespace verbatim::cpu
