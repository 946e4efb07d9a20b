// kernels/cuda/state_log.h: owns the logs behind state rows on the device: what a slot's Mamba layers and delta
// nets took in since its row was written. Replaying them is a part of conv, scan and the delta rule (ops/states.h);
// here is where they lie.
//
//   G1  a slot's log is a ring, twice as long as a log may be, and begins at one place in all layers: what a step logs
//       lies behind what it replays, so that kernels may write the one while others read the other
//   G2  room is made when a slot logs something for the first time, and kept
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
        int32_t log = -1;         // the slot's; -1: nothing is replayed or logged
        int32_t first_entry = 0;  // in the slot's ring
    };

    // Borrows the device. max_tokens: of a slot; 0: nothing is ever logged.
    StateLog(Device& device, const reference::ModelConfig& config, int32_t max_tokens);

    // Where a sequence of the step to come finds its log, and goes on with it. Once a step: when its row is written,
    // the next step's log begins behind what this one replays.
    [[nodiscard]] Place place_of(const PooledSequence& sequence, int32_t num_rows);
    // REQUIRES: a Mamba layer or a delta net.
    [[nodiscard]] DeviceLog layer(int32_t layer) const;
    [[nodiscard]] int64_t bytes_per_slot() const { return slot_floats_ * static_cast<int64_t>(sizeof(float)); }

private:
    struct Layer {
        int64_t first = 0;  // floats, in a slot's memory
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
