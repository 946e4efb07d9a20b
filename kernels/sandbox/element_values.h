// kernels/sandbox/element_values.h: owns the numbers that a tensor's elements have, whatever their dtype.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

// "f32", "bf16", "f16", "f8_e4m3", "f8_e5m2", "i8", "i32", "u32", "i64", "u64"
std::string_view name(Dtype dtype);
bool is_float(Dtype dtype);
int64_t num_elements(const Tensor& tensor);

// Element i; exact but for integers beyond 2^53.
double element_value(const Tensor& tensor, int64_t i);
// Rounds a value to the tensor's dtype, to nearest even. A finite one stays finite; bf16 as the engine rounds it.
// REQUIRES: a float dtype.
void set_element(Tensor& tensor, int64_t i, float value);
// Bits are equal, or both are NaN.
bool same_element(const Tensor& got, const Tensor& wanted, int64_t i);
// "0.0455400571 (0x3d3a8836)"
std::string element_text(const Tensor& tensor, int64_t i);
// The unit in the last place of a magnitude. REQUIRES: a float dtype; a finite magnitude.
double ulp_of(Dtype dtype, double magnitude);

}  // namespace verbatim::sandbox
