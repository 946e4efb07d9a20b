// kernels/sandbox/invariance.h: owns the check that the bits of a row depend on the row alone: the same items run
// twice, in any batch, at any position, in any chunks, with any number of threads, in blocks of any size, anywhere in
// memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/sandbox/check.h"

namespace verbatim::sandbox {

enum class Property : uint8_t {
    kRun,       // the same call again
    kBatch,     // an item alone, or in a smaller batch
    kPosition,  // the same items in another order
    kChunk,     // a sequence in several calls; independent rows have no chunks
    kThreads,   // number of threads, order of tasks, size and order of blocks, pages, alignment
};
inline constexpr Property kProperties[] = {Property::kRun, Property::kBatch, Property::kPosition, Property::kChunk,
                                           Property::kThreads};
std::string_view name(Property property);
std::optional<Property> property_of(std::string_view name);

// A kernel need not accept every variation of a call that it accepts: a refused one gives no evidence.
struct Tried {
    int64_t taken = 0;
    int64_t refused = 0;

    // All variations were refused: there is no evidence.
    [[nodiscard]] bool is_nothing() const { return taken == 0 && refused > 0; }
};

struct InvarianceResult {
    int64_t num_cases = 0;
    std::array<Tried, std::size(kProperties)> tried;  // by property
    // By property: the smallest case found that violates it.
    std::array<std::optional<Failure>, std::size(kProperties)> broken;
    // A call that did not complete gives no evidence of invariance.
    std::optional<Failure> failure;

    // The property was tried, and held in every case.
    [[nodiscard]] bool holds(Property property) const {
        const auto i = static_cast<size_t>(property);
        return !broken[i] && !tried[i].is_nothing();
    }
};

// The result of one property in one case. No failure: the property held in every variation that was tried.
struct Variation {
    std::optional<Failure> failure;
    Tried tried;
};
Variation find_variation(KernelHost& host, const KernelInfo& kernel, const Operation& operation, Property property,
                         const KernelCase& one);
InvarianceResult check_invariance(KernelHost& host, const KernelInfo& kernel, const Operation& operation,
                                  const std::vector<KernelCase>& cases);

}  // namespace verbatim::sandbox
