// engine/base/check.h: assertions that are always on.
//
// CHECK stands for what the types cannot say. It must never be reachable from user input: the outside world is a
// Result (engine/base/result.h). A failed CHECK prints where, what, the values, and the run's context (seed, step),
// then aborts.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace verbatim {

// What a failed CHECK says about the run it stopped: set once per run or step; one per thread.
struct RunContext {
    uint64_t seed = 0;
    int64_t step = -1;
};
RunContext& run_context();

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace verbatim

// CHECK(condition) or CHECK(condition, "format {}", values...).
#define CHECK(condition, ...)                                                                        \
    do {                                                                                             \
        if (!(condition)) [[unlikely]]                                                               \
            ::verbatim::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    } while (false)

// CHECK_EQ(a, b) and friends print both values.
#define VERBATIM_CHECK_OP(a, op, b)                                                \
    do {                                                                           \
        const auto& check_a = (a);                                                 \
        const auto& check_b = (b);                                                 \
        if (!(check_a op check_b)) [[unlikely]]                                    \
            ::verbatim::check_failed(__FILE__, __LINE__, #a " " #op " " #b,        \
                                     ::fmt::format("{} vs {}", check_a, check_b)); \
    } while (false)
#define CHECK_EQ(a, b) VERBATIM_CHECK_OP(a, ==, b)
#define CHECK_NE(a, b) VERBATIM_CHECK_OP(a, !=, b)
#define CHECK_LT(a, b) VERBATIM_CHECK_OP(a, <, b)
#define CHECK_LE(a, b) VERBATIM_CHECK_OP(a, <=, b)
#define CHECK_GT(a, b) VERBATIM_CHECK_OP(a, >, b)
#define CHECK_GE(a, b) VERBATIM_CHECK_OP(a, >=, b)
