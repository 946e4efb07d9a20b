// kernels/cpu/state_log.h: what a slot's Mamba layers and delta nets took in since its state row was written: the
// conv's and the scan's inputs. A state cannot be cut back, but what it has not taken in yet can: rolling back
// shortens the log, and going on replays it.
//
//   G1  entry i of a log is the token that came i tokens behind the row's state
//   G2  room is made when a slot logs something for the first time, and kept
#pragma once

#include <cstdint>
#include <vector>

#include "engine/base/ids.h"
#include "kernels/cpu/aligned_array.h"
#include "reference/model/model_config.h"

namespace verbatim::cpu {

// One token of one layer.
struct LoggedToken {
    float* conv_in = nullptr;   // [conv_dim], before the convolution
    float* conv_out = nullptr;  // [conv_dim], x, B and C as the scan reads them; q, k and v
    float* steps = nullptr;     // [2, n_heads], dt and decay; beta and decay
};

class StateLog {
public:
    // Borrows config. max_tokens: of a slot; 0: nothing is ever logged.
    StateLog(const reference::ModelConfig& config, int32_t max_tokens);

    [[nodiscard]] int32_t max_tokens() const { return max_tokens_; }
    void make_room(SequenceSlot slot);
    // REQUIRES: room was made for the slot; 0 <= i < max_tokens(); a layer with a state. Entries lie
    // token_stride(layer) apart.
    [[nodiscard]] LoggedToken at(SequenceSlot slot, int32_t layer, int64_t i);
    [[nodiscard]] int64_t token_stride(int32_t layer) const { return layers_[layer].stride; }
    [[nodiscard]] int64_t bytes_per_slot() const { return slot_floats_ * static_cast<int64_t>(sizeof(float)); }

private:
    struct Layer {
        int64_t first = 0;     // floats, in a slot's memory
        int64_t stride = 0;    // floats from a token to the next
        int64_t conv_dim = 0;  // in whole lines
    };
    int32_t max_tokens_;
    int64_t slot_floats_ = 0;
    std::vector<Layer> layers_;
    std::vector<AlignedArray<float>> slots_;
};

}  // namespace verbatim::cpu
