// Matmuls of 9 to 32 rows on tensor cores, by items: the bits of the definition, whichever item of a panel is last, in
// any order of blocks and threads.
#include "kernels/cuda/ops/tensor_items.h"

#include <gtest/gtest.h>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/cuda/tensor_case.h"

namespace verbatim::cuda {
namespace {

constexpr int64_t kEightWarps = 8;  // resident_blocks of one processor

void expect_definition(int64_t processors, const TensorShape& shape, simt::Schedule schedule) {
    simt::Emulator emulator(schedule, 7);
    const auto device = make_emulated_device(emulator, {.resident_blocks = processors * kEightWarps});
    TensorCase one(*device, shape);
    for (int i = 0; i < 2; ++i) one.multiply();  // the second one finds the arrivals as they were
    one.expect_bits_of_definition();
    EXPECT_EQ(emulator.findings().empty() ? "" : emulator.findings().front().text, "");
}

class TensorItems : public testing::TestWithParam<simt::Schedule> {};

// Of two to twelve chunks, whole ones and others, by one warp of a block, two and more; unused tiles.
TEST_P(TensorItems, OfDividedPanelsHaveTheBitsOfTheDefinition) {
    for (const TensorShape& shape :
         {TensorShape{9, 64, 600}, {12, 30, 2600}, {16, 70, 1024}, {17, 40, 1400}, {32, 20, 6100}}) {
        expect_definition(12, shape, GetParam());
    }
}
// One chunk after another; more panels than blocks, more rows than a block's.
TEST_P(TensorItems, OfWholePanelsHaveTheBitsOfTheDefinition) {
    for (const TensorShape& shape : {TensorShape{10, 1100, 20}, {16, 1030, 530}, {31, 30, 512}, {40, 530, 30}}) {
        expect_definition(1, shape, GetParam());
    }
    expect_definition(40, {70, 130, 600}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(InAnyOrderOfThreads, TensorItems, testing::ValuesIn(schedules()),
                         [](const auto& order) { return name_of(order.param); });

// Blocks, and whether memory was taken for sums.
struct Work {
    int64_t num_blocks;
    bool is_divided;
    bool operator==(const Work&) const = default;
};
void PrintTo(const Work& work, std::ostream* out) { *out << work.num_blocks << (work.is_divided ? " divided" : ""); }

Work work_of(int64_t processors, const TensorShape& shape, const char* kernel) {
    simt::Emulator emulator;
    emulator.count_accesses();
    const auto device = make_emulated_device(emulator, {.resident_blocks = processors * kEightWarps});
    TensorCase one(*device, shape);
    const int64_t before = device->counts().allocations;
    one.multiply();
    one.multiply();
    one.expect_bits_of_definition();
    const int64_t taken = device->counts().allocations - before;
    EXPECT_TRUE(taken == 0 || taken == 2);
    return {emulator.access_counts(kernel).num_blocks / 2, taken > 0};
}

// The grid is what the device holds at once, or as many as there are items.
TEST(TensorItems, BlocksContinueWithTheNextItem) {
    EXPECT_EQ(work_of(1, {9, 16 * 8 * 9, 30}, "tensor_items16"), (Work{2, false})) << "nine panels of one chunk";
    EXPECT_EQ(work_of(1, {9, 16 * 8 * 9, 530}, "tensor_items16"), (Work{2, false})) << "four times as many as blocks";
    EXPECT_EQ(work_of(1, {9, 16 * 8 * 3, 530}, "tensor_items16"), (Work{2, true})) << "three panels of two chunks";
    EXPECT_EQ(work_of(12, {32, 16 * 8 * 2, 2000}, "tensor_items32"), (Work{16, true})) << "of four warps";
    EXPECT_EQ(work_of(12, {32, 16, 2000}, "tensor_items32"), (Work{4, true})) << "of one warp";
}

// Weights come once, in whole lines; each bank is asked once.
TEST(TensorItems, ReadWeightsOnceAndBanksOnce) {
    simt::Emulator emulator;
    emulator.count_accesses();
    const auto device = make_emulated_device(emulator, {.resident_blocks = kEightWarps});
    TensorCase one(*device, {32, 256, 1024});
    one.multiply();
    one.expect_bits_of_definition();
    const simt::AccessCounts counts = emulator.access_counts("tensor_items32");
    EXPECT_EQ(counts.num_launches, 1);
    // Both multiply 32 lanes of 16 bytes, four times eight: 512 bytes are four passes.
    EXPECT_LE(counts.shared_passes, 4 * counts.shared_requests);
}

}  // namespace
}  // namespace verbatim::cuda
