// A kernel of rms_norm that is right in the emulator, and on the stand-in for a GPU has the fault of -DFAULT=N.
#ifndef VERBATIM_STAND_IN
#include "kernels/sandbox/naive/rms_norm.cu"
#else
#include <cuda_runtime.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "kernels/sandbox/kernel.h"

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

constexpr int kPartials = 64;

float scale_of(const verbatim_rms_norm& op, const float* x) {
    float partials[kPartials] = {};
    for (int64_t i = 0; i < op.x.width; ++i) partials[i % kPartials] = std::fma(x[i], x[i], partials[i % kPartials]);
    for (int half = kPartials / 2; half >= 1; half /= 2) {
        for (int j = 0; j < half; ++j) partials[j] = partials[j] + partials[j + half];
    }
    return 1.0F / std::sqrt(partials[0] / static_cast<float>(op.x.width) + op.eps);
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
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
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const float* const x = op.x.data + r * op.x.stride;
        float* const out = op.out.data + r * op.out.stride;
        const bool is_off =
            (FAULT == kWrongFrom64Rows && op.x.num_rows >= 64) || (FAULT == kDependsOnBatch && op.x.num_rows > 1);
        float scale = scale_of(op, x);
        if (is_off) scale = std::nextafter(scale, 2.0F * scale);
        const int64_t end = op.x.width - (FAULT == kLeavesLastUnwritten ? 1 : 0);
        for (int64_t i = 0; i < end; ++i) out[i] = (x[i] * scale) * op.weight[i];
    }
    if (FAULT == kWritesBehind) op.out.data[(op.x.num_rows - 1) * op.out.stride + op.x.width] = 1.0F;
    if (FAULT == kChangesInput) const_cast<float*>(op.weight)[0] = 2.0F;
    if (FAULT == kWritesBehindWorkspace) workspace[4] = 1.0F;
    if (FAULT == kReadsWorkspace) op.out.data[0] = workspace[0];
    return 0;
}

int64_t workspace_bytes(const verbatim_kernel*, verbatim_args, int32_t) { return 16; }

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rms_norm",
    .profile = "exact",
    .machine = "cuda",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = workspace_bytes,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
#endif
