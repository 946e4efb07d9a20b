// tools/kernel/arguments.h: owns how a call's values are made, and how a call is taken apart: some of its items, some
// rows of an item, and what a chunk hands to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
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

// What a call of a real run had; tensors that are not here are made.
struct Captured {
    struct Values {
        std::string tensor;
        std::vector<std::byte> bytes;
        bool is_place = false;  // integers that say where: a call without them would be another one
        friend bool operator==(const Values&, const Values&) = default;
    };
    std::vector<int64_t> item_rows;
    Scalars scalars{};
    std::vector<Values> tensors;
    friend bool operator==(const Captured&, const Captured&) = default;
};

// Everything about a call's values.
struct KernelCase {
    Sizes sizes{};
    ValueClass values = ValueClass::kNormal;
    uint64_t seed = 0;
    std::optional<Captured> captured = {};  // then `sizes` bounds its items and rows
    friend bool operator==(const KernelCase&, const KernelCase&) = default;
};

// "rows 3, n 65, k 257; captured"
std::string describe(const Operation& operation, const KernelCase& one);

// A call of items with so many rows each: first rows are there, all else is zeros.
Arguments empty_arguments(const Operation& operation, const Sizes& sizes, std::vector<int64_t> item_rows);
// The same without memory for what a call has once, such as weights: what an operation's work is told by.
Arguments outlined_arguments(const Operation& operation, const Sizes& sizes, std::vector<int64_t> item_rows);
// Output tensors hold zeros. REQUIRES: check_captured has nothing against what is captured.
Arguments make_arguments(const Operation& operation, const KernelCase& one);

// The call of these items alone, in this order.
Arguments of_items(const Arguments& call, std::span<const int64_t> items);
// The call of one item's rows [first, first + count).
Arguments of_rows(const Arguments& call, int64_t item, int64_t first, int64_t count);
// `next` begins where `done`, a chunk with its results, ended.
void carry(const Arguments& done, Arguments& next);

// A captured call that makes these arguments again.
Captured captured_of(const Arguments& call);
// The bytes of all tensors of a call of these sizes, without making it.
double bytes_of_call(const Operation& operation, const Sizes& sizes, std::span<const int64_t> item_rows);
// What is wrong with a captured call. REQUIRES: sizes that the operation has, rows within them.
Status check_captured(const Operation& operation, const Sizes& sizes, const Captured& captured);

// The first row of every item, and the end.
std::vector<int64_t> first_rows_of(std::span<const int64_t> item_rows);

}  // namespace verbatim::tools
