// engine/cache/id_pool.h: owns the numbers of one kind of memory unit (KV blocks or state rows); executors own the
// bytes.
//   B1  free ids + num_fenced() + num_used() == num_units()      no unit is lost or doubled
//   B2  a unit is used from its allocation to its release        its sharing is counted elsewhere (kv_group.h)
//   B3  ids depend only on the sequence of calls                 same trace, same tables
//   B4  a unit that a step may still write is fenced: not allocated again before that step is complete
//   B5  used and fenced units hold their bytes of the budget, free ones hold none
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/ids.h"
#include "engine/cache/byte_budget.h"
#include "engine/cache/id_set.h"

namespace verbatim {

inline constexpr int64_t kNoStep = -1;  // before every step

template <typename Id>
class IdPool {
public:
    using Run = IdRun<Id>;

    explicit IdPool(int32_t num_units);  // REQUIRES: num_units >= 0
    // A unit takes `unit_bytes` of the budget, which other pools draw on too. Borrows the budget.
    IdPool(int32_t num_units, ByteBudget& budget, int64_t unit_bytes);

    // `count` more units, all free; the budget stays. REQUIRES: their numbers fit an int32_t.
    void add_units(int32_t count);
    // `count` units: those that follow `after` as far as they are free, then the lowest ids. Empty when num_free() is
    // less than `count`, and then nothing has changed: the caller evicts or preempts.
    [[nodiscard]] std::optional<std::vector<Run>> allocate(int32_t count, std::optional<Id> after = {});
    // The same, to the end of `runs`. False: nothing has changed.
    [[nodiscard]] bool allocate(int32_t count, std::optional<Id> after, std::vector<Run>& runs);
    // Steps up to `busy_through` may still write the units. REQUIRES: every unit is used.
    void release(Run run, int64_t busy_through = kNoStep) { release(std::span(&run, 1), busy_through); }
    void release(std::span<const Run> runs, int64_t busy_through);
    // Steps up to this one are complete: what they fenced is free. REQUIRES: not descending.
    void complete_step(int64_t step);

    // Units that become free are listed from now on, for executors that reuse their bytes.
    void list_freed() {
        CHECK(!lists_freed_ && freed_.empty(), "freed units are listed already");
        lists_freed_ = true;
    }
    // Appends the units that became free since the last call to `freed`. Some may be used again.
    void take_freed(std::vector<Run>& freed);

    [[nodiscard]] int32_t num_units() const { return free_.size(); }
    // That allocate() can give now: free ids, as far as the budget has bytes for them.
    [[nodiscard]] int32_t num_free() const { return within(num_free_, budget_ ? budget_->num_free() : 0); }
    // The same, when every open step is complete.
    [[nodiscard]] int32_t num_reclaimable() const {
        return within(num_free_ + num_fenced_, budget_ ? budget_->num_reclaimable() : 0);
    }
    // The most that could ever be held, with nothing held in other pools.
    [[nodiscard]] int32_t num_affordable() const { return within(num_units(), budget_ ? budget_->total() : 0); }
    [[nodiscard]] int64_t unit_bytes() const { return unit_bytes_; }
    [[nodiscard]] int32_t num_fenced() const { return num_fenced_; }
    [[nodiscard]] int32_t num_used() const { return num_units() - num_free_ - num_fenced_; }

    // B1 and B2 from scratch, and that the used units are those with a nonzero entry in `references`. O(num_units).
    void verify(std::span<const int32_t> references) const;

private:
    struct Fenced {
        int64_t busy_through;
        Run run;
    };
    void make_free(const Run& run);
    [[nodiscard]] int32_t within(int32_t num_ids, int64_t bytes) const {
        return unit_bytes_ > 0 ? static_cast<int32_t>(std::min<int64_t>(num_ids, bytes / unit_bytes_)) : num_ids;
    }

    ByteBudget* budget_ = nullptr;  // null: units cost nothing
    int64_t unit_bytes_ = 0;
    IdSet free_;
    IdSet fenced_ids_;
    std::vector<Fenced> fenced_;
    int32_t num_free_ = 0;
    int32_t num_fenced_ = 0;
    int64_t complete_step_ = kNoStep;
    bool lists_freed_ = false;
    std::vector<Run> freed_;
};

extern template class IdPool<BlockId>;
extern template class IdPool<StateIndex>;
using BlockPool = IdPool<BlockId>;
using StatePool = IdPool<StateIndex>;

}  // namespace verbatim
