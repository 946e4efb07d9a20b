// engine/base/error.h: the types of engine/base/result.h, for code that must not see the formatting library (CUDA's compiler).
#pragma once

#include <string>
#include <tl/expected.hpp>

namespace verbatim {

struct Error {
    std::string message;
    friend bool operator==(const Error&, const Error&) = default;
};

// tl::expected: `if (!result) return tl::unexpected(result.error());`, `*result`, `result->member`.
template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

}  // namespace verbatim
