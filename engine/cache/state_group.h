// engine/cache/state_group.h: the Mamba state group: owns the owners of the state pool's rows.
//   S1  a row belongs to one sequence, one pending or one head: rows are never shared, and never copied to attach
#pragma once

#include <optional>
#include <vector>

#include "engine/cache/id_pool.h"

namespace verbatim {

class StateGroup {
public:
    // A model without Mamba layers has no state: every row is kNoState.
    StateGroup(bool enabled, int32_t num_rows) : enabled_(enabled), pool_(enabled ? num_rows : 0) {}
    StateGroup(bool enabled, int32_t num_rows, ByteBudget& budget, int64_t row_bytes)
        : enabled_(enabled), pool_(enabled ? num_rows : 0, budget, row_bytes) {}

    // A row, or kNoState where the model has none. Empty when no row is free.
    [[nodiscard]] std::optional<StateIndex> allocate() {
        if (!enabled_) return kNoState;
        allocated_.clear();
        if (!pool_.allocate(1, {}, allocated_)) return std::nullopt;
        return allocated_.front().first;
    }
    // Gives the row back and leaves kNoState. Steps up to `busy_through` may still write it.
    void release(StateIndex& row, int64_t busy_through = kNoStep) {
        if (row != kNoState) pool_.release({row, 1}, busy_through);
        row = kNoState;
    }
    void complete_step(int64_t step) { pool_.complete_step(step); }
    [[nodiscard]] bool enabled() const { return enabled_; }
    [[nodiscard]] StatePool& pool() { return pool_; }
    [[nodiscard]] const StatePool& pool() const { return pool_; }

private:
    bool enabled_;
    StatePool pool_;
    std::vector<StatePool::Run> allocated_;  // allocate's
};

}  // namespace verbatim
