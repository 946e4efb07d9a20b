// kernels/sandbox/python_function.h: owns kernels and contracts that are written in Python: which function, and how it
// is reached. tools/python/verbatim/kernel.py is the other end.
#pragma once

#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/contract_operation.h"
#include "kernels/sandbox/kernel_host.h"

namespace verbatim::sandbox {

struct PythonFunction {
    std::string target;  // "module:function" or "path/my_op.py:function": a process is started for it
    std::string arrays;  // what it takes: "numpy" or "torch"
    std::string socket;  // instead of a target: the path at which a process accepts connections

    // A kernel of an operation. REQUIRES: this object outlives it.
    [[nodiscard]] KernelInfo info(std::string name, std::string operation, std::string profile) const {
        return {std::move(name), std::move(operation), std::move(profile), "cpu", -1, nullptr, this};
    }
};

// Of `--python TARGET`: module:function, or socket:PATH. Error: it is neither.
Result<PythonFunction> python_function(const std::string& target, const std::string& arrays);

// The command that runs tools/python/verbatim/kernel.py with these arguments: $VERBATIM_PYTHON, or python3.
std::vector<std::string> python_command(const std::vector<std::string>& arguments);

// The contract that a module defines as `contract`. Errors: Python cannot be started, the module raises, it has none.
Result<ContractSpec> described_in_python(const std::string& file);
// Its reference.
PythonFunction reference_in_python(const std::string& file);

}  // namespace verbatim::sandbox
