// kernels/sandbox/naive/quantised_matmul.h: owns the contract of a matmul over weights in blocks of 32, as the profile
// exact computes it (docs/numerics.md, exact.blocks). A type of a file is this with its scales and minima unpacked and
// its nibbles in pairs k, k + 16 of a block: Q8_0 (bits 8), Q4_0 (bits 4), int4 of safetensors without zero points
// (bits 4, its neighbours repacked), Q4_K (bits 4, numbers 2: scale = d * s, min = dmin * t, repacked).
//
//   verbatim kernel new --contract THIS.h --out my_kernel.cc
//   verbatim kernel check --contract THIS.h --file my_kernel.cc
#pragma once

#include <math.h>
#include <string.h>

#include "kernels/sandbox/contract.h"

// In the order of the lists below.
enum { kRows, kOutputs, kBlocks, kBits, kNumbers };
enum { kX, kQuants, kScales, kBias, kOut };
enum { kInMultiplier };
enum { kBlockWeights = 32, kChunk = 256 };

// To bf16 and back: to nearest even, below 2^-56 it is +0.
VERBATIM_FUNCTION float verbatim_entering(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) & 0xFFFF0000u;
    if (magnitude < (127u - 56u) << 23) rounded = 0;
    if (magnitude > 0x7F800000u) rounded = 0x7FC00000u;
    float value;
    memcpy(&value, &rounded, sizeof(value));
    return value;
}

// Quant k of output n. Eight bits: byte k % 32 of the block, with its sign. Four: of byte k % 16 the low nibble, or the
// high one from the block's 16th weight on; without a minimum 8 is subtracted. Byte 4 i is the lowest of word i.
VERBATIM_FUNCTION int32_t verbatim_quant(const struct verbatim_call* call, int64_t n, int64_t k) {
    const int64_t block = n * call->sizes[kBlocks] + k / kBlockWeights;
    const int64_t in_block = k % kBlockWeights;
    const uint32_t* words = VERBATIM_UNIT(const uint32_t, call, kQuants, 0) + block * call->sizes[kBits];
    const int64_t byte = call->sizes[kBits] == 8 ? in_block : in_block % 16;
    const uint32_t bits = words[byte / 4] >> (byte % 4 * 8) & 255u;
    if (call->sizes[kBits] == 8) return (int8_t)bits;
    const int32_t nibble = (int32_t)(in_block < 16 ? bits & 15u : bits >> 4);
    return call->sizes[kNumbers] == 2 ? nibble : nibble - 8;
}

// The numbers of the block of weight k: its scale, and its minimum where there are two.
VERBATIM_FUNCTION const float* verbatim_numbers(const struct verbatim_call* call, int64_t n, int64_t k) {
    const int64_t block = n * call->sizes[kBlocks] + k / kBlockWeights;
    return VERBATIM_UNIT(const float, call, kScales, 0) + block * call->sizes[kNumbers];
}

// scale * q, or scale * q - min: each operation is rounded.
VERBATIM_FUNCTION float verbatim_weight(const struct verbatim_call* call, int64_t n, int64_t k) {
    const float* numbers = verbatim_numbers(call, n, k);
    const float scaled = numbers[0] * (float)verbatim_quant(call, n, k);
    return call->sizes[kNumbers] == 2 ? scaled - numbers[1] : scaled;
}

VERBATIM_FUNCTION int32_t quantised_matmul_reference(const struct verbatim_call* call) {
    const int64_t num_k = kBlockWeights * call->sizes[kBlocks];
    const float multiplier = call->parameters[kInMultiplier];
    for (int64_t m = 0; m < call->sizes[kRows]; ++m) {
        const float* x = VERBATIM_UNIT(const float, call, kX, m);
        for (int64_t n = 0; n < call->sizes[kOutputs]; ++n) {
            float total = 0;
            for (int64_t first = 0; first < num_k; first += kChunk) {
                float acc = 0;
                for (int64_t k = first; k < first + kChunk && k < num_k; k += 2) {
                    acc = fmaf(verbatim_entering(x[k + 1] * multiplier), verbatim_weight(call, n, k + 1), acc);
                    acc = fmaf(verbatim_entering(x[k] * multiplier), verbatim_weight(call, n, k), acc);
                }
                total = total + acc;
            }
            VERBATIM_UNIT(float, call, kOut, m)[n] = total + VERBATIM_UNIT(const float, call, kBias, 0)[n];
        }
    }
    return 0;
}

static const struct verbatim_contract quantised_matmul = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "quantised_matmul",
    .formula =
        "a = bf16(x * in_multiplier); w = scale * q, or scale * q - min, each operation rounded;\n"
        "chunks of 256 from +0: acc = fma(a[2j+1], w[2j+1], acc), acc = fma(a[2j], w[2j], acc);\n"
        "chunk totals added in order from +0, then the bias",
    .batch = VERBATIM_ROWS,
    .sizes = {{"rows"},
              {"n", 1, 5, "1 2 31 32 33 64 65"},
              {"blocks", 1, 2, "1 2 7 8 9 16 17"},
              {"bits", 4, 8, "4 8", 1},
              {"numbers", 1, 1, "1 2", 1}},
    .operands = {{"x", VERBATIM_IN, VERBATIM_F32, VERBATIM_PER_ROW, "32 * blocks"},
                 {"quants", VERBATIM_IN, VERBATIM_I32, VERBATIM_PER_CALL, "n * blocks * bits", "2147483647"},
                 {"scales", VERBATIM_IN, VERBATIM_F32, VERBATIM_PER_CALL, "n * blocks * numbers"},
                 {"bias", VERBATIM_IN, VERBATIM_F32, VERBATIM_PER_CALL, "n"},
                 {"out", VERBATIM_OUT, VERBATIM_F32, VERBATIM_PER_ROW, "n"}},
    .parameters = {{"in_multiplier", "1 0.75"}},
    .flops = "64 * rows * n * blocks",
    .shapes = "rows=1,n=2048,blocks=64,bits=8; rows=1,n=2048,blocks=64,bits=4",
    .tolerance_kind = VERBATIM_ULPS_OF_UNIT,
    .tolerance = 65536,
    .reference = quantised_matmul_reference,
};
VERBATIM_CONTRACT(quantised_matmul)
