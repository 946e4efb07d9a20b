// kernels/sandbox/builtin_cpu.h: owns what the files with kernels of kernels/cpu share: the table that a kernel is of,
// and the templates of which there is a kernel for each instruction set and profile.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/pair.h"
#include "kernels/sandbox/kernel.h"
#include "reference/numerics/profile.h"

namespace verbatim::sandbox {

using reference::Profile;
using Kernel = verbatim_kernel;
using Args = verbatim_args;
using Run = verbatim_run;

// What Kernel::self points to.
struct CpuTable {
    cpu::Isa isa = cpu::Isa::kPortable;
    Profile profile = Profile::kExact;
};
inline const CpuTable& table_of(const Kernel* kernel) { return *static_cast<const CpuTable*>(kernel->self); }
inline const cpu::CpuOps& ops_of(const Kernel* kernel) {
    return cpu::cpu_ops(table_of(kernel).isa, table_of(kernel).profile);
}
inline const cpu::RowOps& row_ops_of(const Kernel* kernel) { return *ops_of(kernel).rows; }

inline constexpr int64_t kFloat = sizeof(float);

// Rows as a matmul's loop takes them: `memory` has a place for rounded_floats of them.
constexpr int64_t rounded_floats(int64_t num_rows, int64_t width) {
    return (num_rows / cpu::kMaxBandRows + 1) * cpu::kMaxBandRows * 2 * num_pairs(width);
}
cpu::RoundedRows rounded_rows(const Kernel* kernel, const verbatim_const_floats& x, float multiplier, cpu::RowForm form,
                              float* memory);
// The winner of the race of this instruction set's loops: the bits are the same.
inline cpu::MatmulLoop loop_of(const Kernel* kernel, int64_t num_rows) {
    const CpuTable& table = table_of(kernel);
    return cpu::matmul_choice(table.isa, table.profile).of_rows(num_rows);
}

std::span<const Kernel> cpu_delta_templates();
// Those of a mixture of experts; which are the same on every instruction set and profile has no loops.
std::span<const Kernel> cpu_expert_templates();

}  // namespace verbatim::sandbox
