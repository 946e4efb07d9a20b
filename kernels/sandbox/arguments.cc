#include "kernels/sandbox/arguments.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/result.h"
#include "kernels/sandbox/element_values.h"

namespace verbatim::sandbox {
namespace {

struct ClassName {
    ValueClass values;
    std::string_view name;
};
constexpr ClassName kClassNames[] = {
    {ValueClass::kNormal, "normal"},
    {ValueClass::kIntegers, "integers"},
    {ValueClass::kCancelling, "cancelling"},
    {ValueClass::kTiny, "tiny"},
    {ValueClass::kHuge, "huge"},
    {ValueClass::kSubnormal, "subnormal"},
    {ValueClass::kNotFinite, "not-finite"},
};

// Between -1 and 1, each of 2^24 places alike.
float uniform(Prng& prng) {
    return static_cast<float>(static_cast<int32_t>(prng.below(1U << 25)) - (1 << 24)) * 0x1p-24F;
}
// About normal: three uniform ones.
float plain(Prng& prng) { return uniform(prng) + uniform(prng) + uniform(prng); }

float not_finite(Prng& prng) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const uint64_t kind = prng.below(3);
    return kind == 0 ? kInfinity : kind == 1 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
}

float value_of(ValueClass values, Prng& prng) {
    const float value = plain(prng);
    switch (values) {
        case ValueClass::kNormal: return value;
        case ValueClass::kIntegers: {
            const float integer = static_cast<float>(prng.below(9)) - 4.0F;
            return integer == 0 ? std::copysign(0.0F, value) : integer;  // zeros of both signs
        }
        case ValueClass::kCancelling: return (prng.below(2) == 0 ? 1.0F : -1.0F) * (1024.0F + std::floor(value * 8));
        case ValueClass::kTiny: return std::ldexp(value, -static_cast<int>(prng.below(60)));
        case ValueClass::kHuge: return std::ldexp(value, static_cast<int>(prng.below(50)));
        case ValueClass::kSubnormal:
            return prng.below(3) == 0 ? value : std::ldexp(value, -127 - static_cast<int>(prng.below(20)));
        case ValueClass::kNotFinite: {
            // Zeros, too: a kernel that skips them loses the NaN that they are multiplied with.
            const uint64_t kind = prng.below(40);
            return kind == 0 ? not_finite(prng) : kind < 3 ? std::copysign(0.0F, value) : value;
        }
    }
    CHECK(false, "class {}", static_cast<int>(values));
}

// Behind the first row: of one in three nothing but subnormals, of one in nine nothing but zeros: what a row's greatest
// value or its sum divides, or is compared with.
void leave_subnormals(Tensor& tensor, Prng& prng) {
    const int64_t width = tensor.spec.width;
    for (int64_t row = 1; row < tensor.num_units; ++row) {
        if (prng.below(3) != 0) continue;
        const float greatest = prng.below(3) == 0 ? 0.0F : 0x1p-127F;
        for (int64_t i = row * width; i < (row + 1) * width; ++i) set_element(tensor, i, greatest * uniform(prng));
    }
}

void fill_values(Tensor& tensor, ValueClass values, Prng& prng) {
    CHECK(is_float(tensor.spec.dtype), "{} is filled with values", tensor.spec.name);
    for (int64_t i = 0; i < num_elements(tensor); ++i) set_element(tensor, i, value_of(values, prng));
    if (values == ValueClass::kSubnormal && tensor.spec.axis == Axis::kRow) leave_subnormals(tensor, prng);
    // Small rows have one, too; of weights one would be in every row.
    const bool has_one = values == ValueClass::kNotFinite && tensor.spec.dtype == Dtype::kF32;
    if (!has_one || tensor.spec.axis == Axis::kCall || tensor.bytes.empty()) return;
    const auto elements = tensor.as<float>();
    if (std::ranges::all_of(elements, [](float value) { return std::isfinite(value); })) {
        elements[prng.below(elements.size())] = not_finite(prng);
    }
}

int64_t units_of(const TensorSpec& spec, const Arguments& call) {
    return spec.axis == Axis::kRow ? call.num_rows() : spec.axis == Axis::kItem ? std::ssize(call.item_rows) : 1;
}

// Empty, of the call's number of units; first_row is written.
Tensor tensor_of(TensorSpec spec, const Arguments& call) {
    if (spec.fill == Fill::kFirstRow) spec.width = std::ssize(call.item_rows) + 1;
    Tensor tensor{spec, units_of(spec, call), {}};
    tensor.bytes.resize(static_cast<size_t>(tensor.num_units * tensor.unit_bytes()));
    if (spec.fill == Fill::kFirstRow) std::ranges::copy(first_rows_of(call.item_rows), tensor.as<int64_t>().begin());
    return tensor;
}

// Units [first, first + count) of `from`, to unit `at` of `to`.
void copy_units(const Tensor& from, int64_t first, int64_t count, Tensor& to, int64_t at) {
    const int64_t size = from.unit_bytes();
    std::copy_n(from.bytes.begin() + first * size, count * size, to.bytes.begin() + at * size);
}

struct Piece {
    int64_t item = 0;
    int64_t first = 0;  // of its rows
    int64_t count = 0;
};

Arguments of_pieces(const Arguments& call, std::span<const Piece> pieces) {
    Arguments part{call.operation, call.sizes, call.scalars, {}, {}};
    for (const Piece& piece : pieces) part.item_rows.push_back(piece.count);
    const std::vector<int64_t> first_rows = first_rows_of(call.item_rows);
    for (const Tensor& whole : call.tensors) {
        Tensor& tensor = part.tensors.emplace_back(tensor_of(whole.spec, part));
        if (whole.spec.fill == Fill::kFirstRow) continue;
        if (whole.spec.axis == Axis::kCall) tensor.bytes = whole.bytes;
        int64_t row = 0;
        for (size_t i = 0; i < pieces.size(); ++i) {
            const Piece& piece = pieces[i];
            const auto at = static_cast<int64_t>(i);
            if (whole.spec.axis == Axis::kItem) copy_units(whole, piece.item, 1, tensor, at);
            if (whole.spec.axis == Axis::kRow) {
                copy_units(whole, first_rows[piece.item] + piece.first, piece.count, tensor, row);
            }
            if (whole.spec.advances) tensor.as<int64_t>()[i] += piece.first;
            row += piece.count;
        }
    }
    return part;
}

bool is_place(const TensorSpec& spec) { return spec.fill == Fill::kOwn && spec.dtype != Dtype::kF32; }

// kOutlined: no values are made, and per-call tensors, such as weights, have no memory.
enum class Contents : uint8_t { kWhole, kOutlined };

// With what is captured in place of what is made, and whatever that is.
Arguments unsettled(const Operation& operation, const KernelCase& one, Contents contents = Contents::kWhole) {
    Prng prng(one.seed);
    const bool is_whole = contents == Contents::kWhole;
    Arguments call{&operation, one.sizes, {}, operation.items(one.sizes, prng), {}};
    if (one.captured) call.item_rows = one.captured->item_rows;
    for (TensorSpec spec : operation.tensors(one.sizes)) {
        if (!is_whole && spec.axis == Axis::kCall && spec.fill == Fill::kValues) spec.width = 0;
        Tensor& tensor = call.tensors.emplace_back(tensor_of(spec, call));
        if (!is_whole || spec.role == Role::kOut) continue;
        if (spec.fill == Fill::kValues) fill_values(tensor, one.values, prng);
        if (spec.fill == Fill::kPlain) fill_values(tensor, ValueClass::kNormal, prng);
    }
    operation.finish(call, prng);
    CHECK_LE(call.tensors.size(), kMaxTensors);
    if (!one.captured) return call;
    call.scalars = one.captured->scalars;
    for (const Captured::Values& values : one.captured->tensors) {
        Tensor& tensor = call.tensor(values.tensor);
        if (is_whole || tensor.spec.width > 0) tensor.bytes = values.bytes;
    }
    return call;
}

}  // namespace

