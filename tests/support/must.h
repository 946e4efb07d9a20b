// tests/support/must.h: expectations of random runs. A violation is an exception with place and cause; the run's driver
// adds the seed.
#pragma once

#include <fmt/format.h>

#include <stdexcept>

#define MUST(condition, ...)                                                                                    \
    do {                                                                                                        \
        if (!(condition)) [[unlikely]]                                                                          \
            throw std::runtime_error(                                                                           \
                ::fmt::format("{}:{}: {}: {}", __FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__))); \
    } while (false)
