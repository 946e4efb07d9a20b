#include "engine/cache/id_pool.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"

namespace verbatim {

template <typename Id>
IdPool<Id>::IdPool(int32_t num_units) : free_(num_units), fenced_ids_(num_units), num_free_(num_units) {
    free_.insert(0, num_units);
}

template <typename Id>
IdPool<Id>::IdPool(int32_t num_units, ByteBudget& budget, int64_t unit_bytes) : IdPool(num_units) {
    CHECK_GE(unit_bytes, 0);
    budget_ = &budget;
    unit_bytes_ = unit_bytes;
}

template <typename Id>
void IdPool<Id>::add_units(int32_t count) {
    const int32_t first = num_units();
    CHECK(count >= 0 && count <= std::numeric_limits<int32_t>::max() - first, "{} more units than {}", count, first);
    free_.grow(first + count);
    fenced_ids_.grow(first + count);
    free_.insert(first, first + count);
    num_free_ += count;
}

template <typename Id>
auto IdPool<Id>::allocate(int32_t count, std::optional<Id> after) -> std::optional<std::vector<Run>> {
    std::vector<Run> runs;
    if (!allocate(count, after, runs)) return std::nullopt;
    return runs;
}

template <typename Id>
bool IdPool<Id>::allocate(int32_t count, std::optional<Id> after, std::vector<Run>& runs) {
    CHECK_GE(count, 0);
    if (count > num_free()) return false;
    num_free_ -= count;
    if (budget_ != nullptr) budget_->hold(count * unit_bytes_);
    const int32_t next = after ? index(*after) + 1 : num_units();
    if (count > 0 && next < num_units() && free_.contains(next)) {
        const int32_t end = free_.erase_run(next, next + std::min(count, num_units() - next));
        CHECK_GT(end, next);
        runs.push_back({static_cast<Id>(next), end - next});
        count -= end - next;
    }
    const size_t first_low = runs.size();
    free_.erase_lowest(count, [&](int32_t begin, int32_t end) {
        if (runs.size() > first_low && index(runs.back().first) + runs.back().count == begin) {
            runs.back().count += end - begin;
        } else {
            runs.push_back({static_cast<Id>(begin), end - begin});
        }
    });
    return true;
}

template <typename Id>
void IdPool<Id>::release(std::span<const Run> runs, int64_t busy_through) {
    const bool is_busy = busy_through > complete_step_;
    for (const Run& run : runs) {
        const int32_t first = index(run.first);
        CHECK(run.count > 0 && first >= 0 && first + run.count <= num_units(), "units [{}, +{}) of {}", first,
              run.count, num_units());
        const bool was_fenced = num_fenced_ > 0 && !fenced_ids_.contains_none(first, first + run.count);
        const bool was_free = is_busy && !free_.contains_none(first, first + run.count);
        CHECK(!was_fenced && !was_free, "one of units [{}, +{}) is free already", first, run.count);
        if (!is_busy) {
            make_free(run);
            continue;
        }
        fenced_.push_back({busy_through, run});
        fenced_ids_.insert(first, first + run.count);
        num_fenced_ += run.count;
        if (budget_ != nullptr) budget_->fence(run.count * unit_bytes_);
    }
    CHECK_GE(num_used(), 0);
}

template <typename Id>
void IdPool<Id>::make_free(const Run& run) {
    const int32_t first = index(run.first);
    CHECK(free_.insert_new(first, first + run.count), "one of units [{}, +{}) is free already", first, run.count);
    num_free_ += run.count;
    if (lists_freed_) freed_.push_back(run);
    if (budget_ != nullptr) budget_->free(run.count * unit_bytes_);
}

template <typename Id>
void IdPool<Id>::take_freed(std::vector<Run>& freed) {
    CHECK(lists_freed_ || freed_.empty(), "{} freed runs are listed", freed_.size());
    const size_t before = freed.size();
    freed.insert(freed.end(), freed_.begin(), freed_.end());
    freed_.clear();
    CHECK_GE(freed.size(), before);
}

template <typename Id>
void IdPool<Id>::complete_step(int64_t step) {
    CHECK_GE(step, complete_step_);
    complete_step_ = step;
    if (fenced_.empty()) return;
    std::erase_if(fenced_, [&](const Fenced& fenced) {
        if (fenced.busy_through > step) return false;
        num_fenced_ -= fenced.run.count;
        if (budget_ != nullptr) budget_->unfence(fenced.run.count * unit_bytes_);
        fenced_ids_.erase(index(fenced.run.first), index(fenced.run.first) + fenced.run.count);
        make_free(fenced.run);
        return true;
    });
    CHECK_GE(num_fenced_, 0);
}

template <typename Id>
void IdPool<Id>::verify(std::span<const int32_t> references) const {
    CHECK_EQ(static_cast<int32_t>(references.size()), num_units());
    free_.verify();
    fenced_ids_.verify();
    std::vector<uint8_t> fenced(references.size());
    int32_t fenced_total = 0;
    for (const Fenced& one : fenced_) {
        CHECK_GT(one.busy_through, complete_step_);
        fenced_total += one.run.count;
        for (int32_t i = 0; i < one.run.count; ++i)
            ++fenced[static_cast<size_t>(index(one.run.first)) + static_cast<size_t>(i)];
    }
    int32_t free_total = 0;
    for (int32_t i = 0; i < num_units(); ++i) {
        const auto place = static_cast<size_t>(i);
        CHECK_EQ(fenced[place], fenced_ids_.contains(i) ? 1 : 0);
        const int32_t idle = fenced[place] + (free_.contains(i) ? 1 : 0);
        free_total += free_.contains(i) ? 1 : 0;
        const bool used = idle == 0;
        CHECK(idle <= 1, "unit {}: idle {} times", i, idle);
        CHECK((references[place] > 0) == used, "unit {}: {} references, used {}", i, references[place], int{used});
    }
    CHECK_EQ(free_total, num_free_);
    CHECK_EQ(fenced_total, num_fenced_);
}

template class IdPool<BlockId>;
template class IdPool<StateIndex>;

}  // namespace verbatim
