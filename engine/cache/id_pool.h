// engine/cache/id_pool.h: owns the numbers of one kind of memory unit (KV blocks or state rows); executors own the bytes.
//   B1  num_free() + num_fenced() + num_used() == num_units()   no unit is lost or doubled
//   B2  ref_cnt(id) == 0 exactly when id is free or fenced
//   B3  ids depend only on the sequence of calls                 same trace, same tables
//   B4  a unit freed while a step is open is fenced: not allocated again before that step is complete
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim {

template <typename Id>
class IdPool {
public:
    using Run = IdRun<Id>;

    explicit IdPool(int32_t num_units);  // REQUIRES: num_units >= 0

    // `count` units with ref_cnt 1, lowest ids first, in as few runs as that allows. Empty when fewer than `count` are free, and
    // then nothing has changed: the caller evicts or preempts.
    [[nodiscard]] std::optional<std::vector<Run>> allocate(int32_t count);
    void retain(Run run);   // REQUIRES: every ref_cnt > 0
    void release(Run run);  // REQUIRES: every ref_cnt > 0

    void begin_step(int64_t step);     // REQUIRES: ascending
    void complete_step(int64_t step);  // the units fenced in steps up to this one are free

    [[nodiscard]] int32_t num_units() const { return static_cast<int32_t>(ref_cnt_.size()); }
    [[nodiscard]] int32_t num_free() const { return num_free_; }
    [[nodiscard]] int32_t num_fenced() const { return num_fenced_; }
    [[nodiscard]] int32_t num_used() const { return num_units() - num_free_ - num_fenced_; }
    [[nodiscard]] int32_t ref_cnt(Id id) const { return ref_cnt_[index(id)]; }

    // B1 and B2 from scratch, and that `references` (one count per unit) equals every ref_cnt. O(num_units).
    void verify(std::span<const int32_t> references) const;

private:
    struct Fenced {
        int64_t step;
        Run run;
    };
    [[nodiscard]] int32_t least_ref_cnt(Run run) const;
    void make_free(Run run);

    std::vector<int32_t> ref_cnt_;
    std::map<int32_t, int32_t> free_runs_;  // first -> count; no two adjacent
    std::vector<Fenced> fenced_;            // ascending by step
    int32_t num_free_ = 0;
    int32_t num_fenced_ = 0;
    int64_t open_step_ = -1;      // the newest step begun
    int64_t complete_step_ = -1;  // the newest step complete
};

extern template class IdPool<BlockId>;
extern template class IdPool<StateIndex>;
using BlockPool = IdPool<BlockId>;
using StatePool = IdPool<StateIndex>;

}  // namespace verbatim
