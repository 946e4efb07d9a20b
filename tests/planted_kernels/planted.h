// tests/planted_kernels/planted.h: owns the common part of the planted kernels: each file exports one kernel with one
// subtle error. tests/tools/slow/kernel/planted_test.cc has the expected finding of each.
#pragma once

#include <cstdint>

#include "kernels/sandbox/kernel.h"

using RunFunction = int32_t (*)(const verbatim_kernel*, const verbatim_run*);
using WorkspaceFunction = int64_t (*)(const verbatim_kernel*, verbatim_args, int32_t);
using SupportsFunction = int32_t (*)(const verbatim_kernel*, verbatim_args);

constexpr verbatim_kernel planted(const char* operation, const char* profile, const char* machine, RunFunction run,
                                  WorkspaceFunction workspace_bytes = nullptr, SupportsFunction supports = nullptr) {
    return {VERBATIM_KERNEL_ABI, "planted", operation, profile, machine, nullptr, supports,
            workspace_bytes,     nullptr,   nullptr,   run};
}
#define PLANTED_KERNEL(...)                                                    \
    VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { \
        static constexpr verbatim_kernel kKernel = planted(__VA_ARGS__);       \
        return index == 0 ? &kKernel : nullptr;                                \
    }
