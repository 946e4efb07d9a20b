// kernels/sandbox/machine_code.h: owns nvcc's static figures of a .cu file, without a GPU: registers, shared memory and
// spills of every kernel, and how many loads from device memory are in flight before the first use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/compile_kernel.h"

namespace verbatim::sandbox {

struct MachineCode {
    std::string kernel;
    int64_t num_registers = 0;  // of a thread
    int64_t shared_bytes = 0;   // of a block, static
    int64_t spill_bytes = 0;
    int64_t loads_under_way = 0;  // maximum within a basic block of the PTX: ptxas may move more of them together
    friend bool operator==(const MachineCode&, const MachineCode&) = default;
};

// The architecture of the generated code.
inline constexpr const char* kMachineCodeOf = "sm_90";

// The command line of nvcc, for display.
std::vector<std::string> nvcc_command(const std::string& file, const std::vector<std::string>& extra_flags);

// Errors: no nvcc, and nvcc's errors.
Result<std::vector<MachineCode>> machine_code(const std::string& file, const std::vector<std::string>& extra_flags,
                                              const ScratchFolder& folder);

// Parses nvcc's output (`-Xptxas -v`) and the PTX.
std::vector<MachineCode> read_machine_code(std::string_view words, std::string_view ptx);

}  // namespace verbatim::sandbox
