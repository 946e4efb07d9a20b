// tests/contracts/weighted_sum.h: owns a contract with every dtype, states, indices and a tolerance.
#pragma once

#include "kernels/sandbox/contract.h"

enum { kSequences, kTokens, kWidth, kTable };
enum { kX, kGain, kIndex, kTables, kOffset, kState, kY, kHalf, kStateOut };

VERBATIM_FUNCTION int32_t weighted_sum_reference(const struct verbatim_call* call) {
    const int64_t width = call->sizes[kWidth];
    for (int64_t s = 0; s < call->sequences.num_sequences; ++s) {
        float* out = VERBATIM_UNIT(float, call, kStateOut, s);
        const float* in = VERBATIM_UNIT(const float, call, kState, s);
        for (int64_t i = 0; i < width; ++i) out[i] = call->operands[kState].data != nullptr ? in[i] : 0.0F;
        for (int64_t r = call->sequences.first_row[s]; r < call->sequences.first_row[s + 1]; ++r) {
            const int32_t index = *VERBATIM_UNIT(const int32_t, call, kIndex, r);
            for (int64_t i = 0; i < width; ++i) {
                const float x = verbatim_f16_to_float(VERBATIM_UNIT(const uint16_t, call, kX, r)[i]);
                const float gain = verbatim_e5m2_to_float(VERBATIM_UNIT(const uint8_t, call, kGain, 0)[i]);
                const float table =
                    verbatim_e4m3_to_float(VERBATIM_UNIT(const uint8_t, call, kTables, 0)[index * width + i]);
                out[i] = 0.5F * out[i] + x * gain * table + (float)VERBATIM_UNIT(const int8_t, call, kOffset, r)[i];
                VERBATIM_UNIT(float, call, kY, r)[i] = out[i];
                VERBATIM_UNIT(uint16_t, call, kHalf, r)[i] = verbatim_float_to_f16(out[i]);
            }
        }
    }
    return 0;
}

static const struct verbatim_contract weighted_sum = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "weighted_sum",
    .formula = "state = state / 2 + x * gain * table[index] + offset; y = state; half = state in f16",
    .batch = VERBATIM_SEQUENCES,
    .sizes = {{"sequences", 1, 2, "1 2 3"},
              {"tokens", 1, 5, "1 2 3 8 17"},
              {"width", 1, 6, "1 3 8 17"},
              {"table", 1, 4, "1 2 9"}},
    .operands = {{"x", VERBATIM_IN, VERBATIM_F16, VERBATIM_PER_ROW, "width"},
                 {"gain", VERBATIM_IN, VERBATIM_F8_E5M2, VERBATIM_PER_CALL, "width", nullptr, 1},
                 {"index", VERBATIM_IN, VERBATIM_I32, VERBATIM_PER_ROW, "1", "table"},
                 {"tables", VERBATIM_IN, VERBATIM_F8_E4M3, VERBATIM_PER_CALL, "table * width"},
                 {"offset", VERBATIM_IN, VERBATIM_I8, VERBATIM_PER_ROW, "width"},
                 {"state", VERBATIM_IN, VERBATIM_F32, VERBATIM_PER_SEQUENCE, "width", nullptr, 0, nullptr, "state_out"},
                 {"y", VERBATIM_OUT, VERBATIM_F32, VERBATIM_PER_ROW, "width"},
                 {"half", VERBATIM_OUT, VERBATIM_F16, VERBATIM_PER_ROW, "width"},
                 {"state_out", VERBATIM_OUT, VERBATIM_F32, VERBATIM_PER_SEQUENCE, "width", nullptr, 0, "state"}},
    .tolerance_kind = VERBATIM_ULPS_OF_UNIT,
    .tolerance = 64,
    .reference = weighted_sum_reference,
};
VERBATIM_CONTRACT(weighted_sum)
