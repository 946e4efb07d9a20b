// server/http/outcome.h: owns the conversion of exceptions into a 500 of their request.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "server/http/api.h"

namespace verbatim::server {

inline ApiError server_failed(std::string_view why) {
    return {500, fmt::format("the server failed: {}", why), "", "internal_error"};
}

// The result of `work`, or the error for its exception. T is an ApiResult, or an optional error.
template <typename T>
T outcome_of(const std::function<T()>& work) {
    std::string why;
    try {
        return work();
    } catch (const std::exception& problem) {
        why = problem.what();
    }
    if constexpr (std::is_same_v<T, std::optional<ApiError>>)
        return server_failed(why);
    else
        return tl::unexpected(server_failed(why));
}

}  // namespace verbatim::server
