// Activations in FP8, and their matmuls with FP8 weights, in the emulator: the bits of reference/ops/fp8_matmul.h, for
// every recipe.
#include "kernels/cuda/ops/fp8_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/block_case.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

using reference::Fp8Sharing;
using reference::kScaledFp8;

constexpr Fp8Recipe kRecipes[] = {
    {.activations = Fp8Sharing::kRow, .scale_outputs = int64_t{1} << 32},  // per tensor, per token
    {.activations = Fp8Sharing::kRow},                                     // per channel, per token
    {.activations = Fp8Sharing::kRow, .scale_outputs = int64_t{1} << 32, .static_scale = 0.003F},  // all per tensor
    {.activations = Fp8Sharing::kGroups, .scale_outputs = int64_t{1} << 32},           // per tensor, per group of 128
    {.activations = Fp8Sharing::kGroups},                                              // per channel, per group
    {.activations = Fp8Sharing::kGroups, .scale_columns = 128},                        // per group, per group
    {.activations = Fp8Sharing::kGroups, .scale_outputs = 128, .scale_columns = 128},  // blocks, per group
};

bool are_equal(float a, float b) {
    return reference::bits_from_float(a) == reference::bits_from_float(b) || (std::isnan(a) && std::isnan(b));
}

class InFp8OnCuda : public testing::Test {
protected:
    ~InFp8OnCuda() override {
        EXPECT_TRUE(emulator_.findings().empty()) << emulator_.findings().front().text;
        EXPECT_GT(emulator_.num_launches(), 0);
    }
    simt::Emulator emulator_{simt::Schedule::kRandom, 5};
    std::unique_ptr<Device> device_ = make_emulated_device(emulator_);
};

// --- rows

class QuantiseFp8RowsOnCuda : public InFp8OnCuda, public testing::WithParamInterface<Fp8Recipe> {
protected:
    void expect_as_defined(const std::vector<float>& x, int64_t num_rows, float multiplier = 1.0F) {
        const int64_t width = std::ssize(x) / num_rows;
        const RowForm form = row_form(GetParam().activations);
        const reference::RowFactors factors{multiplier, GetParam().static_scale};
        const int64_t num_words = row_words(form, width);
        const auto device_x = on_device(*device_, x);
        const DeviceArray<uint32_t> out(*device_, num_rows * num_words);
        device_->quantise_rows({device_x.data(), num_rows, width, width}, factors, form, out.data());
        ASSERT_TRUE(device_->synchronize());
        const auto words = words_of(out);
        for (int64_t row = 0; row < num_rows; ++row)
            expect_row(x.data() + row * width, width, factors, words.data() + row * num_words);
    }

private:
    static void expect_row(const float* x, int64_t width, const reference::RowFactors& factors, const uint32_t* words) {
        std::vector<float> values(static_cast<size_t>(width));
        std::vector<float> scales(static_cast<size_t>(width));
        reference::quantise_fp8_row({x, width, factors, GetParam().activations, values.data(), scales.data()});
        for (int64_t k = 0; k < width; ++k) {
            const float number = reference::float_from_bits(words[k / 2] >> (k % 2 * 16) << 16) / kFp8InputUnit;
            ASSERT_TRUE(are_equal(number, values[static_cast<size_t>(k)])) << "column " << k;
        }
        const int64_t columns = reference::fp8_columns(GetParam().activations, width);
        for (int64_t k = 0; k < width; k += columns) {
            const float scale = reference::float_from_bits(words[width / 2 + k / columns]);
            ASSERT_TRUE(are_equal(scale, scales[static_cast<size_t>(k / columns)])) << "scale of column " << k;
        }
    }
};

TEST_P(QuantiseFp8RowsOnCuda, HaveTheBitsOfTheirDefinition) {
    for (const int64_t width : {32, 96, 128, 160, 256, 544, 1312, 2080}) {
        expect_as_defined(draw_values(3 * width, 1), 3, 1.5F);
        expect_as_defined(draw_values(width, 2), 1, 0.3F);
    }
}

// Ties, numbers below 2^-6, scales that are zero or subnormal.
TEST_P(QuantiseFp8RowsOnCuda, EveryMagnitudeHasItsScale) {
    const std::vector<float> x = draw_every_magnitude(128);
    expect_as_defined(x, 277);
    expect_as_defined(x, 1);
    std::vector<float> ties(128);
    for (size_t i = 0; i < ties.size(); ++i) ties[i] = std::ldexp(static_cast<float>(i) / 2, static_cast<int>(i % 9));
    ties[5] = -448.0F;
    expect_as_defined(ties, 1);
    for (float& value : ties) value = std::ldexp(std::remainder(value, 4.0F), -8);
    ties[5] = 448.0F;
    expect_as_defined(ties, 1);
    expect_as_defined(std::vector<float>(256, -0.0F), 1);
}

