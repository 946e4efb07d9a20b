// kernels/sandbox/ordering_calls.h: owns the list of barriers and waits in a kernel's text, whether or not a call
// reaches them. The emulator reports the reached ones (kernels/simt/ordering_places.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/simt/ordering_places.h"

namespace verbatim::sandbox {

// A call of a simt.h function that orders accesses.
struct OrderingCall {
    std::string what;  // the function
    std::string file;  // as passed to the compiler
    uint32_t line = 0;
    uint32_t last_line = 0;
    friend bool operator==(const OrderingCall&, const OrderingCall&) = default;
};
// Takes preprocessed text: no comments, and line markers with file names. System headers and declarations are skipped.
std::vector<OrderingCall> ordering_calls(const std::string& preprocessed);

// Those of a kernel's file and of its headers, without the system's and this repository's.
Result<std::vector<OrderingCall>> ordering_calls_of(const std::string& file, const CompiledKernel& compiled,
                                                    const ScratchFolder& folder);

// The calls at none of these places.
std::vector<OrderingCall> not_met(std::vector<OrderingCall> calls, const std::vector<simt::OrderingPlace>& met);

}  // namespace verbatim::sandbox
