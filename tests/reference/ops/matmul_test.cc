#include "reference/ops/matmul.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"
#include "reference/numerics/tensor_sm90.h"
#include "tests/reference/ops/op_values.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace verbatim::reference {
namespace {

// N3 in words, on values: pairs are looked up in an array that is padded with +0 to whole pairs.
float dot_by_definition(std::vector<float> a, std::vector<float> b) {
    a.resize((a.size() + 1) / 2 * 2, 0.0F);
    b.resize(a.size(), 0.0F);
    std::vector<float> chunks;
    for (size_t pair = 0; pair < a.size() / 2; ++pair) {
        if (pair % (kDotChunk / 2) == 0) chunks.push_back(0.0F);
        chunks.back() = std::fma(a[2 * pair + 1], b[2 * pair + 1], chunks.back());
        chunks.back() = std::fma(a[2 * pair], b[2 * pair], chunks.back());
    }
    float total = 0.0F;
    for (const float chunk : chunks) total = total + chunk;
    return total;
}

std::vector<float> values_of(std::span<const uint16_t> bits) {
    std::vector<float> values;
    for (const uint16_t value : bits) values.push_back(bf16_to_float(value));
    return values;
}

TEST(DotN3, TakesTheOddElementOfAPairFirst) {
    // 2^24 + 1 - 2^24 in binary32 is 0 or 1 according to what comes first.
    const std::vector<uint16_t> ones(3, round_to_bf16(1.0F));
    const std::vector<uint16_t> a = {round_to_bf16(1.0F), round_to_bf16(0x1p+24F), round_to_bf16(-0x1p+24F)};
    EXPECT_EQ(dot_n3(a.data(), ones.data(), 3), 0.0F);
    const std::vector<uint16_t> b = {round_to_bf16(0x1p+24F), round_to_bf16(1.0F), round_to_bf16(-0x1p+24F)};
    EXPECT_EQ(dot_n3(b.data(), ones.data(), 3), 0.0F);
    const std::vector<uint16_t> c = {round_to_bf16(1.0F), round_to_bf16(-0x1p+24F), round_to_bf16(0x1p+24F), 0};
    EXPECT_EQ(dot_n3(c.data(), std::vector<uint16_t>(4, round_to_bf16(1.0F)).data(), 4), 1.0F);
}

TEST(DotN3, AddsChunksOf256ToATotalInOrder) {
    // The small terms meet inside the second chunk; one after another they would vanish next to 2^24.
    std::vector<uint16_t> a(512, round_to_bf16(0.0F));
    a[0] = round_to_bf16(0x1p+24F);
    a[256] = round_to_bf16(1.0F);
    a[258] = round_to_bf16(1.0F);
    const std::vector<uint16_t> ones(512, round_to_bf16(1.0F));
    EXPECT_EQ(dot_n3(a.data(), ones.data(), 512), 0x1p+24F + 2.0F);
    std::swap(a[254], a[256]);
    std::swap(a[252], a[258]);
    EXPECT_EQ(dot_n3(a.data(), ones.data(), 512), 0x1p+24F);
}

TEST(DotN3, IsTheDefinitionForAllKindsOfValuesAndLengths) {
    uint64_t seed = 0;
    for (const Values kind : kAllValues) {
        for (const int64_t n : {1, 2, 3, 7, 64, 255, 256, 257, 258, 511, 512, 513, 1000, 2047}) {
            const std::vector<uint16_t> a = draw_bf16(n, ++seed, kind);
            const std::vector<uint16_t> b = draw_bf16(n, ++seed, kind);
            ASSERT_EQ(bits_from_float(dot_n3(a.data(), b.data(), n)),
                      bits_from_float(dot_by_definition(values_of(a), values_of(b))))
                << n;
        }
    }
}

// What the op computes, output by output.
std::vector<float> matmul_by_definition(const MatmulArgs& args) {
    const auto dot = args.profile == Profile::kExact ? dot_n3 : tensor_dot;
    std::vector<float> out;
    for (int64_t m = 0; m < args.x.num_rows; ++m) {
        std::vector<uint16_t> a;
        for (int64_t k = 0; k < args.x.width; ++k) a.push_back(round_to_bf16(args.x.row(m)[k] * args.in_multiplier));
        for (int64_t n = 0; n < args.out.width; ++n) {
            const float total = dot(a.data(), args.weight + n * args.x.width, args.x.width);
            out.push_back(args.bias != nullptr ? total + args.bias[n] : total);
        }
    }
    return out;
}

RC_GTEST_PROP(Matmul, IsOneDotForEachOutputForAnyShapeAndValues, (uint64_t seed)) {
    const auto num_rows = *rc::gen::inRange<int64_t>(0, 6);
    const auto num_k = *rc::gen::inRange<int64_t>(1, 600);
    const auto num_n = *rc::gen::inRange<int64_t>(1, 80);
    const auto kind = *rc::gen::elementOf(std::vector<Values>(std::begin(kAllValues), std::end(kAllValues)));
    const bool has_bias = *rc::gen::arbitrary<bool>();
    const auto profile = *rc::gen::element(Profile::kExact, Profile::kTensorSm90);
    const int64_t gap = *rc::gen::inRange<int64_t>(0, 5);  // rows that are part of wider ones

    const std::vector<float> x = draw_values(num_rows * (num_k + gap), seed, kind);
    const std::vector<uint16_t> weight = draw_bf16(num_n * num_k, seed + 1, kind);
    const std::vector<float> bias = draw_values(num_n, seed + 2, kind);
    std::vector<float> out(static_cast<size_t>(num_rows * (num_n + gap)), 77.0F);
    const MatmulArgs args{.x = {x.data(), num_rows, num_k, num_k + gap},
                          .weight = weight.data(),
                          .bias = has_bias ? bias.data() : nullptr,
                          .in_multiplier = has_bias ? 0.9F : 1.0F,
                          .profile = profile,
                          .out = {out.data(), num_rows, num_n, num_n + gap}};
    matmul(args);
    const std::vector<float> wanted = matmul_by_definition(args);
    for (int64_t m = 0; m < num_rows; ++m) {
        for (int64_t n = 0; n < num_n; ++n) {
            RC_ASSERT(bits_from_float(args.out.row(m)[n]) == bits_from_float(wanted[m * num_n + n]));
        }
        for (int64_t n = num_n; n < num_n + gap; ++n) RC_ASSERT(args.out.row(m)[n] == 77.0F);
    }
}

TEST(Matmul, RoundsItsInputToBf16AfterTheMultiplier) {
    const float x = 1.0F + 0x1p-8F;
    const uint16_t one = round_to_bf16(1.0F);
    float out = 0.0F;
    MatmulArgs args{.x = dense_rows(&x, 1, 1), .weight = &one, .out = dense_rows(&out, 1, 1)};
    matmul(args);
    EXPECT_EQ(out, 1.0F);  // a tie, to even
    args.in_multiplier = 3.0F;
    matmul(args);
    EXPECT_EQ(out, 3.0F + 0x1p-6F);  // 3 + 3 · 2^-8 rounded once; rounding x first would give 3
}

TEST(Matmul, IsAsAccurateAsBinary32SumsOfExactProducts) {
    const int64_t n = 4096;
    const std::vector<float> a = values_of(draw_bf16(n, 1));
    const std::vector<float> b = values_of(draw_bf16(n, 2));
    double exact = 0.0;
    double magnitude = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        exact += static_cast<double>(a[i]) * b[i];
        magnitude += std::fabs(static_cast<double>(a[i]) * b[i]);
    }
    EXPECT_NEAR(dot_n3(draw_bf16(n, 1).data(), draw_bf16(n, 2).data(), n), exact, magnitude * 0x1p-22);
}

