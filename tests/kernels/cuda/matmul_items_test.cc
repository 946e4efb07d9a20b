// Matmuls of some rows with tiles divided between blocks: the bits of the definition, whichever item of a tile is last,
// in any order of blocks and threads.
#include "kernels/cuda/ops/matmul_items.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/op_cases.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

constexpr int64_t kProcessorBlocks = 8;  // resident_blocks of one

std::string text_of(const MatmulShape& shape) {
    return fmt::format("{} rows of {}, {} outputs", shape.num_rows, shape.num_k, shape.num_outputs);
}
std::string first_of(const simt::Emulator& emulator) {
    return emulator.findings().empty() ? "" : emulator.findings().front().text;
}

class CudaMatmulItems : public testing::TestWithParam<simt::Schedule> {};

// Of two to twelve chunks, whole ones and others, by one warp of a block, two and more.
TEST_P(CudaMatmulItems, OfDividedTilesHaveTheBitsOfTheDefinition) {
    simt::Emulator emulator(GetParam(), 7);
    const auto device = make_emulated_device(emulator, {.resident_blocks = 12 * kProcessorBlocks});
    for (const MatmulShape& shape :
         {MatmulShape{5, 64, 257}, {8, 70, 1300}, {12, 130, 1024}, {16, 63, 2999}, {17, 40, 700}, {32, 129, 1281}}) {
        EXPECT_TRUE(multiplies_as_defined(*device, shape, Values::kNormal)) << text_of(shape);
    }
    EXPECT_EQ(first_of(emulator), "");
}
// Blocks that have all chunks of a tile, and one after another of them.
TEST_P(CudaMatmulItems, OfWholeTilesHaveTheBitsOfTheDefinition) {
    simt::Emulator emulator(GetParam(), 7);
    const auto device = make_emulated_device(emulator);
    for (const MatmulShape& shape : {MatmulShape{6, 1100, 200}, {13, 200, 2500}, {31, 300, 300}, {40, 70, 600}}) {
        EXPECT_TRUE(multiplies_as_defined(*device, shape, Values::kNormal)) << text_of(shape);
    }
    EXPECT_EQ(first_of(emulator), "");
}

INSTANTIATE_TEST_SUITE_P(InAnyOrderOfThreads, CudaMatmulItems, testing::ValuesIn(schedules()),
                         [](const auto& order) { return name_of(order.param); });

// More rows than a large block's, but too few of them for a device.
TEST(CudaMatmulItems, OfSeveralRowsOfTilesHaveTheBitsOfTheDefinition) {
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator, {.resident_blocks = 40 * kProcessorBlocks});
    EXPECT_TRUE(multiplies_as_defined(*device, {70, 130, 600}, Values::kNormal));
    EXPECT_EQ(first_of(emulator), "");
}

// A matmul's extra memory: sums and arrivals once, and only for divided tiles.
TEST(CudaMatmulItems, MemoryIsTakenOnceAndOnlyByDividedTiles) {
    const auto allocations_of = [](Device& device, const MatmulShape& shape) {
        const int64_t before = device.counts().allocations;
        EXPECT_TRUE(multiplies_as_defined(device, shape, Values::kNormal));
        return device.counts().allocations - before;
    };
    simt::Emulator emulator;
    const auto few = make_emulated_device(emulator);
    const auto many = make_emulated_device(emulator, {.resident_blocks = 12 * kProcessorBlocks});
    const MatmulShape shape{8, 64, 600};
    const int64_t operands = allocations_of(*few, shape);
    EXPECT_EQ(allocations_of(*many, shape), operands + 2);
    EXPECT_EQ(allocations_of(*many, shape), operands);
    EXPECT_EQ(allocations_of(*many, {8, 64, 256}), operands) << "a tile has one chunk";
    EXPECT_EQ(allocations_of(*few, {8, 64, 256}), operands);
}

// The grid is what the device holds at once, two blocks of eight warps a processor.
TEST(CudaMatmulItems, BlocksContinueWithTheNextItem) {
    const auto num_blocks = [](int64_t processors, const MatmulShape& shape) {
        simt::Emulator emulator;
        emulator.count_accesses();
        const auto device = make_emulated_device(emulator, {.resident_blocks = processors * kProcessorBlocks});
        EXPECT_TRUE(multiplies_as_defined(*device, shape, Values::kNormal));
        EXPECT_EQ(first_of(emulator), "");
        return emulator.access_counts("matmul8").num_blocks;
    };
    EXPECT_EQ(num_blocks(1, {8, 64 * 9, 2048}), 2) << "nine whole tiles";
    EXPECT_EQ(num_blocks(2, {8, 64, 8300}), 4) << "five items of a tile";
    EXPECT_EQ(num_blocks(12, {8, 64, 2048}), 8) << "as many items as a tile has chunks";
}

TEST(CudaMatmulItems, AGraphFindsUnchangedArrivalCounts) {
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator, {.resident_blocks = 12 * kProcessorBlocks});
    constexpr int64_t kRows = 9, kOutputs = 100, kInputs = 900;
    const auto weight = reference::draw_bf16(kOutputs * kInputs, 2);
    const auto words = on_device(*device, packed(weight, kOutputs, kInputs));
    auto x = on_device(*device, draw_values(kRows * kInputs, 1));
    const DeviceArray<uint32_t> pairs(*device, kRows * row_pairs_of(kInputs));
    const DeviceArray<float> out(*device, kRows * kOutputs);
    const auto multiply = [&] {
        device->round_rows({x.data(), kRows, kInputs, kInputs}, 1.0F, pairs.data());
        device->matmul(pairs.data(), {words.data(), nullptr, kOutputs, kInputs},
                       {out.data(), kRows, kOutputs, kOutputs});
    };
    multiply();
    device->begin_graph();
    multiply();
    const auto graph = device->end_graph();
    for (uint64_t seed = 11; seed < 14; ++seed) {
        const auto fresh = draw_values(kRows * kInputs, seed);
        x.upload(fresh);
        device->launch_graph(*graph);
        std::vector<float> want(static_cast<size_t>(kRows * kOutputs));
        reference::matmul({.x = dense_rows(fresh.data(), kRows, kInputs),
                           .weight = weight.data(),
                           .out = dense_rows(want.data(), kRows, kOutputs)});
        EXPECT_EQ(bits_of(floats_of(*device, out, 0, out.count())), bits_of(want)) << seed;
    }
    EXPECT_EQ(first_of(emulator), "");
}

}  // namespace
}  // namespace verbatim::cuda
