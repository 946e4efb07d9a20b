// engine/cache/id_pool.h: owns the numbers of one kind of memory unit (KV blocks or state rows); executors own the
// bytes.
//   B1  num_free() + num_fenced() + num_used() == num_units()   no unit is lost or doubled
//   B2  a unit is used from its allocation to its release        who shares it is counted elsewhere (kv_group.h)
//   B3  ids depend only on the sequence of calls                 same trace, same tables
//   B4  a unit that a step may still write is fenced: not allocated again before that step is complete
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/ids.h"
#include "engine/cache/id_set.h"

namespace verbatim {

inline constexpr int64_t kNoStep = -1;  // before every step

template <typename Id>
class IdPool {
public:
    using Run = IdRun<Id>;

    explicit IdPool(int32_t num_units);  // REQUIRES: num_units >= 0

    // `count` units: those that follow `after` as far as they are free, then the lowest ids. Empty when fewer than
    // `count` are free, and then nothing has changed: the caller evicts or preempts.
    [[nodiscard]] std::optional<std::vector<Run>> allocate(int32_t count, std::optional<Id> after = {});
    // The same, to the end of `runs`. False: nothing has changed.
    [[nodiscard]] bool allocate(int32_t count, std::optional<Id> after, std::vector<Run>& runs);
    // Steps up to `busy_through` may still write the units. REQUIRES: every unit is used.
    void release(Run run, int64_t busy_through = kNoStep) { release(std::span(&run, 1), busy_through); }
    void release(std::span<const Run> runs, int64_t busy_through);
    // Steps up to this one are complete: what they fenced is free. REQUIRES: not descending.
    void complete_step(int64_t step);

    [[nodiscard]] int32_t num_units() const { return free_.size(); }
    [[nodiscard]] int32_t num_free() const { return num_free_; }
    [[nodiscard]] int32_t num_fenced() const { return num_fenced_; }
    [[nodiscard]] int32_t num_used() const { return num_units() - num_free_ - num_fenced_; }
    [[nodiscard]] bool is_used(Id id) const { return are_used({id, 1}); }

    // B1 and B2 from scratch, and that the used units are those with a nonzero entry in `references`. O(num_units).
    void verify(std::span<const int32_t> references) const;

private:
    struct Fenced {
        int64_t busy_through;
        Run run;
    };
    void make_free(const Run& run);
    [[nodiscard]] bool are_used(Run run) const;  // neither free nor fenced, any of them

    IdSet free_;
    IdSet fenced_ids_;
    std::vector<Fenced> fenced_;
    int32_t num_free_ = 0;
    int32_t num_fenced_ = 0;
    int64_t complete_step_ = kNoStep;
};

extern template class IdPool<BlockId>;
extern template class IdPool<StateIndex>;
using BlockPool = IdPool<BlockId>;
using StatePool = IdPool<StateIndex>;

}  // namespace verbatim
