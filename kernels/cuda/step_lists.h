// kernels/cuda/step_lists.h: owns a step's lists (tokens, positions, sequences, blocks, ...) on the device, and the
// step's results.
//
//   S1  one asynchronous transfer from pinned memory uploads all lists
//   S2  a list keeps its address and capacity until one list outgrows its capacity: recorded graphs stay valid till
//       then
//   S3  the results are first in memory, and one transfer downloads them
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
    int64_t room = 0;       // capacity in elements
    int64_t offset = 0;     // bytes from the start of the memory
};

class StepLists {
public:
    static constexpr int32_t kNoFault = std::numeric_limits<int32_t>::max();

    // Borrows the device. query_rows: most rows of a sequence that attend in one CTA; has_tiles: many rows attend by
    // tiles.
    StepLists(Device& device, int32_t vocab_size, int64_t query_rows, bool has_tiles);
    // The lists name a block by its first page, which is the block times this.
    void set_block_scale(int64_t scale) { block_scale_ = scale; }

    // Fills the lists for a step. A sequence without a slot (kNoSlot) neither attends nor writes. `log` places the log
    // entries. fixed: no count in batch() depends on how rows are divided among sequences.
    void describe(const PooledStep& step, StateLog& log, bool fixed);
    // REQUIRES: the device has completed the previous step.
    void upload();
    // The bytes that upload() transfers; REQUIRES: a call of upload().
    [[nodiscard]] int64_t upload_bytes() const;
    // The batch on the device, except for the capacity of attention's workspace. REQUIRES: a call of upload().
    [[nodiscard]] DeviceBatch batch() const;
    // Only the sequences without rows.
    [[nodiscard]] DeviceBatch moves_batch() const;
    template <typename T>
    [[nodiscard]] T* place(const StepList<T>& list) const {
        return reinterpret_cast<T*>(reinterpret_cast<std::byte*>(memory_.data()) + list.offset);
    }
    // Starts the download of `faults` and `drawn`; result() returns them after the device's next synchronize().
    void download_results();
    [[nodiscard]] int32_t result(const StepList<int32_t>& list, int64_t i) const {
        return reinterpret_cast<const int32_t*>(results_.data() + list.offset)[i];
    }

    StepList<int32_t> faults;                            // [num_logit_rows]; uploaded as "none"
    StepList<int32_t> drawn;                             // [num_logit_rows]; uploaded with any value
    StepList<int32_t> tokens, positions, row_sequences;  // [num_rows]
    StepList<int32_t> first_runs;                        // [num_rows + 1]
    StepList<DeviceQueries> queries, tiles;              // one more at the end
    StepList<int32_t> logit_rows;
    StepList<DeviceSequence> sequences, moves;
    StepList<DeviceDraw> draws;  // [num_logit_rows]
    StepList<DeviceCopy> copies;
    StepList<DeviceStateWrite> writes;
    StepList<DeviceTokenCount> counts;
    StepList<int32_t> blocks;

private:
    [[nodiscard]] int32_t page(BlockId block) const { return static_cast<int32_t>(index(block) * block_scale_); }
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
    int64_t block_scale_ = 1;
    int32_t query_rows_;
    bool has_tiles_;
    bool is_fixed_ = false;
    PinnedBytes pinned_;
    PinnedBytes results_;
    DeviceArray<int32_t> memory_;
    std::vector<int32_t> times_generated_;  // by token; -1, as between draws: not in the prefix
    std::vector<TokenId> in_prefix_;
    int32_t num_drawing_ = 0;    // drawing rows of the sequences described so far
    int32_t rows_together_ = 1;  // most rows that attend in one CTA
};

}  // namespace verbatim::cuda
