// Matmuls, mixtures and lookups over quantised weights, in the emulator: the bits of their definitions, in every type.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/block_case.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

using reference::BlockFormat;

class BlockMatmul : public testing::TestWithParam<const BlockFormat*> {
protected:
    ~BlockMatmul() override {
        EXPECT_TRUE(emulator_.findings().empty()) << emulator_.findings().front().text;
        EXPECT_GT(emulator_.num_launches(), 0);
    }
    [[nodiscard]] const BlockFormat& format() const { return *GetParam(); }
    simt::Emulator emulator_{simt::Schedule::kRandom, 5};
    std::unique_ptr<Device> device_ = make_emulated_device(emulator_);
};

// Each kernel; outputs of one panel and of several, K of one unit, of a part of a chunk, of several chunks.
TEST_P(BlockMatmul, HasTheBitsOfItsDefinition) {
    for (const int64_t num_rows : {1, 2, 4, 5, 8, 9, 16, 33}) {
        EXPECT_TRUE(multiplies_blocks_as_defined(*device_, format(), {num_rows, 70, columns_of(format(), 1, 3)}))
            << num_rows;
    }
    EXPECT_TRUE(multiplies_blocks_as_defined(*device_, format(), {1, 1, columns_of(format(), 0, 1)}));
    EXPECT_TRUE(multiplies_blocks_as_defined(*device_, format(), {3, 131, columns_of(format(), 3, 7)}));
    EXPECT_TRUE(multiplies_blocks_as_defined(*device_, format(), {6, 64, columns_of(format(), 9, 1)}));
}

TEST_P(BlockMatmul, OfExpertsHasTheBitsOfItsDefinition) {
    for (const int64_t num_rows : {1, 3, 7, 40})
        EXPECT_TRUE(multiplies_entries_as_defined(*device_, format(), {num_rows, 3, 2, columns_of(format(), 1, 1), 66}))
            << num_rows;
}

TEST_P(BlockMatmul, LooksUpTheValuesOfItsType) {
    EXPECT_TRUE(looks_up_blocks_as_defined(*device_, format(), 67, columns_of(format(), 1, 3)));
    EXPECT_TRUE(looks_up_blocks_as_defined(*device_, format(), 3, columns_of(format(), 0, 1)));
}

INSTANTIATE_TEST_SUITE_P(Types, BlockMatmul, testing::ValuesIn(device_formats()),
                         [](const auto& of) { return std::string(of.param->name); });

TEST(BlockMatmuls, DoNotDependOnTheOrderOfThreads) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 5);
        const auto device = make_emulated_device(emulator);
        for (const char* name : {"Q5_0", "Q6_K"})
            for (const int64_t num_rows : {1, 4, 8, 17})
                EXPECT_TRUE(
                    multiplies_blocks_as_defined(*device, *reference::find_block_format(name), {num_rows, 66, 1024}))
                    << name << ", " << num_rows << " rows, " << name_of(schedule);
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

// Every byte of a block in turn, so that every code of a weight and of a scale is looked up.
TEST(BlockMatmuls, EveryBitPatternOfAByteHasItsValue) {
    simt::Emulator emulator(simt::Schedule::kForward, 5);
    const auto device = make_emulated_device(emulator);
    for (const BlockFormat* format : device_formats()) {
        SCOPED_TRACE(format->name);
        std::mt19937_64 random(3);
        std::vector<std::byte> blocks = tests::random_blocks(*format, 256, format->num_weights, random);
        for (int64_t value = 0; value < 256; ++value)
            for (int64_t i = 0; i < format->num_bytes; ++i)
                if (i % 7 == value % 7) blocks[static_cast<size_t>(value * format->num_bytes + i)] = std::byte(value);
        const reference::MatrixView table{nullptr, 256, format->num_weights, format, blocks.data()};
        reference::WorkerPool threads(1);
        const auto words = on_device(*device, pack_blocks(table, threads));
        std::vector<int32_t> tokens(256);
        std::iota(tokens.begin(), tokens.end(), 0);
        const auto device_tokens = on_device(*device, tokens);
        const DeviceArray<float> out(*device, table.rows * table.cols);
        DeviceBatch batch;
        batch.tokens = device_tokens.data();
        batch.num_rows = table.rows;
        device->embed_blocks(batch, {words.data(), nullptr, table.rows, table.cols, *find_weight_format(*format)}, 1.0F,
                             {out.data(), table.rows, table.cols, table.cols});
        std::vector<float> got(static_cast<size_t>(out.count()));
        std::vector<float> want(got.size());
        out.download(0, got);
        reference::dequantise(*format, blocks, want);
        for (size_t i = 0; i < want.size(); ++i) {
            if (std::isnan(want[i]) && std::isnan(got[i])) continue;
            // A NaN of e4m3 makes its unit's scale NaN.
            if (std::isnan(got[i]) && format == &reference::kScaledFp8) continue;
            ASSERT_EQ(reference::bits_from_float(got[i]), reference::bits_from_float(want[i])) << i;
        }
    }
    EXPECT_TRUE(device->synchronize());
}

TEST(BlockMatmuls, ATypeWithoutKernelsIsNamed) {
    EXPECT_FALSE(find_weight_format(*reference::find_block_format("F16")));
    EXPECT_EQ(device_formats().size(), 19);
}

}  // namespace
}  // namespace verbatim::cuda
