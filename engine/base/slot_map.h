// engine/base/slot_map.h: owns values by number. The numbers of freed values are used again, last freed first.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/paged_vector.h"

namespace verbatim {

// Values stay where they are.
template <typename T, typename Number>
class SlotMap {
public:
    [[nodiscard]] Number add(T value) {
        if (free_.empty()) {
            CHECK_LT(values_.size(), static_cast<size_t>(std::numeric_limits<Number>::max()));
            values_.push_back(std::move(value));
            return static_cast<Number>(values_.size() - 1);
        }
        const Number number = free_.back();
        free_.pop_back();
        values_[static_cast<size_t>(number)] = std::move(value);
        return number;
    }
    // The value becomes T{}. REQUIRES: the number was added and is not free.
    void free(Number number) {
        CHECK(free_.size() < values_.size(), "{} of {} values are free already", free_.size(), values_.size());
        values_[static_cast<size_t>(number)] = T{};
        free_.push_back(number);
    }
    [[nodiscard]] T& operator[](Number number) { return values_[static_cast<size_t>(number)]; }
    [[nodiscard]] const T& operator[](Number number) const { return values_[static_cast<size_t>(number)]; }
    [[nodiscard]] size_t size() const { return values_.size() - free_.size(); }
    [[nodiscard]] size_t num_numbers() const { return values_.size(); }  // free ones among them
    // Free ones are T{}.
    [[nodiscard]] const PagedVector<T>& all() const { return values_; }

private:
    PagedVector<T> values_;
    std::vector<Number> free_;
};

}  // namespace verbatim
