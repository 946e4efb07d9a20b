// engine/base/error.h: the types of engine/base/result.h, for code that must not see the formatting library (CUDA's
// compiler).
#pragma once

#include <cstdint>
#include <string>
#include <tl/expected.hpp>

namespace verbatim {

// What is wrong, and so what a program that ends with the error returns (tools/program/cli.h).
enum class ErrorKind : uint8_t {
    kInput,    // a file, flag, model or trace
    kMachine,  // memory, a disk, a device
    kCheck,    // what was computed
};

struct Error {
    std::string message;
    ErrorKind kind = ErrorKind::kInput;
    friend bool operator==(const Error&, const Error&) = default;
};

// tl::expected: `if (!result) return tl::unexpected(result.error());`, `*result`, `result->member`.
template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

}  // namespace verbatim