std::string_view name(ValueClass values) {
    const auto* found =
        std::ranges::find_if(kClassNames, [&](const ClassName& known) { return known.values == values; });
    return found->name;
}

std::optional<ValueClass> value_class(std::string_view name) {
    const auto* found = std::ranges::find_if(kClassNames, [&](const ClassName& known) { return known.name == name; });
    if (found == std::end(kClassNames)) return std::nullopt;
    return found->values;
}

std::vector<int64_t> first_rows_of(std::span<const int64_t> item_rows) {
    std::vector<int64_t> first_rows = {0};
    for (const int64_t rows : item_rows) first_rows.push_back(first_rows.back() + rows);
    return first_rows;
}

std::string describe(const Operation& operation, const KernelCase& one) {
    const std::string sizes = describe(operation, one.sizes);
    if (!one.captured) return sizes;
    const std::vector<int64_t>& rows = one.captured->item_rows;
    const bool is_plain = std::ranges::all_of(rows, [](int64_t count) { return count == 1; });
    if (is_plain || rows.size() > 8) return fmt::format("{}; captured, {} of them", sizes, rows.size());
    return fmt::format("{}; captured, of {} rows", sizes, fmt::join(rows, ", "));
}

Arguments make_arguments(const Operation& operation, const KernelCase& one) {
    Arguments call = unsettled(operation, one);
    if (operation.settle != nullptr) operation.settle(call);
    return call;
}

