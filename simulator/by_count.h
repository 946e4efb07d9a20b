// simulator/by_count.h: owns values that depend on a count alone: each is computed when it is first asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/check.h"

namespace verbatim {

template <typename Value>
class ByCount {
public:
    // The value of `count`, which compute() gives. Valid until another count is asked for. REQUIRES: count >= 0.
    template <typename Compute>
    const Value& get(int64_t count, const Compute& compute) {
        CHECK_GE(count, 0);
        const auto place = static_cast<size_t>(count);
        if (values_.size() <= place) values_.resize(place + 1);
        std::optional<Value>& value = values_[place];
        if (!value) value = compute();
        return *value;
    }

private:
    std::vector<std::optional<Value>> values_;
};

}  // namespace verbatim
