// kernels/cuda/ops/states.h: a step's sequences, their rows of the state pool and the logs behind these, as kernels see
// them.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/simt/simt.h"
#include "reference/numerics/float_bits.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

struct KernelBatch {
    simt::Global<const DeviceSequence> sequences;
    simt::Global<const DeviceStateWrite> writes;
};

// Of a sequence's rows, those that are no drafts.
SIMT_FUNCTION int32_t known_rows(const DeviceSequence& of) {
    return of.num_draws > 1 ? of.num_rows - of.num_draws + 1 : of.num_rows;
}

// One tensor of the state pool.
struct KernelStates {
    simt::Global<float> data;
    int64_t row_floats;
    int64_t size;
    int32_t layer;
    simt::Global<int32_t> faults;  // by logit row
    SIMT_FUNCTION simt::Global<float> row(int32_t row) const { return data.slice(row * row_floats, size); }
    // N8: what the layer would go on from behind a row that draws is not finite.
    SIMT_FUNCTION void mark(int32_t logit_row) const { simt::atomic_min(faults, logit_row, layer); }
};

// A layer's part of the logs (DeviceLog). Entry i of a sequence's is the token that came i tokens behind state_src:
// those before num_logged are there, what the step leaves comes behind them. When state_dst is written the log begins
// there: the entries stay in their places, and what was replayed may be written over by a later step.
struct KernelLog {
    simt::Global<float> data;
    int64_t slot_floats;
    int32_t entry_floats;
    int32_t num_entries;  // of a slot's ring
    int32_t scan_at;      // floats in an entry; before it are the conv's inputs
    int32_t scan_column;  // of what comes out of the conv, that lies there
    int32_t conv_first;   // columns [conv_first, conv_end) are logged as they come out of the conv
    int32_t conv_end;
    int32_t steps_at;  // dt of every head, then decay; of a delta net beta, then decay

    [[nodiscard]] SIMT_FUNCTION simt::Global<float> entry(const DeviceSequence& of, int32_t i) const {
        int32_t place = of.first_entry + i;  // both below num_entries
        if (place >= num_entries) place -= num_entries;
        return data.slice(of.log * slot_floats + int64_t{place} * entry_floats, entry_floats);
    }
    // The entry that row r of a sequence becomes; negative: none, the destination takes it in or nobody keeps it.
    [[nodiscard]] SIMT_FUNCTION static int32_t entry_of_row(const DeviceSequence& of, int32_t r) {
        if (of.log < 0) return -1;
        const int32_t first = of.state_dst >= 0 ? known_rows(of) : 0;
        return r < first ? -1 : of.num_logged + r - first;
    }
};

// The next place where something is done with a state that takes a sequence's tokens in turn, first the logged ones: a
// snapshot, the last row that is no draft, a draft.
struct StateStop {
    int32_t num_tokens;  // before it
    int32_t write;       // the next snapshot
};
SIMT_FUNCTION int32_t snapshot_at(const KernelBatch& batch, const DeviceSequence& of, int32_t write) {
    const DeviceStateWrite snapshot = batch.writes[write];
    return of.num_logged + snapshot.length - of.first_position;
}
// The first one behind `done` tokens.
SIMT_FUNCTION StateStop stop_behind(const KernelBatch& batch, const DeviceSequence& of, int32_t done, int32_t write) {
    const int32_t num_known = of.num_logged + known_rows(of);
    StateStop stop = {done < num_known ? num_known : done + 1, write};
    if (write == of.first_write + of.num_writes) return stop;
    const int32_t snapshot = snapshot_at(batch, of, write);
    if (snapshot < stop.num_tokens) stop.num_tokens = snapshot;
    return stop;
}

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
