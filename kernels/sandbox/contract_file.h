// kernels/sandbox/contract_file.h: owns reading a contract's file, and the process that runs its reference.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/kernel_host.h"
#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

// Whether the name is that of a contract's file, not of an operation: my_op.h, my_op.py.
bool is_contract_file(std::string_view name);

// Compiles a header with g++, or asks Python about a module, and adds the operation to those that find_operation()
// knows. The reference is tried on the usual sizes. Errors: it does not compile, exports no contract, says something
// invalid, or its reference fails, leaves an output unwritten or has other bits the second time.
Result<const Operation*> load_contract(const std::string& file, const std::vector<std::string>& flags,
                                       const HostLimits& limits);

// A kernel's file that computes a contract with its reference: correct and slow. machine: "cpu" or "cuda". Error: the
// contract is in Python, or its text names no reference.
Result<std::string> first_kernel(const std::string& contract_file, const Operation& operation,
                                 std::string_view machine);

}  // namespace verbatim::sandbox