Arguments empty_arguments(const Operation& operation, const Sizes& sizes, std::vector<int64_t> item_rows) {
    Arguments call{&operation, sizes, {}, std::move(item_rows), {}};
    for (const TensorSpec& spec : operation.tensors(sizes)) call.tensors.push_back(tensor_of(spec, call));
    return call;
}

double flops_of(const Operation& operation, const KernelCase& one) {
    return operation.work(unsettled(operation, one, Contents::kOutlined)).flops;
}

Captured captured_of(const Arguments& call) {
    Captured captured{call.item_rows, call.scalars, {}};
    for (const Tensor& tensor : call.tensors) {
        const bool is_given = tensor.spec.role != Role::kOut && tensor.spec.fill != Fill::kFirstRow;
        if (is_given && tensor.spec.width > 0)
            captured.tensors.push_back({tensor.spec.name, tensor.bytes, is_place(tensor.spec)});
    }
    return captured;
}

double bytes_of_call(const Operation& operation, const Sizes& sizes, std::span<const int64_t> item_rows) {
    const double rows = std::accumulate(item_rows.begin(), item_rows.end(), 0.0);
    double bytes = 0;
    for (const TensorSpec& spec : operation.tensors(sizes)) {
        const double units = spec.axis == Axis::kRow    ? rows
                             : spec.axis == Axis::kItem ? static_cast<double>(item_rows.size())
                                                        : 1.0;
        bytes += units * static_cast<double>(spec.width) * static_cast<double>(bytes_of(spec.dtype));
    }
    return bytes;
}

Status check_captured(const Operation& operation, const Sizes& sizes, const Captured& captured) {
    KernelCase one{.sizes = sizes, .captured = Captured{captured.item_rows, captured.scalars, {}}};
    const Arguments made = unsettled(operation, one);
    for (const Captured::Values& values : captured.tensors) {
        const auto found =
            std::ranges::find_if(made.tensors, [&](const Tensor& tensor) { return tensor.spec.name == values.tensor; });
        if (found == made.tensors.end()) return error("{} has no tensor {:?}", operation.name, values.tensor);
        if (found->spec.role == Role::kOut || found->spec.fill == Fill::kFirstRow) {
            return error("`{}` is no input whose values can be given", values.tensor);
        }
        if (found->bytes.size() != values.bytes.size()) {
            return error("`{}` has {} bytes, and {} in a call of these sizes", values.tensor, values.bytes.size(),
                         found->bytes.size());
        }
    }
    if (operation.admits == nullptr) return {};
    one.captured = captured;
    return operation.admits(unsettled(operation, one));
}

Arguments of_items(const Arguments& call, std::span<const int64_t> items) {
    std::vector<Piece> pieces;
    for (const int64_t item : items) pieces.push_back({item, 0, call.item_rows.at(static_cast<size_t>(item))});
    return of_pieces(call, pieces);
}

Arguments of_rows(const Arguments& call, int64_t item, int64_t first, int64_t count) {
    const Piece piece{item, first, count};
    return of_pieces(call, {&piece, 1});
}

void carry(const Arguments& done, Arguments& next) {
    for (Tensor& tensor : next.tensors) {
        if (tensor.spec.continues == nullptr) continue;
        const Tensor& left = done.tensor(tensor.spec.continues);
        tensor.spec.width = left.spec.width;  // the first chunk may have begun with none
        tensor.bytes = left.bytes;
    }
}

}  // namespace verbatim::sandbox
