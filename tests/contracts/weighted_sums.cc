// Kernels of weighted_sum.h: one within its tolerance, and others with one error each.
#include "tests/contracts/weighted_sum.h"

namespace {

// Another order of products; `scale` and `pairs` are errors.
int32_t sum(const verbatim_call* call, float scale, bool restarts, bool rounds) {
    const int64_t width = call->sizes[kWidth];
    for (int64_t s = 0; s < call->sequences.num_sequences; ++s) {
        float* out = VERBATIM_UNIT(float, call, kStateOut, s);
        const float* in = VERBATIM_UNIT(const float, call, kState, s);
        const bool continues = call->operands[kState].data != nullptr && !restarts;
        for (int64_t i = 0; i < width; ++i) {
            float state = continues ? in[i] : 0.0F;
            for (int64_t r = call->sequences.first_row[s]; r < call->sequences.first_row[s + 1]; ++r) {
                const int32_t index = *VERBATIM_UNIT(const int32_t, call, kIndex, r);
                const float gain = verbatim_e5m2_to_float(VERBATIM_UNIT(const uint8_t, call, kGain, 0)[i]) * scale;
                const float table =
                    verbatim_e4m3_to_float(VERBATIM_UNIT(const uint8_t, call, kTables, 0)[index * width + i]);
                const float x = verbatim_f16_to_float(VERBATIM_UNIT(const uint16_t, call, kX, r)[i]);
                const float offset = VERBATIM_UNIT(const int8_t, call, kOffset, r)[i];
                state = 0.5F * state + (gain * table) * x + offset;
                VERBATIM_UNIT(float, call, kY, r)[i] = state;
                uint16_t& half = VERBATIM_UNIT(uint16_t, call, kHalf, r)[i];
                // Cut off, where rounding to nearest was asked for.
                half = verbatim_float_to_f16(state);
                if (rounds && verbatim_f16_to_float(half) > state && state > 0) half -= 1;
            }
            out[i] = state;
        }
    }
    return 0;
}

#define KERNEL(name, profile, ...)                                                                              \
    {                                                                                                           \
        VERBATIM_KERNEL_ABI, name, "weighted_sum", profile, "cpu", nullptr, nullptr, nullptr, nullptr, nullptr, \
            [](const verbatim_kernel*, const verbatim_run* run) { return sum(run->args.call, __VA_ARGS__); }    \
    }

const verbatim_kernel kKernels[] = {
    KERNEL("good", "fast", 1.0F, false, false),
    KERNEL("scaled", "fast", 1.01F, false, false),
    KERNEL("restarts", "fast", 1.0F, true, false),
    KERNEL("cuts_off", "exact", 1.0F, false, true),
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    return index < 4 ? &kKernels[index] : nullptr;
}
