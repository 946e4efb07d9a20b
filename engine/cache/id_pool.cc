#include "engine/cache/id_pool.h"

#include <algorithm>
#include <iterator>

#include "engine/base/check.h"

namespace verbatim {

template <typename Id>
IdPool<Id>::IdPool(int32_t num_units) : num_free_(num_units) {
    CHECK_GE(num_units, 0);
    used_.resize(num_units);
    if (num_units > 0) free_runs_.emplace(0, num_units);
}

template <typename Id>
auto IdPool<Id>::allocate(int32_t count, std::optional<Id> after) -> std::optional<std::vector<Run>> {
    CHECK_GE(count, 0);
    if (count > num_free_) return std::nullopt;
    std::vector<Run> runs;
    const auto take_from = [&](auto place, int32_t first) {
        runs.push_back(take(place, first, count));
        count -= runs.back().count;
    };
    if (after && count > 0) {
        const int32_t next = index(*after) + 1;
        const auto behind = free_runs_.upper_bound(next);
        if (behind != free_runs_.begin()) {
            const auto place = std::prev(behind);
            if (next < place->first + place->second) take_from(place, next);
        }
    }
    while (count > 0) take_from(free_runs_.begin(), free_runs_.begin()->first);
    return runs;
}

template <typename Id>
auto IdPool<Id>::take(typename std::map<int32_t, int32_t>::iterator place, int32_t first, int32_t count) -> Run {
    const auto [run_first, run_count] = *place;
    const int32_t run_end = run_first + run_count;
    CHECK(run_first <= first && first < run_end, "unit {} of the free run [{}, {})", first, run_first, run_end);
    const int32_t end = std::min(first + count, run_end);
    auto hint = free_runs_.erase(place);
    if (end < run_end) hint = free_runs_.emplace_hint(hint, end, run_end - end);
    if (run_first < first) free_runs_.emplace_hint(hint, run_first, first - run_first);
    std::fill(used_.begin() + first, used_.begin() + end, uint8_t{1});
    num_free_ -= end - first;
    return {static_cast<Id>(first), end - first};
}

template <typename Id>
void IdPool<Id>::release(Run run, int64_t busy_through) {
    CHECK(run.count > 0 && index(run.first) >= 0 && index(run.first) + run.count <= num_units(),
          "units [{}, +{}) of {}", index(run.first), run.count, num_units());
    const auto first = used_.begin() + index(run.first);
    CHECK(std::count(first, first + run.count, uint8_t{1}) == run.count, "one of units [{}, +{}) is free already",
          index(run.first), run.count);
    std::fill_n(first, run.count, uint8_t{0});
    if (busy_through > complete_step_) {
        fenced_.push_back({busy_through, run});
        num_fenced_ += run.count;
    } else {
        make_free(run);
    }
}

template <typename Id>
void IdPool<Id>::make_free(Run run) {
    num_free_ += run.count;
    auto after = free_runs_.upper_bound(index(run.first));
    const int32_t first = index(run.first);
    int32_t count = run.count;
    if (after != free_runs_.end() && after->first == first + count) {
        count += after->second;
        after = free_runs_.erase(after);
    }
    if (after != free_runs_.begin()) {
        const auto before = std::prev(after);
        CHECK(before->first + before->second <= first, "unit {} is free twice", first);
        if (before->first + before->second == first) {
            before->second += count;
            return;
        }
    }
    free_runs_.emplace_hint(after, first, count);
}

template <typename Id>
void IdPool<Id>::complete_step(int64_t step) {
    CHECK_GE(step, complete_step_);
    complete_step_ = step;
    if (fenced_.empty()) return;
    std::erase_if(fenced_, [&](const Fenced& fenced) {
        if (fenced.busy_through > step) return false;
        num_fenced_ -= fenced.run.count;
        make_free(fenced.run);
        return true;
    });
    CHECK_GE(num_fenced_, 0);
}

template <typename Id>
void IdPool<Id>::verify(std::span<const int32_t> references) const {
    CHECK_EQ(references.size(), used_.size());
    std::vector<int32_t> idle(used_.size());
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
        CHECK_GT(fenced.busy_through, complete_step_);
        fenced_total += fenced.run.count;
        for (int32_t i = 0; i < fenced.run.count; ++i) ++idle[index(fenced.run.first) + i];
    }
    CHECK_EQ(free_total, num_free_);
    CHECK_EQ(fenced_total, num_fenced_);
    for (size_t i = 0; i < used_.size(); ++i) {
        CHECK(idle[i] == (used_[i] == 0 ? 1 : 0), "unit {}: used {}, idle {} times", i, used_[i], idle[i]);
        CHECK((references[i] > 0) == (used_[i] != 0), "unit {}: {} references, used {}", i, references[i], used_[i]);
    }
}

template class IdPool<BlockId>;
template class IdPool<StateIndex>;

}  // namespace verbatim
