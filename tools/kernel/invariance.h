// tools/kernel/invariance.h: owns the question whether the bits of a row know anything but the row: the same items run
// twice, in any company, at any place, in any chunks, by any number of threads, in blocks of any size, anywhere in
// memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/kernel/check.h"

namespace verbatim::tools {

enum class Property : uint8_t {
    kRun,       // the same call again
    kBatch,     // an item alone, or in less company
    kPosition,  // the same items in another order
    kChunk,     // a sequence in several calls; rows that know nothing of each other have no chunks
    kThreads,   // number of threads, order of tasks, size and order of blocks, pages, alignment
};
inline constexpr Property kProperties[] = {Property::kRun, Property::kBatch, Property::kPosition, Property::kChunk,
                                           Property::kThreads};
std::string_view name(Property property);
std::optional<Property> property_of(std::string_view name);

// A kernel need not take every variation of a call that it takes: what it refuses says nothing.
struct Tried {
    int64_t taken = 0;
    int64_t refused = 0;

    // There was something to try, and all of it was refused: nothing is known.
    [[nodiscard]] bool is_nothing() const { return taken == 0 && refused > 0; }
};

struct InvarianceResult {
    int64_t num_cases = 0;
    std::array<Tried, std::size(kProperties)> tried;  // by property
    // By property: the smallest case found in which it does not hold.
    std::array<std::optional<Failure>, std::size(kProperties)> broken;
    // A call that did not end well says nothing of invariance.
    std::optional<Failure> failure;

    // It was tried, and was found everywhere.
    [[nodiscard]] bool holds(Property property) const {
        const auto i = static_cast<size_t>(property);
        return !broken[i] && !tried[i].is_nothing();
    }
};

// Whether one property holds in one case. No failure: it does, in what was tried.
struct Variation {
    std::optional<Failure> failure;
    Tried tried;
};
Variation find_variation(KernelHost& host, const KernelInfo& kernel, const Operation& operation, Property property,
                         const KernelCase& one);
InvarianceResult check_invariance(KernelHost& host, const KernelInfo& kernel, const Operation& operation,
                                  const std::vector<KernelCase>& cases);

}  // namespace verbatim::tools
