// Products of exact.int8 on the CPU: equal to the plain loop, bit for bit, for every type, number of rows, shape, scale
// and instruction set.
#include "kernels/cpu/int8_panels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/model/scaled_blocks.h"
#include "reference/ops/int8_matmul.h"
#include "tests/kernels/cpu/panel_products.h"
#include "tests/support/random_blocks.h"

namespace verbatim::cpu {
namespace {

using reference::BlockFormat;
using reference::MatrixView;

constexpr tests::PanelProfile kInt8Profile{
    .profile = reference::Profile::kExactInt8,
    .bytes_of = int8_bytes_of,
    .pack = pack_int8,
    .packed = PackedMatrix::in_int8,
    .holds = holds_int8,
    .define = [](reference::ConstFloatRows x, const MatrixView& weight, const float* bias, float in_multiplier,
                 reference::FloatRows out) {
        reference::int8_matmul({.x = x, .weight = weight, .bias = bias, .in_multiplier = in_multiplier, .out = out});
    }};

class Int8Panels : public testing::TestWithParam<BlockFormat>, protected tests::PanelProducts {
protected:
    Int8Panels() : PanelProducts(kInt8Profile, 47) {}
    void expect_equal(const tests::PanelProduct& product) {
        expect_equal(product, normal(product.rows * product.num_k),
                     tests::random_blocks(GetParam(), product.outputs, product.num_k, random_));
    }
    void expect_equal(const tests::PanelProduct& product, const std::vector<float>& x, std::vector<std::byte> blocks) {
        expect_equal_products(product, x, {nullptr, product.outputs, product.num_k, &GetParam(), nullptr},
                              std::move(blocks));
    }
};

TEST_P(Int8Panels, EqualThePlainLoopForEveryNumberOfRows) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 7, 8, 11, 16, 33, 120}) expect_equal({rows, 70, 512, rows % 2 == 1});
}

TEST_P(Int8Panels, EqualThePlainLoopForEveryShape) {
    for (const int64_t blocks : {1, 2, 3, 9}) {
        for (const int64_t outputs : {1, 63, 64, 65, 130})
            expect_equal({3, outputs, blocks * GetParam().num_weights, false});
    }
}

// Every byte random: scales of NaN, infinity, zero, subnormal fp16, and integer scales at both ends.
TEST_P(Int8Panels, EqualThePlainLoopForAnyBytes) {
    for (int i = 0; i < 4; ++i) {
        std::vector<std::byte> blocks(static_cast<size_t>(66 * GetParam().row_bytes(768)));
        for (std::byte& byte : blocks) byte = static_cast<std::byte>(random_());
        tests::limit_zero_points(GetParam(), blocks);
        expect_equal({9, 66, 768, false}, normal(9 * 768), blocks);
    }
    for (const int fill : {0x00, 0x7F, 0x80, 0xFB, 0xFF, 0x01}) {
        std::vector<std::byte> blocks(static_cast<size_t>(3 * GetParam().row_bytes(256)), static_cast<std::byte>(fill));
        tests::limit_zero_points(GetParam(), blocks);
        expect_equal({5, 3, 256, false}, normal(5 * 256), blocks);
    }
}

// Activations of any size, rows of zeros, NaN and infinity among them.
TEST_P(Int8Panels, EqualThePlainLoopForAnyActivations) {
    constexpr int64_t kRows = 12;
    constexpr int64_t kK = 1024;
    std::vector<float> x = normal(kRows * kK);
    const float scales[kRows] = {0.0F,  1e-45F, 1e-38F, 0x1p-99F, 1e-30F, 6e-8F * 127,
                                 1e-4F, 1.0F,   300.0F, 9e6F,     1e30F,  3e38F};
    for (int64_t r = 0; r < kRows; ++r)
        for (int64_t k = 0; k < kK; ++k) x[static_cast<size_t>(r * kK + k)] *= scales[r] / 4;
    for (int64_t k = 0; k < kK; k += 3) x[static_cast<size_t>(7 * kK + k)] = 127.0F * ((k % 2 == 0) ? 1.0F : -1.0F);
    x[6 * kK + 700] = std::numeric_limits<float>::infinity();
    x[4 * kK + 3] = std::nanf("");
    expect_equal({kRows, 65, kK, true}, x, tests::random_blocks(GetParam(), 65, kK, random_));
}

TEST(Int8Layouts, TakeAboutTheFilesBytes) {
    const auto bytes = [](const char* name) {
        return static_cast<double>(int8_bytes_of({nullptr, 64, 256, reference::find_block_format(name), nullptr})) /
               (64 * 256);
    };
    EXPECT_EQ(bytes("Q8_0"), 34.0 / 32);
    EXPECT_EQ(bytes("Q4_0"), 18.0 / 32);
    EXPECT_EQ(bytes("Q4_1"), 20.0 / 32);
    EXPECT_EQ(bytes("Q4_K"), 148.0 / 256);
    EXPECT_EQ(bytes("Q6_K"), 274.0 / 256);
    EXPECT_EQ(int8_bytes_of({nullptr, 64, 256, reference::find_block_format("MXFP4"), nullptr}), 0);
    EXPECT_EQ(int8_bytes_of({nullptr, 64, 256, &reference::kScaledInt8, nullptr}), 64 * 256 * 36 / 32);
    EXPECT_EQ(int8_bytes_of({nullptr, 64, 256, &reference::kScaledInt4, nullptr}), 64 * 256 * 20 / 32);
    EXPECT_EQ(int8_bytes_of({nullptr, 64, 256, &reference::kScaledFp8, nullptr}), 0);
}

TEST(Int8Layouts, AreOfEveryTypeWithIntegers) {
    for (const BlockFormat& format : tests::integer_formats())
        EXPECT_NE(find_int8_layout(format), nullptr) << format.name;
}

INSTANTIATE_TEST_SUITE_P(Formats, Int8Panels, testing::ValuesIn(tests::integer_formats()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace verbatim::cpu
