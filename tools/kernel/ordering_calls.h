// tools/kernel/ordering_calls.h: owns which barriers and waits a kernel's text has, whether or not a call reaches them.
// Those that one reaches the emulator tells itself (kernels/cuda/simt/ordering_places.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/cuda/simt/ordering_places.h"
#include "tools/kernel/compile_kernel.h"

namespace verbatim::tools {

// A call of one of simt.h's words that order accesses.
struct OrderingCall {
    std::string what;  // the word
    std::string file;  // as the compiler was told
    uint32_t line = 0;
    uint32_t last_line = 0;
    friend bool operator==(const OrderingCall&, const OrderingCall&) = default;
};
// In a text that a preprocessor has written: no comments, and markers that say which file a line is of. System headers
// and declarations have none.
std::vector<OrderingCall> ordering_calls(const std::string& preprocessed);

// Those of a kernel's file and of the headers that are neither the machine's nor ours.
Result<std::vector<OrderingCall>> ordering_calls_of(const std::string& file, const CompiledKernel& compiled,
                                                    const ScratchFolder& folder);

// Those that are at none of these places.
std::vector<OrderingCall> not_met(std::vector<OrderingCall> calls, const std::vector<simt::OrderingPlace>& met);

}  // namespace verbatim::tools
