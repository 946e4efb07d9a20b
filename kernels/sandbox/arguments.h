// kernels/sandbox/arguments.h: owns making a call's values, and splitting a call: some of its items, some rows of an
// item, and the state that a chunk passes to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

enum class ValueClass : uint8_t {
    kNormal,
    kIntegers,    // of -4 ... 4: sums are exact in any order
    kCancelling,  // large ones of both signs
    kTiny,        // down to 2^-60
    kHuge,        // up to 2^50
    kSubnormal,   // some below 2^-126
    kNotFinite,   // some NaN and infinities, and some zeros
};
inline constexpr ValueClass kValueClasses[] = {ValueClass::kNormal,   ValueClass::kIntegers, ValueClass::kCancelling,
                                               ValueClass::kTiny,     ValueClass::kHuge,     ValueClass::kSubnormal,
                                               ValueClass::kNotFinite};
std::string_view name(ValueClass values);
std::optional<ValueClass> value_class(std::string_view name);

// The values of a call in a real run; absent tensors are generated.
struct Captured {
    struct Values {
        std::string tensor;
        std::vector<std::byte> bytes;
        bool is_place = false;  // positions or indices: without them the call would be a different one
        friend bool operator==(const Values&, const Values&) = default;
    };
    std::vector<int64_t> item_rows;
    Scalars scalars{};
    std::vector<Values> tensors;
    friend bool operator==(const Captured&, const Captured&) = default;
};

// All inputs that determine a call's values.
struct KernelCase {
    Sizes sizes{};
    ValueClass values = ValueClass::kNormal;
    uint64_t seed = 0;
    std::optional<Captured> captured = {};  // then `sizes` are upper bounds of its items and rows
    friend bool operator==(const KernelCase&, const KernelCase&) = default;
};

// "rows 3, n 65, k 257; captured"
std::string describe(const Operation& operation, const KernelCase& one);

// A call of items with the given row counts: first rows are set, all other values are zeros.
Arguments empty_arguments(const Operation& operation, const Sizes& sizes, std::vector<int64_t> item_rows);
// The operations of a call (Work::flops), without memory for its per-call tensors, such as weights.
double flops_of(const Operation& operation, const KernelCase& one);
// Output tensors hold zeros. REQUIRES: check_captured accepts the captured values.
Arguments make_arguments(const Operation& operation, const KernelCase& one);

// The call of these items alone, in this order.
Arguments of_items(const Arguments& call, std::span<const int64_t> items);
// The call of one item's rows [first, first + count).
Arguments of_rows(const Arguments& call, int64_t item, int64_t first, int64_t count);
// Copies the state at the end of `done`, a chunk with results, into `next`.
void carry(const Arguments& done, Arguments& next);

// A captured call that reproduces these arguments.
Captured captured_of(const Arguments& call);
// The bytes of all tensors of a call of these sizes, without allocating it.
double bytes_of_call(const Operation& operation, const Sizes& sizes, std::span<const int64_t> item_rows);
// Validates a captured call. REQUIRES: sizes that the operation has, rows within them.
Status check_captured(const Operation& operation, const Sizes& sizes, const Captured& captured);

// The first row of every item, and the end.
std::vector<int64_t> first_rows_of(std::span<const int64_t> item_rows);

}  // namespace verbatim::sandbox