TEST_P(QuantiseFp8RowsOnCuda, WhatIsNoNumberMakesItsScaleNan) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max()}) {
        auto x = draw_values(2 * 512, 4);
        x[300] = bad;
        expect_as_defined(x, 2);
        expect_as_defined(x, 2, 4.0F);  // the greatest number overflows
    }
}

INSTANTIATE_TEST_SUITE_P(Sharings, QuantiseFp8RowsOnCuda,
                         testing::Values(Fp8Recipe{Fp8Sharing::kGroups}, Fp8Recipe{Fp8Sharing::kRow},
                                         Fp8Recipe{.activations = Fp8Sharing::kRow, .static_scale = 0.003F}),
                         [](const auto& of) {
                             if (of.param.static_scale > 0.0F) return "Static";
                             return of.param.activations == Fp8Sharing::kRow ? "OfARow" : "OfGroups";
                         });

// --- products

class Fp8MatmulOnCuda : public InFp8OnCuda, public testing::WithParamInterface<Fp8Recipe> {
protected:
    void expect_as_defined(const MatmulShape& shape) {
        EXPECT_TRUE(multiplies_fp8_as_defined(*device_, shape, GetParam()))
            << shape.num_rows << " rows, " << shape.num_outputs << " outputs, K " << shape.num_k;
    }
};

// Each kernel, and several tiles of its rows.
TEST_P(Fp8MatmulOnCuda, HasTheBitsOfItsDefinitionForEveryNumberOfRows) {
    for (const int64_t num_rows : {1, 2, 3, 4, 5, 8, 9, 16, 19, 33}) expect_as_defined({num_rows, 70, 352});
    for (const int64_t num_rows : {64, 129, 257}) expect_as_defined({num_rows, 5, 160});
}

// Outputs of one panel and of several; K of one unit, of a part of a group, of several turns of chunks.
TEST_P(Fp8MatmulOnCuda, HasTheBitsOfItsDefinitionForEveryShape) {
    for (const int64_t num_k : {32, 96, 128, 160, 256, 288, 1024}) {
        for (const int64_t num_outputs : {1, 63, 64, 65, 131}) expect_as_defined({3, num_outputs, num_k});
    }
    for (const int64_t num_rows : {1, 6}) expect_as_defined({num_rows, 66, 8192 + 416});
}

TEST_P(Fp8MatmulOnCuda, OfExpertsHasTheBitsOfItsDefinition) {
    for (const int64_t num_rows : {1, 3, 40}) {
        EXPECT_TRUE(multiplies_entries_as_defined(*device_, kScaledFp8, {num_rows, 3, 2, 288, 66},
                                                  reference::Profile::kExactFp8, GetParam()))
            << num_rows;
    }
}

INSTANTIATE_TEST_SUITE_P(Recipes, Fp8MatmulOnCuda, testing::ValuesIn(kRecipes));

class Fp8MatmulsOnCuda : public InFp8OnCuda, public testing::WithParamInterface<Fp8Sharing> {
protected:
    // Random numbers, with an output for each of what else weights may be.
    std::vector<std::byte> any_weights(int64_t num_outputs, int64_t num_k) {
        using Limits = std::numeric_limits<float>;
        std::mt19937_64 random(3);
        std::vector<std::byte> blocks = tests::random_fp8_blocks(GetParam(), num_outputs, num_k, random);
        const auto block = [&](int64_t n, int64_t k) {
            return blocks.data() + n * kScaledFp8.row_bytes(num_k) + kScaledFp8.row_bytes(k - k % 32);
        };
        int64_t n = 0;
        for (const float scale : {0.0F, -0.5F, 1e-42F, 1e-38F, 1e38F, Limits::infinity(), Limits::quiet_NaN()}) {
            for (int64_t k = 0; k < num_k; k += 32) std::memcpy(block(n, k), &scale, sizeof(scale));
            ++n;
        }
        for (int64_t k = 0; k < 256; ++k) block(n, k)[4 + k % 32] = static_cast<std::byte>(k % 128 == 127 ? 0 : k);
        ++n;
        for (const int64_t k : {int64_t{0}, int64_t{100}, int64_t{200}, num_k - 1})  // NaN among the numbers
            block(n++, k)[4 + k % 32] = std::byte{0xFF};
        EXPECT_LE(n, num_outputs);
        return blocks;
    }
    void expect_as_defined(const std::vector<float>& x, int64_t num_outputs, int64_t num_k) {
        const std::vector<std::byte> blocks = any_weights(num_outputs, num_k);
        const reference::MatrixView weight{nullptr, num_outputs, num_k, &kScaledFp8, blocks.data(), GetParam()};
        const int64_t num_rows = std::ssize(x) / num_k;
        const RowForm form = row_form(GetParam());
        reference::WorkerPool threads(1);
        const auto words = on_device(*device_, pack_blocks(weight, threads));
        const auto device_x = on_device(*device_, x);
        const DeviceArray<uint32_t> rows(*device_, num_rows * row_words(form, num_k));
        const DeviceArray<float> out(*device_, num_rows * num_outputs);
        device_->quantise_rows({device_x.data(), num_rows, num_k, num_k}, {}, form, rows.data());
        device_->matmul(rows.data(), {words.data(), nullptr, num_outputs, num_k, WeightFormat::kFp8E4m3, form},
                        {out.data(), num_rows, num_outputs, num_outputs});
        ASSERT_TRUE(device_->synchronize());
        std::vector<float> want(static_cast<size_t>(num_rows * num_outputs));
        std::vector<float> got(want.size());
        out.download(0, got);
        reference::fp8_matmul({.x = dense_rows(x.data(), num_rows, num_k),
                               .weight = weight,
                               .out = dense_rows(want.data(), num_rows, num_outputs)});
        for (size_t i = 0; i < want.size(); ++i)
            ASSERT_TRUE(are_equal(got[i], want[i])) << "place " << i << ": " << got[i] << ", not " << want[i];
    }
};

