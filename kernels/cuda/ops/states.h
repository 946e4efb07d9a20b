// kernels/cuda/ops/states.h: owns the kernels' view of a step's sequences, their state rows and the logs.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/simt/simt.h"
#include "reference/numerics/float_bits.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

struct KernelBatch {
    simt::Global<const DeviceSequence> sequences;
    simt::Global<const DeviceStateWrite> writes;
};

// Rows of a sequence that are no drafts.
SIMT_FUNCTION int32_t known_rows(const DeviceSequence& of) {
    return of.num_sampled_positions > 1 ? of.num_rows - of.num_sampled_positions + 1 : of.num_rows;
}

// One tensor of the state pool.
struct KernelStates {
    simt::Global<float> data;
    int64_t row_floats;
    int64_t size;
    int32_t layer;
    simt::Global<int32_t> faults;  // by logit row
    SIMT_FUNCTION simt::Global<float> row(int32_t row) const { return data.slice(row * row_floats, size); }
    // N8: the state that the layer would continue from after a drawing row is not finite.
    SIMT_FUNCTION void mark(int32_t logit_row) const { simt::atomic_min(faults, logit_row, layer); }
};

// A layer's part of the logs (DeviceLog). Entry i of a sequence is the token i tokens after state_src: entries below
// num_logged exist, and the step's tokens follow. When state_dst is written, the log starts at that point: entries stay
// where they are, and a later step may overwrite the replayed ones.
struct KernelLog {
    simt::Global<float> data;
    int64_t slot_floats;
    int32_t entry_floats;
    int32_t num_entries;  // in a slot's ring
    int32_t scan_at;      // offset in an entry in floats; the conv inputs come first
    int32_t scan_column;  // the conv column that is stored at scan_at
    int32_t conv_first;   // columns [conv_first, conv_end) are logged as conv outputs
    int32_t conv_end;
    int32_t steps_at;  // dt of every head, then decay; for a delta net beta, then decay

    [[nodiscard]] SIMT_FUNCTION simt::Global<float> entry(const DeviceSequence& of, int32_t i) const {
        int32_t place = of.first_entry + i;  // both below num_entries
        if (place >= num_entries) place -= num_entries;
        return data.slice(of.log * slot_floats + int64_t{place} * entry_floats, entry_floats);
    }
    // The log entry of row r of a sequence; negative: none, because state_dst takes the row in or the slot has no log.
    [[nodiscard]] SIMT_FUNCTION static int32_t entry_of_row(const DeviceSequence& of, int32_t r) {
        if (of.log < 0) return -1;
        const int32_t first = of.state_dst >= 0 ? known_rows(of) : 0;
        return r < first ? -1 : of.num_logged + r - first;
    }
};

// The next stop of a loop that feeds a sequence's tokens, logged ones first, into a state: at a snapshot, at the last
// row that is no draft, or at a draft.
struct StateStop {
    int32_t num_tokens;  // tokens before the stop
    int32_t write;       // index of the next snapshot
};
SIMT_FUNCTION int32_t snapshot_at(const KernelBatch& batch, const DeviceSequence& of, int32_t write) {
    const DeviceStateWrite snapshot = batch.writes[write];
    return of.num_logged + snapshot.length - of.first_position;
}
// The first stop after `done` tokens.
SIMT_FUNCTION StateStop next_stop(const KernelBatch& batch, const DeviceSequence& of, int32_t done, int32_t write) {
    const int32_t num_known = of.num_logged + known_rows(of);
    StateStop stop = {done < num_known ? num_known : done + 1, write};
    if (write == of.first_write + of.num_writes) return stop;
    const int32_t snapshot = snapshot_at(batch, of, write);
    if (snapshot < stop.num_tokens) stop.num_tokens = snapshot;
    return stop;
}

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
