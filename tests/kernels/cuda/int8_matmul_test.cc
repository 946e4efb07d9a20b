// Activations in int8, and their matmuls with quantised weights, in the emulator: the bits of
// reference/ops/int8_matmul.h, in every type.
#include "kernels/cuda/ops/int8_matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/block_case.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

using reference::BlockFormat;
using reference::Int8Sharing;

constexpr Int8Sharing kSharings[] = {Int8Sharing::kBlocksOf32, Int8Sharing::kBlocksOf256, Int8Sharing::kRow};

// --- rows

// Quants and scales of a row as the device lays them out; bits of a NaN are those of any NaN.
std::vector<uint32_t> defined_words(const float* x, int64_t width, float multiplier, Int8Sharing sharing) {
    const int64_t columns = reference::scale_columns(sharing);
    std::vector<int8_t> quants(static_cast<size_t>(width));
    std::vector<float> scales(static_cast<size_t>(width / columns));
    reference::quantise_row({x, width, multiplier, sharing, quants.data(), scales.data()});
    std::vector<uint32_t> words(static_cast<size_t>(int8_row_words(width)));
    for (int64_t k = 0; k < width; ++k) {
        const auto record = static_cast<size_t>(k / 256 * kInt8RecordWords);
        const auto byte = static_cast<uint8_t>(quants[static_cast<size_t>(k)]);
        words[record + static_cast<size_t>(k % 256 / 4)] |= uint32_t{byte} << k % 4 * 8;
        words[record + static_cast<size_t>(kInt8RecordQuads + k % 256 / 32)] =
            reference::bits_from_float(scales[static_cast<size_t>(k / columns)]);
    }
    return words;
}

// The row's words on the device, but for the scales of units behind its end.
std::string first_wrong_word(Device& device, const std::vector<float>& x, int64_t num_rows, float multiplier,
                             Int8Sharing sharing) {
    const int64_t width = std::ssize(x) / num_rows;
    const auto device_x = on_device(device, x);
    const DeviceArray<uint32_t> out(device, num_rows * int8_row_words(width));
    device.quantise_rows({device_x.data(), num_rows, width, width}, {multiplier}, row_form(sharing), out.data());
    const auto got = words_of(out);
    for (int64_t row = 0; row < num_rows; ++row) {
        const auto want = defined_words(x.data() + row * width, width, multiplier, sharing);
        for (int64_t i = 0; i < std::ssize(want); ++i) {
            const int64_t in_record = i % kInt8RecordWords;
            const bool is_scale = in_record >= kInt8RecordQuads;
            const int64_t unit = i / kInt8RecordWords * kRecordUnits + in_record - kInt8RecordQuads;
            if (is_scale && unit * kUnitWeights >= width) continue;
            const uint32_t word = got[static_cast<size_t>(row * std::ssize(want) + i)];
            const uint32_t wanted = want[static_cast<size_t>(i)];
            const bool are_nan = is_scale && std::isnan(reference::float_from_bits(word)) &&
                                 std::isnan(reference::float_from_bits(wanted));
            if (word != wanted && !are_nan)
                return fmt::format("row {}, word {}: {:08x}, not {:08x}", row, i, word, wanted);
        }
    }
    return device.synchronize() ? "" : "the device has an error";
}

class QuantiseRowsOnCuda : public testing::TestWithParam<Int8Sharing> {
protected:
    ~QuantiseRowsOnCuda() override { EXPECT_TRUE(emulator_.findings().empty()) << emulator_.findings().front().text; }
    void expect_as_defined(const std::vector<float>& x, int64_t num_rows, float multiplier = 1.0F) {
        EXPECT_EQ(first_wrong_word(*device_, x, num_rows, multiplier, GetParam()), "");
    }
    [[nodiscard]] bool of_256() const { return GetParam() == Int8Sharing::kBlocksOf256; }
    simt::Emulator emulator_{simt::Schedule::kRandom, 5};
    std::unique_ptr<Device> device_ = make_emulated_device(emulator_);
};

TEST_P(QuantiseRowsOnCuda, HaveTheBitsOfTheirDefinition) {
    for (const int64_t width : {32, 224, 256, 512, 1312}) {
        if (of_256() && width % 256 != 0) continue;
        expect_as_defined(draw_values(3 * width, 1), 3, 1.5F);
        expect_as_defined(draw_values(width, 2), 1, 0.3F);
    }
}

// Ties, quotients that round up to 127, scales that are zero, subnormal or infinite as halves.
TEST_P(QuantiseRowsOnCuda, EveryMagnitudeHasItsScale) {
    const std::vector<float> x = draw_every_magnitude(256);
    expect_as_defined(x, 277);
    expect_as_defined(x, 1);
    std::vector<float> ties(256);
    for (size_t i = 0; i < ties.size(); ++i) ties[i] = static_cast<float>(i % 255) / 2 - 63.5F;
    ties[3] = 127.0F;
    expect_as_defined(ties, 1);
    // Around the least half, half of it, and the greatest.
    for (const float edge : {0x1p-14F, 0x1p-24F, 0x1p-25F, 65504.0F, 65520.0F, 0x1p-100F / 127.0F, 0x1p-149F}) {
        for (int step = -3; step <= 3; ++step) {
            float greatest = edge * 127.0F;
            for (int i = 0; i < std::abs(step); ++i)
                greatest = std::nextafter(greatest, step < 0 ? 0.0F : std::numeric_limits<float>::infinity());
            std::vector<float> row = draw_values(256, 9);
            for (float& value : row) value = std::remainder(value * greatest, greatest);
            row[77] = -greatest;
            expect_as_defined(row, 1);
        }
    }
}