TEST_P(Fp8MatmulsOnCuda, HaveTheBitsOfTheirDefinitionForAnyWeightsAndActivations) {
    constexpr int64_t kK = 800;
    const float sizes[] = {0.0F, 1e-45F, 1e-42F, 1e-38F, 1e-30F, 1.0F, 448.0F, 9e6F, 1e30F, 8e37F};
    for (const int64_t num_rows : {1, 4, 10, 17}) {
        auto x = draw_values(num_rows * kK, 8);
        for (int64_t i = 0; i < std::ssize(x); ++i) x[static_cast<size_t>(i)] *= sizes[(i / kK + 20 - num_rows) % 10];
        expect_as_defined(x, 66, kK);
        x[70] = std::numeric_limits<float>::infinity();
        x.back() = std::numeric_limits<float>::quiet_NaN();
        expect_as_defined(x, 66, kK);
    }
}

INSTANTIATE_TEST_SUITE_P(Sharings, Fp8MatmulsOnCuda, testing::Values(Fp8Sharing::kGroups, Fp8Sharing::kRow),
                         [](const auto& of) { return of.param == Fp8Sharing::kRow ? "OfARow" : "OfGroups"; });

TEST(Fp8MatmulSchedules, DoNotChangeABit) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 5);
        const auto device = make_emulated_device(emulator);
        for (const Fp8Recipe& recipe : kRecipes)
            for (const int64_t num_rows : {1, 9, 20})
                EXPECT_TRUE(multiplies_fp8_as_defined(*device, {num_rows, 66, 1056}, recipe))
                    << num_rows << " rows, " << name_of(schedule);
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

// Tiles of 9 rows and more whose chunks several blocks have, and those of one block after another.
TEST(Fp8MatmulItems, HaveTheBitsOfTheDefinitionHoweverTilesAreDivided) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 5);
        const auto divided = make_emulated_device(emulator, {.resident_blocks = 96});
        const auto whole = make_emulated_device(emulator);
        for (const Fp8Recipe& recipe : kRecipes) {
            for (const MatmulShape& shape : {MatmulShape{9, 70, 1312}, {16, 63, 2976}, {33, 40, 704}})
                EXPECT_TRUE(multiplies_fp8_as_defined(*divided, shape, recipe)) << shape.num_rows << " rows, divided";
            for (const MatmulShape& shape : {MatmulShape{13, 200, 2496}, {40, 70, 608}})
                EXPECT_TRUE(multiplies_fp8_as_defined(*whole, shape, recipe)) << shape.num_rows << " rows, whole";
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

// Every number but NaN: the value under kFp8WeightUnit.
TEST(ScaledE4m3, IsTheNumberInEveryByte) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
        if ((byte & 127) == 127) continue;
        for (int i = 0; i < 4; ++i) {
            const uint32_t word = ((byte ^ 0xA5) * 0x0101'0101U & ~(0xFFU << (8 * i))) | byte << (8 * i);
            const float want = reference::e4m3_value(static_cast<uint8_t>(byte)) * kFp8WeightUnit;
            ASSERT_EQ(reference::bits_from_float(scaled_e4m3(word, i)), reference::bits_from_float(want)) << byte;
        }
    }
}

}  // namespace
}  // namespace verbatim::cuda
