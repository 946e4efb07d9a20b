// tests/support/must.h: what a random run expects. A breach is an exception that says where and what, so that the
// driver of the run can add the seed that leads there.
#pragma once

#include <fmt/format.h>

#include <stdexcept>

#define MUST(condition, ...)                                                                                    \
    do {                                                                                                        \
        if (!(condition)) [[unlikely]]                                                                          \
            throw std::runtime_error(                                                                           \
                ::fmt::format("{}:{}: {}: {}", __FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__))); \
    } while (false)
