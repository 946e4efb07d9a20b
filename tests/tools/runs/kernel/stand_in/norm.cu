// A kernel of rms_norm that is right in the emulator, and on the stand-in for a GPU has the fault of -DFAULT=N.
#ifndef VERBATIM_STAND_IN
#include "kernels/sandbox/naive/rms_norm.cu"
#else
#include <cuda_runtime.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <vector>

#include "kernels/sandbox/kernel.h"

// The right outputs are the plain loops', for processors.
#define verbatim_kernel_at naive_kernel_at
#include "kernels/sandbox/naive/rms_norm.cc"
#undef verbatim_kernel_at

#ifndef FAULT
#define FAULT 0
#endif

namespace {

enum Fault {
    kRight,
    kWrongFrom64Rows,
    kWritesBehind,
    kIllegalAddress,
    kSleeps,
    kChangesInput,
    kReturns7,
    kDependsOnBatch,
    kLeavesLastUnwritten,
    kWritesBehindWorkspace,
    kDies,
    kReadsWorkspace,
};

int32_t run_with_fault(const verbatim_kernel* kernel, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    auto* const workspace = static_cast<float*>(run->workspace);
    if (FAULT == kSleeps) pause();
    if (FAULT == kReturns7) return 7;
    if (FAULT == kDies) {
        std::printf("cannot go on\n");
        std::fflush(stdout);
        _exit(9);
    }
    if (FAULT == kIllegalAddress) kernel_fault = cudaErrorIllegalAddress;
    const auto last_of = [&](int64_t r) -> float& { return op.out.data[r * op.out.stride + op.x.width - 1]; };
    std::vector<float> before;
    for (int64_t r = 0; r < op.x.num_rows; ++r) before.push_back(last_of(r));
    naive_kernel_at(0)->run(kernel, run);
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const bool is_off =
            (FAULT == kWrongFrom64Rows && op.x.num_rows >= 64) || (FAULT == kDependsOnBatch && op.x.num_rows > 1);
        if (is_off) last_of(r) = std::nextafter(last_of(r), INFINITY);
        if (FAULT == kLeavesLastUnwritten) last_of(r) = before[r];
    }
    if (FAULT == kWritesBehind) (&last_of(op.x.num_rows - 1))[1] = 1.0F;
    if (FAULT == kChangesInput) const_cast<float*>(op.weight)[0] = 2.0F;
    if (FAULT == kWritesBehindWorkspace) workspace[4] = 1.0F;
    if (FAULT == kReadsWorkspace) op.out.data[0] = workspace[0];
    return 0;
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args, int32_t) { return 16; }

const verbatim_kernel& faulty_kernel() {
    static const verbatim_kernel kKernel = [] {
        verbatim_kernel kernel = *naive_kernel_at(0);
        kernel.machine = "cuda";
        kernel.workspace_bytes = workspace_bytes;
        kernel.run = run_with_fault;
        return kernel;
    }();
    return kKernel;
}

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    return index == 0 ? &faulty_kernel() : nullptr;
}
#endif
