// Products with weights in blocks on the CPU: equal to the plain loop, bit for bit, for every format, number of rows
// and instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/block_runs.h"
#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/packed_matrix.h"
#include "reference/model/scaled_blocks.h"
#include "reference/ops/quantised.h"
#include "tests/support/random_blocks.h"

namespace verbatim::cpu {
namespace {

using reference::BlockFormat;
using reference::MatrixView;
using tests::random_blocks;

struct Product {
    int64_t rows = 0;
    int64_t outputs = 0;
    int64_t num_k = 0;
    bool bias = false;
};

// The matrix's panels in runs; empty if its type has none.
AlignedArray<std::byte> runs_of(const MatrixView& weight) {
    AlignedArray<std::byte> runs(run_bytes_of(weight));
    const int64_t num_panels = PackedMatrix(weight).num_panels();
    for (int64_t i = 0; runs.size() > 0 && i < num_panels; ++i)
        pack_runs(weight, i, runs.data() + i * runs.size() / num_panels);
    return runs;
}

class BlockPanels : public testing::TestWithParam<BlockFormat> {
protected:
    void expect_equal(const Product& product) {
        const BlockFormat& format = GetParam();
        auto blocks = random_blocks(format, product.outputs, product.num_k, random_);
        const MatrixView weight{nullptr, product.outputs, product.num_k, &format, blocks.data()};
        std::normal_distribution<float> normal;
        std::vector<float> x(static_cast<size_t>(product.rows * product.num_k));
        for (float& value : x) value = normal(random_);
        std::vector<float> bias(static_cast<size_t>(product.outputs));
        for (float& value : bias) value = normal(random_);
        std::vector<float> wanted(static_cast<size_t>(product.rows * product.outputs));
        const reference::ConstFloatRows rows{x.data(), product.rows, product.num_k, product.num_k};
        reference::quantised_matmul({.x = rows,
                                     .weight = weight,
                                     .bias = product.bias ? bias.data() : nullptr,
                                     .in_multiplier = 0.5F,
                                     .out = reference::dense_rows(wanted.data(), product.rows, product.outputs)});
        const float* added = product.bias ? bias.data() : nullptr;
        expect_products(PackedMatrix(weight), rows, added, wanted);
        const AlignedArray<std::byte> runs = runs_of(weight);
        if (runs.size() == 0) return;
        std::ranges::fill(blocks, std::byte{0xFF});  // the products are those of the runs alone
        expect_products(PackedMatrix(weight, runs.data()), rows, added, wanted);
    }

    // The products on every instruction set.
    static void expect_products(const PackedMatrix& matrix, const reference::ConstFloatRows& rows, const float* bias,
                                const std::vector<float>& wanted) {
        for (const Isa isa : supported_isas()) {
            const CpuOps& ops = cpu_ops(isa);
            const MatmulLoop loop{.ops = &ops};
            const char* const kind = matrix.runs() != nullptr ? "runs" : "blocks";
            ASSERT_EQ(row_form(loop, matrix, rows.num_rows), RowForm::kFloats);
            std::vector<float> floats(static_cast<size_t>((rows.num_rows + 2 * kMaxBandRows) * rows.width));
            const RoundedRows rounded = round_rows(*ops.rows, RowForm::kFloats, rows, {0.5F}, floats.data(), nullptr);
            std::vector<float> got(wanted.size());
            for (int64_t panel = 0; panel < matrix.num_panels(); ++panel)
                multiply_panel(loop, matrix, bias, rounded, panel, nullptr,
                               reference::dense_rows(got.data(), rows.num_rows, matrix.num_outputs()));
            for (size_t i = 0; i < got.size(); ++i)
                ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted[i]))
                    << isa_name(isa) << " " << kind << " " << rows.num_rows << " rows, output " << i;
        }
    }
    std::mt19937_64 random_{43};
};

TEST_P(BlockPanels, EqualThePlainLoopForEveryNumberOfRows) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 25, 33, 120}) expect_equal({rows, 70, 512, rows % 2 == 1});
}

TEST_P(BlockPanels, EqualThePlainLoopForEveryShape) {
    for (const int64_t blocks : {1, 2, 3, 9}) {
        for (const int64_t outputs : {1, 63, 64, 65, 130})
            expect_equal({3, outputs, blocks * GetParam().num_weights, false});
    }
}

TEST(BlockRuns, AreMadeOfTheTypesThatNeedFastDecoding) {
    for (const char* name : {"Q4_0", "Q8_0", "Q4_K", "Q6_K"})
        EXPECT_NE(find_run_layout(*reference::find_block_format(name)), nullptr) << name;
    EXPECT_EQ(find_run_layout(*reference::find_block_format("Q5_K")), nullptr);
    for (const BlockFormat* format : reference::scaled_formats()) EXPECT_NE(find_run_layout(*format), nullptr);
}

// Vector instruction sets multiply few rows without a tile in memory.
TEST(BlockRuns, AreMultipliedDirectlyByVectorInstructions) {
    for (const Isa isa : supported_isas())
        EXPECT_EQ(cpu_ops(isa).run_rows >= MatmulChoice::kFewRows, isa != Isa::kPortable) << isa_name(isa);
}

// The bytes of docs/models.md.
TEST(BlockRuns, TakeALittleMoreMemoryThanBlocks) {
    const auto bytes = [](const char* name) {
        return run_bytes_of({nullptr, 64, 256, reference::find_block_format(name), nullptr});
    };
    EXPECT_EQ(bytes("Q8_0"), 64 * 256 * 9 / 8);
    EXPECT_EQ(bytes("Q4_0"), 64 * 256 * 5 / 8);
    EXPECT_EQ(bytes("Q4_K"), 64 * 256 * 3 / 4);
    EXPECT_EQ(bytes("Q6_K"), 64 * 256 * 5 / 4);
    const auto scaled = [](const BlockFormat& format) { return run_bytes_of({nullptr, 64, 256, &format, nullptr}); };
    EXPECT_EQ(scaled(reference::kScaledInt8), 64 * 256 * 9 / 8);
    EXPECT_EQ(scaled(reference::kScaledFp8), 64 * 256 * 9 / 8);
    EXPECT_EQ(scaled(reference::kScaledInt4), 64 * 256 * 5 / 8);
    EXPECT_EQ(scaled(reference::kScaledInt4Zero), 64 * 256 * 9 / 8);
}

std::vector<BlockFormat> quantised_formats() {
    std::vector<BlockFormat> formats;
    for (const BlockFormat& format : reference::block_formats())
        if (!format.is_dense()) formats.push_back(format);
    for (const BlockFormat* format : reference::scaled_formats()) formats.push_back(*format);
    return formats;
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockPanels, testing::ValuesIn(quantised_formats()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace verbatim::cpu
