#include "engine/cache/id_pool.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/planted.h"

namespace verbatim {

template <typename Id>
IdPool<Id>::IdPool(int32_t num_units) : num_free_(num_units) {
    CHECK_GE(num_units, 0);
    ref_cnt_.resize(num_units);
    if (num_units > 0) free_runs_.emplace(0, num_units);
}

template <typename Id>
auto IdPool<Id>::allocate(int32_t count) -> std::optional<std::vector<Run>> {
    CHECK_GE(count, 0);
    if (count > num_free_) return std::nullopt;
    num_free_ -= count;
    std::vector<Run> runs;
    while (count > 0) {
        const auto lowest = free_runs_.begin();
        const auto [first, available] = *lowest;
        const int32_t taken = std::min(available, count);
        free_runs_.erase(lowest);
        if (taken < available) free_runs_.emplace_hint(free_runs_.begin(), first + taken, available - taken);
        std::fill_n(ref_cnt_.begin() + first, taken, 1);
        runs.push_back({static_cast<Id>(first), taken});
        count -= taken;
    }
    return runs;
}

template <typename Id>
int32_t IdPool<Id>::least_ref_cnt(Run run) const {
    const int32_t* counts = ref_cnt_.data() + index(run.first);
    int32_t least = std::numeric_limits<int32_t>::max();
    for (int32_t i = 0; i < run.count; ++i) least = std::min(least, counts[i]);
    return least;
}

template <typename Id>
void IdPool<Id>::retain(Run run) {
    CHECK(least_ref_cnt(run) > 0, "one of units [{}, +{}) is free", index(run.first), run.count);
    int32_t* counts = ref_cnt_.data() + index(run.first);
    for (int32_t i = 0; i < run.count; ++i) ++counts[i];
}

template <typename Id>
void IdPool<Id>::release(Run run) {
    const int32_t least = least_ref_cnt(run);
    CHECK(least > 0, "one of units [{}, +{}) is free already", index(run.first), run.count);
    int32_t* counts = ref_cnt_.data() + index(run.first);
    for (int32_t i = 0; i < run.count; ++i) --counts[i];
    if (least > 1) return;
    for (int32_t i = 0; i < run.count;) {
        const int32_t first = i++;
        if (counts[first] > 0) continue;
        while (i < run.count && counts[i] == 0) ++i;
        make_free({static_cast<Id>(index(run.first) + first), i - first});
    }
}

template <typename Id>
void IdPool<Id>::make_free(Run run) {
    if (open_step_ > complete_step_ && !planted(Planted::kReuseUnfenced)) {
        fenced_.push_back({open_step_, run});
        num_fenced_ += run.count;
        return;
    }
    num_free_ += run.count;
    auto after = free_runs_.upper_bound(index(run.first));
    int32_t first = index(run.first);
    int32_t count = run.count;
    if (after != free_runs_.end() && after->first == first + count) {
        count += after->second;
        after = free_runs_.erase(after);
    }
    if (after != free_runs_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second == first) {
            before->second += count;
            return;
        }
    }
    free_runs_.emplace_hint(after, first, count);
}

template <typename Id>
void IdPool<Id>::begin_step(int64_t step) {
    CHECK_GT(step, open_step_);
    open_step_ = step;
}

template <typename Id>
void IdPool<Id>::complete_step(int64_t step) {
    CHECK_LE(step, open_step_);
    complete_step_ = std::max(complete_step_, step);
    size_t done = 0;
    const int64_t open = std::exchange(open_step_, complete_step_);  // so that make_free does not fence again
    for (; done < fenced_.size() && fenced_[done].step <= complete_step_; ++done) {
        num_fenced_ -= fenced_[done].run.count;
        make_free(fenced_[done].run);
    }
    open_step_ = open;
    fenced_.erase(fenced_.begin(), fenced_.begin() + static_cast<std::ptrdiff_t>(done));
}

template <typename Id>
void IdPool<Id>::verify(std::span<const int32_t> references) const {
    CHECK_EQ(references.size(), ref_cnt_.size());
    std::vector<int32_t> idle(ref_cnt_.size());
    int64_t free_total = 0;
    int64_t fenced_total = 0;
    int32_t previous_end = -1;
    for (const auto& [first, count] : free_runs_) {
        CHECK(first > previous_end && count > 0, "free run [{}, +{}) after {}", first, count, previous_end);
        previous_end = first + count;
        free_total += count;
        for (int32_t i = first; i < previous_end; ++i) ++idle[i];
    }
    for (const Fenced& fenced : fenced_) {
        fenced_total += fenced.run.count;
        for (int32_t i = 0; i < fenced.run.count; ++i) ++idle[index(fenced.run.first) + i];
    }
    CHECK_EQ(free_total, num_free_);
    CHECK_EQ(fenced_total, num_fenced_);
    for (size_t i = 0; i < ref_cnt_.size(); ++i) {
        CHECK(idle[i] == (ref_cnt_[i] == 0 ? 1 : 0), "unit {}: ref_cnt {}, idle {} times", i, ref_cnt_[i], idle[i]);
        CHECK(references[i] == ref_cnt_[i], "unit {}: {} references, ref_cnt {}", i, references[i], ref_cnt_[i]);
    }
}

template class IdPool<BlockId>;
template class IdPool<StateIndex>;

}  // namespace verbatim
