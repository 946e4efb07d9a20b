// tools/kernel/coverage.h: owns what becomes of every operation of the executors in the sandbox: the operation of
// kernels/sandbox/kernel.h that stands for it, or why none does. A test holds it against reference/walk.h,
// reference/ops/ and kernels/cuda/cuda_ops.h, so that a new operation wants its line.
#pragma once

#include <span>
#include <string_view>

namespace verbatim::tools {

struct Coverage {
    std::string_view name;       // as these headers call it
    std::string_view operation;  // of the sandbox; empty: none
    std::string_view reason;     // then; a phrase that begins small
};
// By name.
std::span<const Coverage> coverage();

}  // namespace verbatim::tools
