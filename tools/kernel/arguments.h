// tools/kernel/arguments.h: owns how a call's values are made, and how a call is taken apart: some of its items, some
// rows of an item, and what a chunk hands to the next.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tools/kernel/operation.h"

namespace verbatim::tools {

enum class ValueClass : uint8_t {
    kNormal,
    kIntegers,    // of -4 ... 4: sums are exact in any order
    kCancelling,  // large ones of both signs
    kTiny,        // down to 2^-60
    kHuge,        // up to 2^50
    kSubnormal,   // below 2^-126, among others
    kNotFinite,   // NaN and infinities among others
};
inline constexpr ValueClass kValueClasses[] = {ValueClass::kNormal,   ValueClass::kIntegers, ValueClass::kCancelling,
                                               ValueClass::kTiny,     ValueClass::kHuge,     ValueClass::kSubnormal,
                                               ValueClass::kNotFinite};
std::string_view name(ValueClass values);
std::optional<ValueClass> value_class(std::string_view name);

// Everything about a call's values.
struct KernelCase {
    Sizes sizes{};
    ValueClass values = ValueClass::kNormal;
    uint64_t seed = 0;
    std::shared_ptr<const Arguments> given =
        nullptr;  // these values, and none that are made (tools/kernel/value_case.h)
    friend bool operator==(const KernelCase&, const KernelCase&) = default;
};

// A call of items with so many rows each: first rows are there, all else is zeros.
Arguments empty_arguments(const Operation& operation, const Sizes& sizes, std::vector<int64_t> item_rows);
// Output tensors hold zeros.
Arguments make_arguments(const Operation& operation, const KernelCase& one);

// The call of these items alone, in this order.
Arguments of_items(const Arguments& call, std::span<const int64_t> items);
// The call of one item's rows [first, first + count).
Arguments of_rows(const Arguments& call, int64_t item, int64_t first, int64_t count);
// `next` begins where `done`, a chunk with its results, ended.
void carry(const Arguments& done, Arguments& next);

// The first row of every item, and the end.
std::vector<int64_t> first_rows_of(std::span<const int64_t> item_rows);

}  // namespace verbatim::tools
