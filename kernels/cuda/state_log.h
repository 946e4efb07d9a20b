// kernels/cuda/state_log.h: owns the state logs on the device: per slot, the inputs that the Mamba layers and delta
// nets have taken in since the slot's state row was written. It places the entries; conv, scan and the delta rule
// replay them (ops/states.h).
//
//   G1  a slot's log is a ring buffer of twice the maximal log length and starts at the same entry in all layers: a
//       step writes after the entries that it replays, so some CTAs may write while others still read
//   G2  a slot's memory is allocated when the slot first logs a token, and kept
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"
#include "kernels/pooled_executor.h"
#include "reference/model/model_config.h"

namespace verbatim::cuda {

class StateLog {
public:
    struct Place {
        int32_t log = -1;         // the slot's log; -1: nothing is replayed or logged
        int32_t first_entry = 0;  // in the slot's ring
    };

    // Borrows the device. max_tokens: log length per slot; 0: nothing is ever logged.
    StateLog(Device& device, const reference::ModelConfig& config, int32_t max_tokens);

    // Places a sequence's log entries for the next step. Call once per step: when the step writes the state row, the
    // log of the step after it starts after the entries that this step replays.
    [[nodiscard]] Place place_of(const PooledSequence& sequence, int32_t num_rows);
    // REQUIRES: a Mamba layer or a delta net.
    [[nodiscard]] DeviceLog layer(int32_t layer) const;
    [[nodiscard]] int64_t bytes_per_slot() const { return slot_floats_ * static_cast<int64_t>(sizeof(float)); }

private:
    struct Layer {
        int64_t first = 0;  // floats, offset in a slot's memory
        int64_t scan_at = 0, steps_at = 0, entry_floats = 0;
    };
    [[nodiscard]] int32_t num_entries() const { return 2 * max_tokens_; }

    Device& device_;
    int32_t max_tokens_;
    int64_t slot_floats_ = 0;
    std::vector<Layer> layers_;
    std::vector<int32_t> first_entry_;  // by slot
    DeviceArray<float> memory_;         // [slots, slot_floats_]
};

}  // namespace verbatim::cuda
