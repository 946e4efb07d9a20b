// kernels/sandbox/coverage.h: owns the mapping of every executor operation to the sandbox: the operation of
// kernels/sandbox/kernel.h that covers it, or the reason for none. A test compares it with reference/walk.h,
// reference/ops/ and kernels/cuda/cuda_ops.h: a new operation needs a line here.
#pragma once

#include <span>
#include <string_view>

namespace verbatim::sandbox {

struct Coverage {
    std::string_view name;       // as in these headers
    std::string_view operation;  // of the sandbox; empty: none
    std::string_view reason;     // if there is none; a phrase that begins in lower case
};
// By name.
std::span<const Coverage> coverage();

}  // namespace verbatim::sandbox
