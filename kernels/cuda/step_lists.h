// kernels/cuda/step_lists.h: owns the lists of a step (tokens, positions, sequences, blocks, ...) on the device, and
// what comes back of it.
//
//   S1  all lists go up in one transfer from pinned memory, and nobody waits for it
//   S2  a list keeps its place and its room until some list outgrows its room: so a graph's parameters stay true
//   S3  what comes back of a step lies in front, and comes in one transfer
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/state_log.h"
#include "kernels/pooled_executor.h"

namespace verbatim::cuda {

template <typename T>
struct StepList {
    std::vector<T> values;  // of the step to come
    int64_t room = 0;       // elements
    int64_t offset = 0;     // bytes, of its place
};

class StepLists {
public:
    static constexpr int32_t kNoFault = std::numeric_limits<int32_t>::max();

    // The device is borrowed. query_rows: how many rows of a sequence may attend together; has_tiles: many rows attend
    // by tiles.
    StepLists(Device& device, int32_t vocab_size, int64_t query_rows, bool has_tiles);

    // What the kernels of this step will read. A sequence without a slot (kNoSlot) neither attends nor writes.
    // `log` gives logs their places. fixed: nothing that batch() counts depends on how rows are divided among
    // sequences.
    void describe(const PooledStep& step, StateLog& log, bool fixed);
    // REQUIRES: the device has done the step before.
    void upload();
    // That upload() brings; REQUIRES: it came before.
    [[nodiscard]] int64_t upload_bytes() const;
    // All of it on the device, but for the room of attention's workspace. REQUIRES: upload() came before.
    [[nodiscard]] DeviceBatch batch() const;
    // The sequences without rows alone.
    [[nodiscard]] DeviceBatch moves_batch() const;
    template <typename T>
    [[nodiscard]] T* place(const StepList<T>& list) const {
        return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(memory_.data()) + list.offset);
    }
    // Asks for what the step leaves in `faults` and `drawn`; after the device's next synchronize() result() shows it.
    void download_results();
    [[nodiscard]] int32_t result(const StepList<int32_t>& list, int64_t i) const {
        return reinterpret_cast<const int32_t*>(results_.data() + list.offset)[i];
    }

    StepList<int32_t> faults;                            // [num_logit_rows], before the step: none
    StepList<int32_t> drawn;                             // [num_logit_rows], before the step: anything
    StepList<int32_t> tokens, positions, row_sequences;  // [num_rows]
    StepList<int32_t> first_runs;                        // [num_rows + 1]
    StepList<DeviceQueries> queries, tiles;              // and one more, where they end
    StepList<int32_t> logit_rows;
    StepList<DeviceSequence> sequences, moves;
    StepList<DeviceDraw> draws;  // [num_logit_rows]
    StepList<DeviceCopy> copies;
    StepList<DeviceStateWrite> writes;
    StepList<DeviceTokenCount> counts;
    StepList<int32_t> blocks;

private:
    template <typename Lists, typename Call>
    static void each(Lists& lists, const Call& call) {
        call(lists.faults), call(lists.drawn);
        call(lists.tokens), call(lists.positions), call(lists.row_sequences), call(lists.first_runs);
        call(lists.queries), call(lists.tiles), call(lists.logit_rows), call(lists.sequences), call(lists.moves);
        call(lists.draws), call(lists.copies), call(lists.writes), call(lists.counts), call(lists.blocks);
    }
    void describe_sequence(const PooledSequence& sequence, const reference::WalkSequence& part, StateLog& log);
    void describe_draw(const reference::SamplingArgs& draw);
    void describe_rows(const reference::WalkSequence& part, int32_t sequence, bool attends);
    void fix_queries();
    void make_room();

    Device& device_;
    int32_t query_rows_;
    bool has_tiles_;
    bool is_fixed_ = false;
    PinnedBytes pinned_;
    PinnedBytes results_;
    DeviceArray<int32_t> memory_;
    std::vector<int32_t> times_generated_;  // by token; -1, as between draws: it is not in the prefix
    std::vector<TokenId> in_prefix_;
    int32_t num_drawing_ = 0;    // rows of the sequences described so far
    int32_t rows_together_ = 1;  // that attend together, at most
};

}  // namespace verbatim::cuda
