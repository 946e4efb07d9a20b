// Products of exact.fp8 on the CPU: equal to the plain loop, bit for bit, for both recipes, every number of rows,
// shape, scale and instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/block_runs.h"
#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/ops/fp8_matmul.h"
#include "tests/kernels/cpu/same_bits.h"
#include "tests/support/random_blocks.h"

namespace verbatim::cpu {
namespace {

using reference::Fp8Sharing;
using reference::MatrixView;

struct Fp8Product {
    int64_t rows = 0;
    int64_t outputs = 0;
    int64_t num_k = 0;
    bool bias = false;
};

AlignedArray<std::byte> packed_fp8(const MatrixView& weight) {
    AlignedArray<std::byte> panels(run_bytes_of(weight));
    const int64_t num_panels = PackedMatrix(weight).num_panels();
    for (int64_t i = 0; i < num_panels; ++i) pack_fp8_runs(weight, i, panels.data() + i * panels.size() / num_panels);
    return panels;
}

class Fp8Panels : public testing::TestWithParam<Fp8Sharing> {
protected:
    std::vector<float> normal(int64_t count) {
        std::normal_distribution<float> distribution;
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) value = distribution(random_);
        return values;
    }
    std::vector<std::byte> blocks_of(int64_t outputs, int64_t num_k) {
        return tests::random_fp8_blocks(GetParam(), outputs, num_k, random_);
    }
    void expect_equal(const Fp8Product& product) {
        expect_equal(product, normal(product.rows * product.num_k), blocks_of(product.outputs, product.num_k));
    }
    void expect_equal(const Fp8Product& product, const std::vector<float>& x, std::vector<std::byte> blocks) {
        const MatrixView weight{nullptr,       product.outputs, product.num_k, &reference::kScaledFp8,
                                blocks.data(), GetParam()};
        const std::vector<float> bias = normal(product.outputs);
        const float* added = product.bias ? bias.data() : nullptr;
        const reference::ConstFloatRows rows{x.data(), product.rows, product.num_k, product.num_k};
        std::vector<float> wanted(static_cast<size_t>(product.rows * product.outputs));
        reference::fp8_matmul({.x = rows,
                               .weight = weight,
                               .bias = added,
                               .in_multiplier = 0.5F,
                               .out = reference::dense_rows(wanted.data(), product.rows, product.outputs)});
        const AlignedArray<std::byte> panels = packed_fp8(weight);
        std::ranges::fill(blocks, std::byte{0xFF});  // the products are those of the panels alone
        const PackedMatrix matrix = PackedMatrix::in_fp8(weight, panels.data());
        for (const Isa isa : supported_isas()) {
            const CpuOps& ops = cpu_ops(isa, reference::Profile::kExactFp8);
            const MatmulLoop loop{.ops = &ops};
            const RowForm form = row_form(loop, matrix, rows.num_rows);
            ASSERT_TRUE(holds_fp8(form));
            AlignedArray<float> floats((rows.num_rows + kMaxBandRows) * rows.width);
            const RoundedRows rounded = round_rows(*ops.rows, form, rows, 0.5F, floats.data(), nullptr);
            std::vector<float> got(wanted.size());
            for (int64_t panel = 0; panel < matrix.num_panels(); ++panel)
                multiply_panel(loop, matrix, added, rounded, panel, nullptr,
                               reference::dense_rows(got.data(), rows.num_rows, matrix.num_outputs()));
            tests::expect_same_bits(got, wanted, fmt::format("{}, {} rows", isa_name(isa), product.rows));
        }
    }
    std::mt19937_64 random_{53};
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

// The room of round_rows for bands is enough for the scales.
static_assert(row_floats(RowForm::kFp8OfGroups, 1024) == 1024 + 32);

INSTANTIATE_TEST_SUITE_P(Sharings, Fp8Panels, testing::Values(Fp8Sharing::kRow, Fp8Sharing::kGroups),
                         [](const auto& info) { return info.param == Fp8Sharing::kRow ? "Row" : "Groups"; });

}  // namespace
}  // namespace verbatim::cpu