#if defined(__x86_64__) && !defined(__clang__)
// One lane of VDPBF16PS over each chunk, chunks added by plain additions.
__attribute__((target("avx512bf16,avx512f,avx512bw,avx512vl"))) void dots_by_instruction(const uint16_t* a,
                                                                                         const uint16_t* b, int64_t n,
                                                                                         float* out) {
    // a, b: [16 lanes][n], n even
    __m512 total = _mm512_setzero_ps();
    for (int64_t first = 0; first < n; first += kDotChunk) {
        __m512 acc = _mm512_setzero_ps();
        for (int64_t k = first; k < std::min(first + kDotChunk, n); k += 2) {
            alignas(64) uint32_t pairs_a[16];
            alignas(64) uint32_t pairs_b[16];
            for (int64_t lane = 0; lane < 16; ++lane) {
                __builtin_memcpy(&pairs_a[lane], a + lane * n + k, 4);
                __builtin_memcpy(&pairs_b[lane], b + lane * n + k, 4);
            }
            acc = _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(_mm512_load_si512(pairs_a)),
                                   reinterpret_cast<__m512bh>(_mm512_load_si512(pairs_b)));
        }
        total = _mm512_add_ps(total, acc);
    }
    _mm512_storeu_ps(out, total);
}

TEST(DotN3, IsOneLaneOfVdpbf16ps) {
    if (!__builtin_cpu_supports("avx512bf16")) GTEST_SKIP() << "this processor has no AVX512-BF16";
    uint64_t seed = 0;
    for (int round = 0; round < 200; ++round) {
        const Values kind = kAllValues[round % 4];
        const int64_t n = 2 + 2 * ((round * 37) % 400);
        const std::vector<uint16_t> a = draw_bf16(16 * n, ++seed, kind);
        const std::vector<uint16_t> b = draw_bf16(16 * n, ++seed, kind);
        float dots[16];
        dots_by_instruction(a.data(), b.data(), n, dots);
        for (int64_t lane = 0; lane < 16; ++lane) {
            ASSERT_EQ(bits_from_float(dots[lane]), bits_from_float(dot_n3(&a[lane * n], &b[lane * n], n)))
                << "round " << round << " lane " << lane << " n " << n;
        }
    }
}
#endif

TEST(MatmulDeathTest, RefusesMissingAndMisshapenArguments) {
    const float x[4] = {};
    const uint16_t weight[4] = {};
    float out[4];
    const MatmulArgs good{.x = dense_rows(x, 2, 2), .weight = weight, .out = dense_rows(out, 2, 2)};
    check(good);
    MatmulArgs bad = good;
    bad.weight = nullptr;
    EXPECT_DEATH(check(bad), "null for 4 elements");
    bad = good;
    bad.x.num_rows = 1;
    EXPECT_DEATH(check(bad), "1 vs 2");
    bad = good;
    bad.x.stride = 1;
    EXPECT_DEATH(check(bad), "1 vs 2");
    bad = good;
    bad.x.data = reinterpret_cast<const float*>(reinterpret_cast<const char*>(x) + 2);
    EXPECT_DEATH(check(bad), "alignof");
    bad = good;
    bad.out.data = const_cast<float*>(x);
    EXPECT_DEATH(check(bad), "cannot write what it reads");
}

}  // namespace
}  // namespace verbatim::reference
