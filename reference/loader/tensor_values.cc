#include "reference/loader/tensor_values.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/check.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/half.h"

namespace verbatim::reference {
namespace {

constexpr uint16_t kInfinity = 0x7F80;
constexpr uint16_t kSign = 0x8000;
// The bf16 bits of 2^-56: biased exponent 127 - 56 = 71, mantissa 0.
constexpr uint16_t kSmallest = 71 << 7;

template <typename T>
T load(const std::byte* bytes, int64_t index) {
    T value;
    std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
}

// Element i of a tensor as binary32 bits. REQUIRES: BF16, F16 or F32.
uint32_t element_bits(const TensorEntry& tensor, int64_t i) {
    switch (tensor.dtype) {
        case TensorDtype::kBf16: return uint32_t{load<uint16_t>(tensor.bytes.data(), i)} << 16;
        case TensorDtype::kF16: return widen_half(load<uint16_t>(tensor.bytes.data(), i));
        case TensorDtype::kF32: return load<uint32_t>(tensor.bytes.data(), i);
        default: CHECK(false, "{}", dtype_name(tensor.dtype));
    }
}

void count_change(uint32_t before_bits, uint16_t after, LoadReport& report) {
    const float before = std::bit_cast<float>(before_bits);
    if (!std::isfinite(before)) {
        ++report.num_not_finite;
    } else if ((before_bits << 1) != 0 && after == 0) {
        ++report.num_flushed;
    } else if ((after & ~kSign) == kInfinity) {
        ++report.num_overflowed;
    } else if (const double exact = before; after != before_bits >> 16 || (before_bits & 0xFFFF) != 0) {
        const double rounded = std::bit_cast<float>(uint32_t{after} << 16);
        if (rounded == exact) return;  // -0 that became +0
        ++report.num_rounded;
        report.max_relative_change = std::max(report.max_relative_change, std::abs((rounded - exact) / exact));
    }
}

}  // namespace

bool is_aligned_bf16(const TensorEntry& tensor) {
    return tensor.dtype == TensorDtype::kBf16 &&
           reinterpret_cast<uintptr_t>(tensor.bytes.data()) % alignof(uint16_t) == 0;
}

bool is_canonical(const TensorEntry& tensor, WorkerPool& pool) {
    constexpr int64_t kGrain = 1 << 16;  // elements
    std::atomic<uint32_t> any_odd = 0;
    pool.for_ranges(tensor.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
        uint32_t odd = 0;
        for (int64_t i = begin; i < end; ++i) {
            const auto bits = load<uint16_t>(tensor.bytes.data(), i);
            const auto magnitude = static_cast<uint16_t>(bits & ~kSign);
            odd |= static_cast<uint32_t>(magnitude >= kInfinity) |
                   static_cast<uint32_t>(magnitude < kSmallest && bits != 0);
        }
        if (odd != 0) any_odd = 1;
    });
    return any_odd == 0;
}

bool is_convertible(TensorDtype dtype) {
    return dtype == TensorDtype::kBf16 || dtype == TensorDtype::kF16 || dtype == TensorDtype::kF32;
}

void convert_to_bf16(const TensorEntry& tensor, std::span<uint16_t> destination, LoadReport& report) {
    const int64_t count = tensor.num_elements();
    CHECK_EQ(static_cast<int64_t>(destination.size()), count);
    for (int64_t i = 0; i < count; ++i) {
        const uint32_t before = element_bits(tensor, i);
        const uint16_t after = round_to_bf16(std::bit_cast<float>(before));
        destination[static_cast<size_t>(i)] = after;
        count_change(before, after, report);
    }
    if (tensor.dtype == TensorDtype::kF16) report.num_float16 += count;
    if (tensor.dtype == TensorDtype::kF32) report.num_float32 += count;
}

void convert_to_float(const TensorEntry& tensor, std::span<float> destination) {
    CHECK_EQ(static_cast<int64_t>(destination.size()), tensor.num_elements());
    for (int64_t i = 0; i < tensor.num_elements(); ++i)
        destination[static_cast<size_t>(i)] = std::bit_cast<float>(element_bits(tensor, i));
}

}  // namespace verbatim::reference
