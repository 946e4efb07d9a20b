// Products of exact.fp8 on the CPU: equal to the plain loop, bit for bit, for all recipes, every number of rows,
// shape, scale and instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/block_runs.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/ops/fp8_matmul.h"
#include "tests/kernels/cpu/panel_products.h"
#include "tests/support/random_blocks.h"

namespace verbatim::cpu {
namespace {

using reference::Fp8Sharing;
using reference::MatrixView;

constexpr tests::PanelProfile kFp8Profile{
    .profile = reference::Profile::kExactFp8,
    .bytes_of = run_bytes_of,
    .pack = pack_fp8_runs,
    .packed = PackedMatrix::in_fp8,
    .holds = holds_fp8,
    .define = [](reference::ConstFloatRows x, const MatrixView& weight, const float* bias, float in_multiplier,
                 reference::FloatRows out) {
        reference::fp8_matmul({.x = x, .weight = weight, .bias = bias, .in_multiplier = in_multiplier, .out = out});
    }};

struct PanelRecipe {
    Fp8Sharing sharing = Fp8Sharing::kRow;
    float static_scale = 0.0F;
};

class Fp8Panels : public testing::TestWithParam<PanelRecipe>, protected tests::PanelProducts {
protected:
    Fp8Panels() : PanelProducts(kFp8Profile, 53) {}
    std::vector<std::byte> blocks_of(int64_t outputs, int64_t num_k) {
        return tests::random_fp8_blocks(GetParam().sharing, outputs, num_k, random_);
    }
    void expect_equal(const tests::PanelProduct& product) {
        expect_equal(product, normal(product.rows * product.num_k), blocks_of(product.outputs, product.num_k));
    }
    void expect_equal(const tests::PanelProduct& product, const std::vector<float>& x, std::vector<std::byte> blocks) {
        expect_equal_products(product, x,
                              {nullptr, product.outputs, product.num_k, &reference::kScaledFp8, nullptr,
                               GetParam().sharing, GetParam().static_scale},
                              std::move(blocks));
    }
};

TEST_P(Fp8Panels, EqualThePlainLoopForEveryNumberOfRows) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 11, 16, 33, 120}) expect_equal({rows, 70, 544, rows % 2 == 1});
}

TEST_P(Fp8Panels, EqualThePlainLoopForEveryShape) {
    for (const int64_t num_k : {32, 96, 128, 160, 256, 288, 1024}) {
        for (const int64_t outputs : {1, 63, 64, 65, 130}) expect_equal({3, outputs, num_k, false});
    }
}

// All numbers of e4m3, and weights' scales that are NaN, infinite, subnormal, negative or zero.
TEST_P(Fp8Panels, EqualThePlainLoopForAnyWeights) {
    using Limits = std::numeric_limits<float>;
    constexpr int64_t kK = 768;
    const int64_t row_bytes = reference::kScaledFp8.row_bytes(kK);
    std::vector<std::byte> blocks = blocks_of(66, kK);
    int64_t row = 0;
    for (const float scale : {0.0F, -0.5F, 1e-42F, 1e-38F, 1e38F, Limits::infinity(), Limits::quiet_NaN()}) {
        for (int64_t k = 0; k < kK; k += 32)
            std::memcpy(&blocks[static_cast<size_t>(row * row_bytes + k / 32 * 36)], &scale, sizeof(scale));
        ++row;
    }
    for (const int64_t k : {0, 100, 200, 767})  // NaN among the numbers, in one row each
        blocks[static_cast<size_t>(row++ * row_bytes + k / 32 * 36 + 4 + k % 32)] = std::byte{0xFF};
    for (const int64_t rows : {1, 3, 40}) expect_equal({rows, 66, kK, false}, normal(rows * kK), blocks);
}

// Activations of any size, rows of zeros, NaN and infinity among them.
TEST_P(Fp8Panels, EqualThePlainLoopForAnyActivations) {
    constexpr int64_t kRows = 12;
    constexpr int64_t kK = 1024;
    std::vector<float> x = normal(kRows * kK);
    const float scales[kRows] = {0.0F,  1e-45F, 1e-42F, 1e-38F, 1e-30F, 1e-8F,
                                 1e-3F, 448.0F, 300.0F, 9e6F,   1e30F,  8e37F};
    for (int64_t r = 0; r < kRows; ++r)
        for (int64_t k = 0; k < kK; ++k) x[static_cast<size_t>(r * kK + k)] *= scales[r];
    for (int64_t k = 0; k < kK; ++k) x[static_cast<size_t>(7 * kK + k)] = static_cast<float>(k % 2 == 0 ? k % 449 : -k);
    x[6 * kK + 700] = std::numeric_limits<float>::infinity();
    x[4 * kK + 3] = std::nanf("");
    expect_equal({kRows, 65, kK, true}, x, blocks_of(65, kK));
}

// Where one instruction takes a pair, more rows than a register tile holds are pairs.
TEST_P(Fp8Panels, HoldPairsWhereTheInstructionSetTakesThem) {
    std::vector<std::byte> blocks = blocks_of(64, 128);
    const MatrixView weight{nullptr, 64, 128, &reference::kScaledFp8, blocks.data(), GetParam().sharing};
    AlignedArray<std::byte> panels(run_bytes_of(weight));
    const PackedMatrix matrix = PackedMatrix::in_fp8(weight, panels.data());
    for (const Isa isa : supported_isas()) {
        const MatmulLoop loop{.ops = &cpu_ops(isa, reference::Profile::kExactFp8)};
        EXPECT_EQ(row_form(loop, matrix, 6), fp8_form(GetParam().sharing, false)) << isa_name(isa);
        EXPECT_EQ(row_form(loop, matrix, 7), fp8_form(GetParam().sharing, isa == Isa::kAvx512Bf16)) << isa_name(isa);
    }
}

// The room of round_rows for bands is enough for the scales.
static_assert(row_floats(RowForm::kFp8OfGroups, 1024) == 1024 + 32);
static_assert(row_floats(RowForm::kFp8PairsOfRow, 1024) == 1024 + 32);

INSTANTIATE_TEST_SUITE_P(Sharings, Fp8Panels,
                         testing::Values(PanelRecipe{Fp8Sharing::kRow}, PanelRecipe{Fp8Sharing::kGroups},
                                         PanelRecipe{Fp8Sharing::kRow, 0.003F}),
                         [](const auto& info) {
                             if (info.param.static_scale > 0.0F) return "Static";
                             return info.param.sharing == Fp8Sharing::kRow ? "Row" : "Groups";
                         });

}  // namespace
}  // namespace verbatim::cpu
