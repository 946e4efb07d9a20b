// Products of exact.int8 on the CPU: equal to the plain loop, bit for bit, for every type, number of rows, shape, scale
// and instruction set.
#include "kernels/cpu/int8_panels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/model/scaled_blocks.h"
#include "reference/ops/int8_matmul.h"
#include "tests/kernels/cpu/same_bits.h"
#include "tests/support/random_blocks.h"

namespace verbatim::cpu {
namespace {

using reference::BlockFormat;
using reference::MatrixView;

struct Int8Product {
    int64_t rows = 0;
    int64_t outputs = 0;
    int64_t num_k = 0;
    bool bias = false;
};

AlignedArray<std::byte> packed_int8(const MatrixView& weight) {
    AlignedArray<std::byte> panels(int8_bytes_of(weight));
    const int64_t num_panels = PackedMatrix(weight).num_panels();
    for (int64_t i = 0; i < num_panels; ++i) pack_int8(weight, i, panels.data() + i * panels.size() / num_panels);
    return panels;
}

class Int8Panels : public testing::TestWithParam<BlockFormat> {
protected:
    std::vector<float> normal(int64_t count) {
        std::normal_distribution<float> distribution;
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) value = distribution(random_);
        return values;
    }
    void expect_equal(const Int8Product& product) {
        expect_equal(product, normal(product.rows * product.num_k),
                     tests::random_blocks(GetParam(), product.outputs, product.num_k, random_));
    }
    void expect_equal(const Int8Product& product, const std::vector<float>& x, std::vector<std::byte> blocks) {
        const MatrixView weight{nullptr, product.outputs, product.num_k, &GetParam(), blocks.data()};
        const std::vector<float> bias = normal(product.outputs);
        const float* added = product.bias ? bias.data() : nullptr;
        const reference::ConstFloatRows rows{x.data(), product.rows, product.num_k, product.num_k};
        std::vector<float> wanted(static_cast<size_t>(product.rows * product.outputs));
        reference::int8_matmul({.x = rows,
                                .weight = weight,
                                .bias = added,
                                .in_multiplier = 0.5F,
                                .out = reference::dense_rows(wanted.data(), product.rows, product.outputs)});
        const AlignedArray<std::byte> panels = packed_int8(weight);
        std::ranges::fill(blocks, std::byte{0xFF});  // the products are those of the panels alone
        const PackedMatrix matrix = PackedMatrix::in_int8(weight, panels.data());
        for (const Isa isa : supported_isas()) {
            const CpuOps& ops = cpu_ops(isa, reference::Profile::kExactInt8);
            const MatmulLoop loop{.ops = &ops};
            const RowForm form = row_form(loop, matrix, rows.num_rows);
            ASSERT_TRUE(holds_int8(form));
            AlignedArray<float> floats((rows.num_rows + kMaxBandRows) * rows.width);
            const RoundedRows rounded = round_rows(*ops.rows, form, rows, 0.5F, floats.data(), nullptr);
            std::vector<float> got(wanted.size());
            for (int64_t panel = 0; panel < matrix.num_panels(); ++panel)
                multiply_panel(loop, matrix, added, rounded, panel, nullptr,
                               reference::dense_rows(got.data(), rows.num_rows, matrix.num_outputs()));
            tests::expect_same_bits(got, wanted, fmt::format("{}, {} rows", isa_name(isa), product.rows));
        }
    }
    std::mt19937_64 random_{47};
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
