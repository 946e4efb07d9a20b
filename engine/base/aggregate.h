// engine/base/aggregate.h: the fields of a plain struct, from its definition: their number, their names, references to
// them. A struct states what it consists of once, by being one:
//     struct Slice {
//         uint32_t begin = 0;
//         uint32_t count = 0;
//     };
//     for_each_field(slice, [](std::string_view name, auto& field) { ... });  // "begin", then "count"
// C++20 has no reflection; three parts of it take its place: a struct of N fields can be initialised by N empty braces
// and not by N + 1, a structured binding refers to its fields, and a compiler spells out the address of a field with
// its name (of GCC and Clang; a test compares the names).
// Of aggregates of at most kMaxFields fields, without base classes, each of which `{}` initialises.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

namespace verbatim {

template <typename T>
concept IsAggregate = std::is_class_v<T> && std::is_aggregate_v<T>;

inline constexpr size_t kMaxFields = 24;

// References to the fields, in the order of the definition.
template <typename T>
    requires IsAggregate<std::remove_const_t<T>>
[[nodiscard]] constexpr auto fields_of(T& value) {
    using A = std::remove_const_t<T>;
    // clang-format off
    static_assert(!requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; },
                  "too many fields");
    if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l, m] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k, l] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j, k] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j, k);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i, j] = value;
        return std::tie(a, b, c, d, e, f, g, h, i, j);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h, i] = value;
        return std::tie(a, b, c, d, e, f, g, h, i);
    } else if constexpr (requires { A{{},{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g, h] = value;
        return std::tie(a, b, c, d, e, f, g, h);
    } else if constexpr (requires { A{{},{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f, g] = value;
        return std::tie(a, b, c, d, e, f, g);
    } else if constexpr (requires { A{{},{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e, f] = value;
        return std::tie(a, b, c, d, e, f);
    } else if constexpr (requires { A{{},{},{},{},{}}; }) {
        auto& [a, b, c, d, e] = value;
        return std::tie(a, b, c, d, e);
    } else if constexpr (requires { A{{},{},{},{}}; }) {
        auto& [a, b, c, d] = value;
        return std::tie(a, b, c, d);
    } else if constexpr (requires { A{{},{},{}}; }) {
        auto& [a, b, c] = value;
        return std::tie(a, b, c);
    } else if constexpr (requires { A{{},{}}; }) {
        auto& [a, b] = value;
        return std::tie(a, b);
    } else if constexpr (requires { A{{}}; }) {
        auto& [a] = value;
        return std::tie(a);
    } else {
        return std::tuple<>();
    }
    // clang-format on
}

template <typename T>
inline constexpr size_t kNumFields = std::tuple_size_v<decltype(fields_of(std::declval<T&>()))>;

namespace aggregate_names {

template <typename T>
struct Named {
    T value;
};
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"
#endif
// Has no definition and no value: only addresses of its fields are taken, when a program is compiled.
template <typename T>
extern const Named<T> kSample;

template <typename Pointer>
struct FieldPointer {
    Pointer pointer;
};
template <typename Pointer>
FieldPointer(Pointer) -> FieldPointer<Pointer>;

// "... {(& kSample<T>.Named<T>::value.T::begin)} ..." of GCC, "... {&kSample.value.begin}]" of Clang.
template <FieldPointer kField>
[[nodiscard]] consteval std::string_view name_of() {
    std::string_view text = __PRETTY_FUNCTION__;
    text = text.substr(0, text.rfind('}'));
    if (text.ends_with(')')) text.remove_suffix(1);
    const size_t begin = text.find_last_of(".:&> ") + 1;
    return text.substr(begin);
}

template <typename T, size_t kIndex>
inline constexpr std::string_view kName =
    name_of<FieldPointer{std::addressof(std::get<kIndex>(fields_of(kSample<T>.value)))}>();
#ifdef __clang__
#pragma clang diagnostic pop
#endif

}  // namespace aggregate_names

// Calls `visit(name, field)` for every field in turn.
template <typename T, typename Visit>
    requires IsAggregate<std::remove_const_t<T>>
constexpr void for_each_field(T& value, const Visit& visit) {
    using A = std::remove_const_t<T>;
    const auto fields = fields_of(value);
    [&]<size_t... kIndices>(std::index_sequence<kIndices...>) {
        (visit(aggregate_names::kName<A, kIndices>, std::get<kIndices>(fields)), ...);
    }
    (std::make_index_sequence<kNumFields<A>>());
}

}  // namespace verbatim
