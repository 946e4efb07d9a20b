// traces/interval_set.h: owns a set of integers stored as intervals, for sets of mostly long runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace verbatim::traces {

class IntervalSet {
public:
    // Adds [begin, end) and returns how many were new.
    int64_t insert(int64_t begin, int64_t end) {
        if (begin >= end) return 0;
        const int64_t size_before = size_;
        auto next = intervals_.upper_bound(begin);
        // Adjacent to or overlapping [begin, ..)
        if (next != intervals_.begin() && std::prev(next)->second >= begin) --next;
        while (next != intervals_.end() && next->first <= end) {
            begin = std::min(begin, next->first);
            end = std::max(end, next->second);
            size_ -= next->second - next->first;
            next = intervals_.erase(next);
        }
        intervals_.emplace_hint(next, begin, end);
        size_ += end - begin;
        return size_ - size_before;
    }
    // The end of the interval that contains `begin`; `begin` if there is none.
    [[nodiscard]] int64_t covered_until(int64_t begin) const {
        const auto next = intervals_.upper_bound(begin);
        if (next == intervals_.begin()) return begin;
        return std::max(begin, std::prev(next)->second);
    }
    // How many of [begin, end) are in the set.
    [[nodiscard]] int64_t count(int64_t begin, int64_t end) const {
        int64_t total = 0;
        auto next = intervals_.upper_bound(begin);
        if (next != intervals_.begin()) --next;
        for (; next != intervals_.end() && next->first < end; ++next) {
            total += std::max<int64_t>(0, std::min(end, next->second) - std::max(begin, next->first));
        }
        return total;
    }
    [[nodiscard]] int64_t size() const { return size_; }

private:
    std::map<int64_t, int64_t> intervals_;  // begin -> end; disjoint, not adjacent
    int64_t size_ = 0;
};

}  // namespace verbatim::traces
