#include "kernels/sandbox/element_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/check.h"
#include "kernels/sandbox/small_floats.h"
#include "reference/numerics/bf16.h"

namespace verbatim::sandbox {
namespace {

struct DtypeInfo {
    Dtype dtype;
    std::string_view name;
    int mantissa_bits;   // 0: no float
    int least_exponent;  // of a normal number
    float greatest;      // finite
};
constexpr DtypeInfo kDtypes[] = {
    {Dtype::kF32, "f32", 23, -126, 0x1.fffffep+127F},
    {Dtype::kBf16, "bf16", 7, -126, 0x1.fep+127F},
    {Dtype::kF16, "f16", 10, -14, 65504.0F},
    {Dtype::kF8E4m3, "f8_e4m3", 3, -6, 448.0F},
    {Dtype::kF8E5m2, "f8_e5m2", 2, -14, 57344.0F},
    {Dtype::kI8, "i8", 0, 0, 0},
    {Dtype::kI32, "i32", 0, 0, 0},
    {Dtype::kU32, "u32", 0, 0, 0},
    {Dtype::kI64, "i64", 0, 0, 0},
    {Dtype::kU64, "u64", 0, 0, 0},
};

const DtypeInfo& info_of(Dtype dtype) {
    const auto* found = std::ranges::find(kDtypes, dtype, &DtypeInfo::dtype);
    CHECK(found != std::end(kDtypes), "dtype {}", static_cast<int>(dtype));
    return *found;
}

template <typename T>
double number(const Tensor& tensor, int64_t i) {
    return static_cast<double>(tensor.as<T>()[static_cast<size_t>(i)]);
}

}  // namespace

std::string_view name(Dtype dtype) { return info_of(dtype).name; }
bool is_float(Dtype dtype) { return info_of(dtype).mantissa_bits > 0; }
int64_t num_elements(const Tensor& tensor) { return std::ssize(tensor.bytes) / bytes_of(tensor.spec.dtype); }

double element_value(const Tensor& tensor, int64_t i) {
    const auto at = static_cast<size_t>(i);
    switch (tensor.spec.dtype) {
        case Dtype::kF32: return number<float>(tensor, i);
        case Dtype::kBf16: return verbatim_bf16_to_float(tensor.as<uint16_t>()[at]);
        case Dtype::kF16: return verbatim_f16_to_float(tensor.as<uint16_t>()[at]);
        case Dtype::kF8E4m3: return verbatim_e4m3_to_float(tensor.as<uint8_t>()[at]);
        case Dtype::kF8E5m2: return verbatim_e5m2_to_float(tensor.as<uint8_t>()[at]);
        case Dtype::kI8: return number<int8_t>(tensor, i);
        case Dtype::kI32: return number<int32_t>(tensor, i);
        case Dtype::kU32: return number<uint32_t>(tensor, i);
        case Dtype::kI64: return number<int64_t>(tensor, i);
        case Dtype::kU64: return number<uint64_t>(tensor, i);
    }
    CHECK(false, "dtype {}", static_cast<int>(tensor.spec.dtype));
}

void set_element(Tensor& tensor, int64_t i, float value) {
    const auto at = static_cast<size_t>(i);
    const float greatest = info_of(tensor.spec.dtype).greatest;
    if (std::isfinite(value)) value = std::clamp(value, -greatest, greatest);
    switch (tensor.spec.dtype) {
        case Dtype::kF32: tensor.as<float>()[at] = value; return;
        case Dtype::kBf16: tensor.as<uint16_t>()[at] = reference::round_to_bf16(value); return;
        case Dtype::kF16: tensor.as<uint16_t>()[at] = verbatim_float_to_f16(value); return;
        case Dtype::kF8E4m3: tensor.as<uint8_t>()[at] = verbatim_float_to_e4m3(value); return;
        case Dtype::kF8E5m2: tensor.as<uint8_t>()[at] = verbatim_float_to_e5m2(value); return;
        default: CHECK(false, "`{}` has no floats", tensor.spec.name);
    }
}

bool same_element(const Tensor& got, const Tensor& wanted, int64_t i) {
    const int64_t size = bytes_of(got.spec.dtype);
    if (std::memcmp(got.bytes.data() + i * size, wanted.bytes.data() + i * size, static_cast<size_t>(size)) == 0)
        return true;
    return is_float(got.spec.dtype) && std::isnan(element_value(got, i)) && std::isnan(element_value(wanted, i));
}

std::string element_text(const Tensor& tensor, int64_t i) {
    uint64_t bits = 0;
    const int64_t size = bytes_of(tensor.spec.dtype);
    std::memcpy(&bits, tensor.bytes.data() + i * size, static_cast<size_t>(size));
    if (tensor.spec.dtype == Dtype::kU64) return fmt::format("{:#x}", bits);
    if (tensor.spec.dtype == Dtype::kI64) return fmt::format("{}", static_cast<int64_t>(bits));
    if (!is_float(tensor.spec.dtype)) return fmt::format("{}", element_value(tensor, i));
    return fmt::format("{:.9g} ({:#0{}x})", element_value(tensor, i), bits, 2 + 2 * size);
}

double ulp_of(Dtype dtype, double magnitude) {
    const DtypeInfo& info = info_of(dtype);
    CHECK(info.mantissa_bits > 0 && std::isfinite(magnitude), "an ulp of {} in {}", magnitude, info.name);
    const int exponent = magnitude == 0 ? info.least_exponent : std::max(std::ilogb(magnitude), info.least_exponent);
    return std::ldexp(1.0, exponent - info.mantissa_bits);
}

}  // namespace verbatim::sandbox
