// kernels/cuda/step_lists.h: owns the lists of a step (tokens, positions, sequences, blocks, ...) on the device, and what comes back of it.
//
//   S1  all lists go up in one transfer from pinned memory, and nobody waits for it
//   S2  a list keeps its place and its room until some list outgrows its room: so a graph's parameters stay true
//   S3  what comes back of a step lies in front, and comes in one transfer
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"

namespace verbatim::cuda {

template <typename T>
struct StepList {
    std::vector<T> values;  // of the step to come
    int64_t room = 0;       // elements
    int64_t offset = 0;     // bytes, of its place
};

class StepLists {
public:
    explicit StepLists(Device& device) : device_(device), pinned_(device), results_(device) {}

    // Every list is empty.
    void clear();
    // REQUIRES: the device has done the step before.
    void upload();
    // On the device. REQUIRES: upload() came before.
    template <typename T>
    [[nodiscard]] T* place(const StepList<T>& list) const {
        return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(memory_.data()) + list.offset);
    }
    // Asks for what the step leaves in `faults` and `drawn`; after the device's next synchronize() result() shows it.
    void download_results();
    [[nodiscard]] int32_t result(const StepList<int32_t>& list, int64_t i) const {
        return reinterpret_cast<const int32_t*>(results_.data() + list.offset)[i];
    }

    StepList<int32_t> faults;                            // [num_sequences], before the step: none
    StepList<int32_t> drawn;                             // [num_logit_rows], before the step: anything
    StepList<int32_t> tokens, positions, row_sequences;  // [num_rows]
    StepList<int32_t> first_items;                       // [num_rows + 1]
    StepList<int32_t> logit_rows;
    StepList<DeviceSequence> sequences;
    StepList<DeviceDraw> draws;  // [num_logit_rows]
    StepList<DeviceCopy> copies;
    StepList<DeviceStateWrite> writes;
    StepList<DeviceTokenCount> counts;
    StepList<int32_t> blocks;

private:
    template <typename Lists, typename Call>
    static void each(Lists& lists, const Call& call) {
        call(lists.faults), call(lists.drawn);
        call(lists.tokens), call(lists.positions), call(lists.row_sequences), call(lists.first_items);
        call(lists.logit_rows), call(lists.sequences), call(lists.draws), call(lists.copies);
        call(lists.writes), call(lists.counts), call(lists.blocks);
    }
    void make_room();

    Device& device_;
    PinnedBytes pinned_;
    PinnedBytes results_;
    DeviceArray<int32_t> memory_;
};

}  // namespace verbatim::cuda
