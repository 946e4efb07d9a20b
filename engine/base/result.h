// engine/base/result.h: what the outside world (file, flag, device, client) answers.
//
// A Result is carried up to where it can be said once. Its message says what, where, got, wanted, what to do:
//   tiny.safetensors: layers.3.mixer.A_log has shape [64], config.json says mamba_n_heads = 80: is this the right
//   config?
#pragma once

#include <fmt/format.h>

#include <utility>

#include "engine/base/error.h"

namespace verbatim {

template <typename... Args>
[[nodiscard]] tl::unexpected<Error> error(fmt::format_string<Args...> format, Args&&... args) {
    return tl::unexpected(Error{fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace verbatim

// Leaves the enclosing function with the error of `expression`, if it has one.
#define RETURN_IF_ERROR(expression)                                      \
    do {                                                                 \
        if (auto return_if_error = (expression); !return_if_error)       \
            return ::tl::unexpected(std::move(return_if_error).error()); \
    } while (false)

// ASSIGN_OR_RETURN(auto x, f()): x = the value of f(), or leave with its error.
#define VERBATIM_CONCAT2(a, b) a##b
#define VERBATIM_CONCAT(a, b) VERBATIM_CONCAT2(a, b)
#define VERBATIM_ASSIGN(temporary, declaration, expression)                \
    auto temporary = (expression);                                         \
    if (!temporary) return ::tl::unexpected(std::move(temporary).error()); \
    declaration = *std::move(temporary)
#define ASSIGN_OR_RETURN(declaration, ...) \
    VERBATIM_ASSIGN(VERBATIM_CONCAT(assign_or_return_, __LINE__), declaration, (__VA_ARGS__))
