// kernels/sandbox/cuda/source_std.h: owns cuda::std of values and types: the host's library has them. What the library
// has in source_cub.h and source_libcu.h (functional, atomic, memory orders) is there.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cuda::std {

// clang-format off
using ::std::array;                 using ::std::bit_cast;              using ::std::byte;
using ::std::conditional;           using ::std::conditional_t;         using ::std::countl_zero;
using ::std::countr_zero;           using ::std::decay_t;               using ::std::declval;
using ::std::enable_if;             using ::std::enable_if_t;           using ::std::false_type;
using ::std::get;                   using ::std::has_single_bit;        using ::std::index_sequence;
using ::std::int8_t;                using ::std::int16_t;               using ::std::int32_t;
using ::std::int64_t;               using ::std::integer_sequence;      using ::std::integral_constant;
using ::std::intptr_t;              using ::std::is_convertible_v;      using ::std::is_floating_point;
using ::std::is_floating_point_v;   using ::std::is_integral;           using ::std::is_integral_v;
using ::std::is_pointer_v;          using ::std::is_same;               using ::std::is_same_v;
using ::std::is_signed_v;           using ::std::is_unsigned_v;         using ::std::is_void_v;
using ::std::make_index_sequence;   using ::std::make_pair;             using ::std::make_signed_t;
using ::std::make_tuple;            using ::std::make_unsigned_t;       using ::std::max;
using ::std::min;                   using ::std::nullopt;               using ::std::numeric_limits;
using ::std::optional;              using ::std::pair;                  using ::std::popcount;
using ::std::ptrdiff_t;             using ::std::remove_const_t;        using ::std::remove_cv_t;
using ::std::remove_cvref_t;        using ::std::remove_pointer_t;      using ::std::remove_reference_t;
using ::std::size_t;                using ::std::span;                  using ::std::swap;
using ::std::tie;                   using ::std::true_type;             using ::std::tuple;
using ::std::tuple_size;            using ::std::uint8_t;               using ::std::uint16_t;
using ::std::uint32_t;              using ::std::uint64_t;              using ::std::uintptr_t;
using ::std::underlying_type_t;     using ::std::void_t;                using ::std::exchange;
using ::std::abs;                   using ::std::isfinite;              using ::std::isinf;
using ::std::isnan;                 using ::std::bit_ceil;              using ::std::bit_floor;
using ::std::bit_width;
// clang-format on

}  // namespace cuda::std
