// kernels/sandbox/cuda/source_std.h: owns cuda::std of values and types: the host's library has them. What the library
// has in source_cub.h and source_libcu.h (functional, atomic, memory orders) is there.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cuda::std {

// clang-format off
using ::std::abs;                     using ::std::add_const_t;             using ::std::add_pointer_t;
using ::std::aligned_storage_t;       using ::std::apply;                   using ::std::array;
using ::std::as_const;                using ::std::bit_and;                 using ::std::bit_cast;
using ::std::bit_ceil;                using ::std::bit_floor;               using ::std::bit_not;
using ::std::bit_or;                  using ::std::bit_width;               using ::std::bit_xor;
using ::std::bool_constant;           using ::std::byte;                    using ::std::cbrt;
using ::std::ceil;                    using ::std::common_type;             using ::std::common_type_t;
using ::std::conditional;             using ::std::conditional_t;           using ::std::conjunction;
using ::std::conjunction_v;           using ::std::convertible_to;          using ::std::copysign;
using ::std::cos;                     using ::std::cosh;                    using ::std::countl_one;
using ::std::countl_zero;             using ::std::countr_one;              using ::std::countr_zero;
using ::std::decay;                   using ::std::decay_t;                 using ::std::declval;
using ::std::disjunction;             using ::std::disjunction_v;           using ::std::divides;
using ::std::enable_if;               using ::std::enable_if_t;             using ::std::endian;
using ::std::equal_to;                using ::std::erf;                     using ::std::erfc;
using ::std::exchange;                using ::std::exp;                     using ::std::exp2;
using ::std::expm1;                   using ::std::extent_v;                using ::std::fabs;
using ::std::false_type;              using ::std::floating_point;          using ::std::floor;
using ::std::fma;                     using ::std::fmax;                    using ::std::fmin;
using ::std::fmod;                    using ::std::forward;                 using ::std::get;
using ::std::greater;                 using ::std::greater_equal;           using ::std::has_single_bit;
using ::std::hypot;                   using ::std::identity;                using ::std::ignore;
using ::std::in_place;                using ::std::index_sequence;          using ::std::index_sequence_for;
using ::std::initializer_list;        using ::std::int16_t;                 using ::std::int32_t;
using ::std::int64_t;                 using ::std::int8_t;                  using ::std::integer_sequence;
using ::std::integral;                using ::std::integral_constant;       using ::std::intptr_t;
using ::std::invoke_result_t;         using ::std::is_arithmetic;           using ::std::is_arithmetic_v;
using ::std::is_array_v;              using ::std::is_base_of;              using ::std::is_base_of_v;
using ::std::is_class_v;              using ::std::is_const_v;              using ::std::is_constructible_v;
using ::std::is_convertible;          using ::std::is_convertible_v;        using ::std::is_empty_v;
using ::std::is_enum_v;               using ::std::is_floating_point;       using ::std::is_floating_point_v;
using ::std::is_function_v;           using ::std::is_integral;             using ::std::is_integral_v;
using ::std::is_invocable_v;          using ::std::is_lvalue_reference_v;   using ::std::is_member_pointer_v;
using ::std::is_nothrow_constructible_v;using ::std::is_null_pointer_v;       using ::std::is_pointer;
using ::std::is_pointer_v;            using ::std::is_reference_v;          using ::std::is_rvalue_reference_v;
using ::std::is_same;                 using ::std::is_same_v;               using ::std::is_signed;
using ::std::is_signed_v;             using ::std::is_standard_layout_v;    using ::std::is_trivially_copyable;
using ::std::is_trivially_copyable_v; using ::std::is_unsigned;             using ::std::is_unsigned_v;
using ::std::is_void;                 using ::std::is_void_v;               using ::std::isfinite;
using ::std::isinf;                   using ::std::isnan;                   using ::std::isnormal;
using ::std::ldexp;                   using ::std::less;                    using ::std::less_equal;
using ::std::log;                     using ::std::log1p;                   using ::std::log2;
using ::std::logical_and;             using ::std::logical_not;             using ::std::logical_or;
using ::std::make_index_sequence;     using ::std::make_integer_sequence;   using ::std::make_pair;
using ::std::make_signed;             using ::std::make_signed_t;           using ::std::make_tuple;
using ::std::make_unsigned;           using ::std::make_unsigned_t;         using ::std::max;
using ::std::min;                     using ::std::minus;                   using ::std::modulus;
using ::std::move;                    using ::std::multiplies;              using ::std::negate;
using ::std::negation;                using ::std::negation_v;              using ::std::not_equal_to;
using ::std::nullopt;                 using ::std::nullptr_t;               using ::std::numeric_limits;
using ::std::optional;                using ::std::pair;                    using ::std::popcount;
using ::std::pow;                     using ::std::ptrdiff_t;               using ::std::remove_all_extents_t;
using ::std::remove_const;            using ::std::remove_const_t;          using ::std::remove_cv;
using ::std::remove_cv_t;             using ::std::remove_cvref;            using ::std::remove_cvref_t;
using ::std::remove_extent_t;         using ::std::remove_pointer;          using ::std::remove_pointer_t;
using ::std::remove_reference;        using ::std::remove_reference_t;      using ::std::remove_volatile_t;
using ::std::rint;                    using ::std::rotl;                    using ::std::rotr;
using ::std::round;                   using ::std::same_as;                 using ::std::signbit;
using ::std::signed_integral;         using ::std::sin;                     using ::std::sinh;
using ::std::size_t;                  using ::std::span;                    using ::std::sqrt;
using ::std::swap;                    using ::std::tan;                     using ::std::tanh;
using ::std::tie;                     using ::std::to_array;                using ::std::true_type;
using ::std::trunc;                   using ::std::tuple;                   using ::std::tuple_cat;
using ::std::tuple_element;           using ::std::tuple_element_t;         using ::std::tuple_size;
using ::std::tuple_size_v;            using ::std::type_identity;           using ::std::type_identity_t;
using ::std::uint16_t;                using ::std::uint32_t;                using ::std::uint64_t;
using ::std::uint8_t;                 using ::std::uintptr_t;               using ::std::underlying_type;
using ::std::underlying_type_t;       using ::std::unsigned_integral;       using ::std::void_t;
// clang-format on

}  // namespace cuda::std
