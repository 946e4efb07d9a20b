// tests/tools/kernel/run_kernel.h: runs the verb `kernel` like a user.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {

inline Outcome run_kernel(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "kernel");
    return run_verbatim(std::move(arguments));
}

// Every operation with a struct in the public header.
inline const std::vector<std::string>& all_operations() {
    static const std::vector<std::string> kNames = {
        "matmul",    "rms_norm",   "gated_norm", "conv",        "scan",         "rope",
        "attention", "activation", "sampling",   "head_digest", "delta_update", "delta_gates",
        "l2_norm",   "router",     "choose",     "experts",     "add_routed"};
    return kNames;
}

}  // namespace verbatim::tools
