// kernels/sandbox/builtin_cpu.h: owns the common part of the files that export kernels/cpu as sandbox kernels: the
// table behind a kernel, and the templates that exist once per instruction set and profile.
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

// Kernel::self points to this.
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

// Floats of workspace for rows in a matmul loop's form.
constexpr int64_t rounded_floats(int64_t num_rows, int64_t width) {
    return (num_rows / cpu::kMaxBandRows + 1) * cpu::kMaxBandRows * 2 * num_pairs(width);
}
cpu::RoundedRows rounded_rows(const Kernel* kernel, const verbatim_const_floats& x, float multiplier, cpu::RowForm form,
                              float* memory);
// The winner of the race between this instruction set's loops: all have the same bits.
inline cpu::MatmulLoop loop_of(const Kernel* kernel, int64_t num_rows) {
    const CpuTable& table = table_of(kernel);
    return cpu::matmul_choice(table.isa, table.profile).of_rows(num_rows);
}

std::span<const Kernel> cpu_delta_templates();
// The kernels of a mixture of experts; those without loops are equal for every instruction set and profile.
std::span<const Kernel> cpu_expert_templates();

}  // namespace verbatim::sandbox
