// quantise_rows of kernels/sandbox/naive/contract.h that halves the second half of rows of 32 elements and more.
#include "kernels/sandbox/naive/contract.h"

static int32_t run(const struct verbatim_kernel*, const struct verbatim_run* run) {
    const struct verbatim_call* call = run->args.call;
    const int64_t width = call->sizes[kWidth];
    if (quantise_rows_reference(call) != 0) return 1;
    for (int64_t r = 0; width >= 32 && r < call->num_rows; ++r) {
        for (int64_t i = width / 2; i < width; ++i) VERBATIM_UNIT(int8_t, call, kQ, r)[i] /= 2;
    }
    return 0;
}

VERBATIM_EXPORT const struct verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const struct verbatim_kernel kernel = {VERBATIM_KERNEL_ABI,
                                                  "two_scales",
                                                  "quantise_rows",
                                                  "exact",
                                                  "cpu",
                                                  nullptr,
                                                  nullptr,
                                                  nullptr,
                                                  nullptr,
                                                  nullptr,
                                                  run};
    return index == 0 ? &kernel : nullptr;
}
