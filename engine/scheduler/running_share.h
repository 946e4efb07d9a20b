// engine/scheduler/running_share.h: owns how much of the memory requests that run may take from heads.
//
// The more run side by side, the longer each of them holds its memory, and the fewer heads stay for prompts that come
// again. What that costs is counted: the share of the computed prompt tokens that had been in heads which made room.
// As large a share of the memory is the heads', but no more than half.
//   S1  where nothing that was evicted is computed again, requests may have all memory
//   S2  what was counted longer ago counts less: by a factor of e for kWindow admissions
#pragma once

#include <cstdint>

namespace verbatim {

class RunningShare {
public:
    // So many run whatever they take: few sequences do not use a device.
    static constexpr int64_t kLeastRunning = 4;
    static constexpr int64_t kWindow = 256;

    // A request is admitted, and computes so many tokens of its prompt. So many of them had been in heads that made
    // room.
    void note_admitted(int64_t num_computed, int64_t num_evicted);
    // What requests that run may hold of the memory while that takes room from heads.
    [[nodiscard]] int64_t bytes_of(int64_t memory_bytes) const;

private:
    int64_t computed_ = 0;  // tokens
    int64_t evicted_ = 0;   // of them
};

}  // namespace verbatim
