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

struct InvarianceResult {
    int64_t num_cases = 0;
    // By property: the smallest case found in which it does not hold.
    std::array<std::optional<Failure>, std::size(kProperties)> broken;
    // A call that did not end well says nothing of invariance.
    std::optional<Failure> failure;
};

// Whether one property holds in one case. Empty: it does.
std::optional<Failure> find_variation(KernelHost& host, const KernelInfo& kernel, const Operation& operation,
                                      Property property, const KernelCase& one);
InvarianceResult check_invariance(KernelHost& host, const KernelInfo& kernel, const Operation& operation,
                                  const std::vector<KernelCase>& cases);

}  // namespace verbatim::tools