TEST_P(QuantiseRowsOnCuda, WhatIsNoNumberMakesItsScaleNan) {
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::max()}) {
        auto x = draw_values(2 * 512, 4);
        x[300] = bad;
        expect_as_defined(x, 2);
        expect_as_defined(x, 2, 4.0F);  // the greatest number overflows
    }
    expect_as_defined(std::vector<float>(512, 0.0F), 1);
}

INSTANTIATE_TEST_SUITE_P(Sharings, QuantiseRowsOnCuda, testing::ValuesIn(kSharings), [](const auto& of) {
    return of.param == Int8Sharing::kBlocksOf32 ? "Of32" : of.param == Int8Sharing::kBlocksOf256 ? "Of256" : "OfARow";
});

// --- products

class Int8MatmulOnCuda : public testing::TestWithParam<BlockFormat> {
protected:
    ~Int8MatmulOnCuda() override {
        EXPECT_TRUE(emulator_.findings().empty()) << emulator_.findings().front().text;
        EXPECT_GT(emulator_.num_launches(), 0);
    }
    [[nodiscard]] const BlockFormat& format() const { return GetParam(); }
    simt::Emulator emulator_{simt::Schedule::kRandom, 5};
    std::unique_ptr<Device> device_ = make_emulated_device(emulator_);
};

// Each kernel; outputs of one panel and of several, K of one unit, of a part of a chunk, of several chunks.
TEST_P(Int8MatmulOnCuda, HasTheBitsOfItsDefinition) {
    for (const int64_t num_rows : {1, 2, 8, 9, 19}) {
        EXPECT_TRUE(multiplies_integers_as_defined(*device_, format(), {num_rows, 70, columns_of(format(), 1, 3)}))
            << num_rows;
    }
    EXPECT_TRUE(multiplies_integers_as_defined(*device_, format(), {1, 1, columns_of(format(), 0, 1)}));
    EXPECT_TRUE(multiplies_integers_as_defined(*device_, format(), {3, 131, columns_of(format(), 3, 7)}));
    EXPECT_TRUE(multiplies_integers_as_defined(*device_, format(), {1, 64, columns_of(format(), 9, 1)}));
}

TEST_P(Int8MatmulOnCuda, OfExpertsHasTheBitsOfItsDefinition) {
    for (const int64_t num_rows : {1, 3, 40})
        EXPECT_TRUE(multiplies_entries_as_defined(*device_, format(), {num_rows, 3, 2, columns_of(format(), 1, 1), 66},
                                                  reference::Profile::kExactInt8))
            << num_rows;
}

INSTANTIATE_TEST_SUITE_P(Types, Int8MatmulOnCuda, testing::ValuesIn(tests::integer_formats()),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(Int8MatmulsOnCuda, DoNotDependOnTheOrderOfThreads) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 5);
        const auto device = make_emulated_device(emulator);
        for (const char* name : {"Q5_1", "Q2_K"})
            for (const int64_t num_rows : {1, 9})
                EXPECT_TRUE(
                    multiplies_integers_as_defined(*device, *reference::find_block_format(name), {num_rows, 66, 1024}))
                    << name << ", " << num_rows << " rows, " << name_of(schedule);
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

TEST(Int8MatmulsOnCuda, TakeTheTypesOfTheDefinition) {
    for (const BlockFormat* format : device_formats()) {
        const reference::IntegerFormat* integers = reference::find_integer_format(*format);
        const WeightFormat name = *find_weight_format(*format);
        EXPECT_EQ(has_integers(name), integers != nullptr) << format->name;
        if (integers != nullptr) EXPECT_EQ(int8_sharing(name), integers->sharing) << format->name;
    }
    EXPECT_FALSE(has_integers(WeightFormat::kPairs));
}

TEST(AddProducts, IsExactForEveryPairOfBytes) {
    for (int a = -128; a < 128; ++a) {
        for (int b = -128; b < 128; ++b) {
            const auto bytes = [](int value) { return static_cast<uint32_t>(value & 255); };
            const int32_t got = simt::add_products(bytes(a) << 16 | bytes(b), bytes(b) << 16 | bytes(a), -7);
            ASSERT_EQ(got, 2 * a * b - 7) << a << ", " << b;
        }
    }
    EXPECT_EQ(simt::add_products(0x8080'8080U, 0x8080'8080U, INT32_MAX), INT32_MIN + 65535);
}

}  // namespace
}  // namespace verbatim::cuda
