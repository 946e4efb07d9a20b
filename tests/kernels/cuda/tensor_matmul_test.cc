// The matmuls of tensor.sm90 in the emulator against tensor_dot, bit by bit, for shapes that fit no tile.
#include "kernels/cuda/ops/tensor_matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/ops/hopper_matmul.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/cuda/tensor_case.h"

namespace verbatim::cuda {
namespace {

using reference::Values;
using simt::Schedule;

void expect_definition(const TensorShape& shape, Values kind = Values::kNormal, bool uses_warpgroups = false) {
    std::vector<Schedule> orders = schedules();
    if (uses_warpgroups) orders.push_back(Schedule::kLaneBehind);
    for (const Schedule schedule : orders) {
        simt::Emulator emulator(schedule, 5);
        const auto device = make_emulated_device(emulator);
        device->use_warpgroups(uses_warpgroups);
        TensorCase one(*device, shape, kind);
        one.multiply();
        one.expect_bits_of_definition();
    }
}

// Chunks in parallel: one, two, three, more than a block has warps.
TEST(TensorMatvec, HasTheBitsOfTheDefinitionForAnyShape) {
    for (const TensorShape& shape : {TensorShape{1, 1, 1},
                                     {1, 70, 512},
                                     {3, 33, 1025},
                                     {8, 130, 31},
                                     {2, 20, 4700},
                                     {9, 47, 1090},
                                     {16, 16, 64},
                                     {17, 50, 1537},
                                     {32, 100, 40}}) {
        expect_definition(shape);
    }
    for (const Values kind : {Values::kTiny, Values::kHuge, Values::kCancelling}) expect_definition({5, 40, 700}, kind);
}

// Parts of warps' tiles, of blocks, of stages; more stages than are under way at once; two chunks and a bit.
TEST(TensorMatmul, HasTheBitsOfTheDefinitionForAnyShape) {
    for (const TensorShape& shape :
         {TensorShape{33, 1, 1}, {40, 50, 1090}, {65, 100, 64}, {129, 193, 100}, {200, 66, 257}}) {
        expect_definition(shape);
    }
    for (const Values kind : {Values::kTiny, Values::kHuge, Values::kCancelling})
        expect_definition({34, 20, 530}, kind);
}

// On warpgroups: parts of blocks in both directions, more stages than are under way at once, two chunks and a bit.
TEST(HopperMatmul, HasTheBitsOfTheDefinitionForAnyShape) {
    for (const TensorShape& shape : {TensorShape{33, 1, 1}, {40, 50, 1090}, {65, 100, 64}, {193, 130, 100}}) {
        expect_definition(shape, Values::kNormal, true);
    }
    for (const Values kind : {Values::kTiny, Values::kHuge, Values::kCancelling}) {
        expect_definition({34, 20, 530}, kind, true);
    }
}

// Launch by launch: which of the two has run.
TEST(HopperMatmul, AndTheNaiveKernelHaveTheSameBits) {
    simt::Emulator emulator(Schedule::kRandom, 5);
    emulator.count_accesses();
    const auto device = make_emulated_device(emulator);
    TensorCase one(*device, {70, 150, 1100});
    one.multiply();
    const std::vector<float> on_warpgroups = one.computed();
    device->use_warpgroups(false);
    one.multiply();
    EXPECT_EQ(emulator.access_counts("hopper_matmul").num_launches, 1);
    EXPECT_EQ(emulator.access_counts("tensor_matmul").num_launches, 1);
    const std::vector<float> by_mma = one.computed();
    for (size_t i = 0; i < by_mma.size(); ++i) {
        ASSERT_EQ(reference::bits_from_float(on_warpgroups[i]), reference::bits_from_float(by_mma[i])) << i;
    }
    // Weights come in whole sectors, once for all rows; no bank is asked twice for them.
    const simt::AccessCounts counts = emulator.access_counts("hopper_matmul");
    EXPECT_EQ(counts.shared_passes, 4 * counts.shared_requests);
    EXPECT_EQ(counts.shared_least_passes, counts.shared_passes);
}

// Whichever blocks a device runs side by side: what they read fits L2. Each block of outputs and rows is there once.
TEST(HopperMatmul, ConcurrentBlocksShareTheirReads) {
    constexpr int kProcessors = 132;
    constexpr double kMegabytes = 8192 * 2 / 1e6;  // of an output's weights, or a row
    for (const auto& [outputs, rows] : {std::pair{64, 43}, {67, 43}, {12, 1}, {5, 7}, {1, 30}}) {
        std::set<std::pair<int64_t, int64_t>> all;
        for (int first = 0; first < outputs * rows; first += kProcessors) {
            std::set<int64_t> tiles, first_rows;
            for (int i = first; i < std::min(first + kProcessors, outputs * rows); ++i) {
                const HopperMatmul::Place place = HopperMatmul::place_of(i, outputs, rows);
                all.emplace(place.first_tile, place.first_row);
                tiles.insert(place.first_tile);
                first_rows.insert(place.first_row);
            }
            const auto num_read = static_cast<double>(tiles.size() * 128 + first_rows.size() * 192);
            if (outputs >= 64) EXPECT_LT(num_read * kMegabytes, 90.0) << outputs << " x " << rows << " from " << first;
            if (outputs == 64 && first == 0) EXPECT_LT(num_read * kMegabytes, 65.0);
        }
        EXPECT_EQ(std::ssize(all), outputs * rows);
        EXPECT_EQ(all.rbegin()->first, (outputs - 1) * HopperMatmul::kBlockTiles);
    }
}

// In any order, so within what cutting at every step may lose: half a unit in 2^24 of the terms' magnitudes per group,
// at most.
TEST(TensorFastMatmul, IsNearTheExactDots) {
    for (const TensorShape& shape : {TensorShape{2, 40, 1500}, {33, 1, 1}, {70, 260, 1090}, {129, 30, 600}}) {
        for (const Schedule schedule : {Schedule::kReverse, Schedule::kRandom}) {
            simt::Emulator emulator(schedule, 5);
            const auto device = make_emulated_device(emulator);
            device->use_warpgroups(schedule == Schedule::kRandom);
            TensorCase one(*device, shape);
            one.multiply(reference::Profile::kFast);
            const Status done = device->synchronize();
            ASSERT_TRUE(done) << done.error().message;
            const std::vector<float> got = one.computed();
            const std::vector<float> want = one.defined(reference::Profile::kExact);
            const auto k = static_cast<double>(shape.num_k);
            for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], k * (k / 16 + 1) * 0x1p-24) << i;
        }
    }
}

TEST(Fragments, HoldEveryWeightWhereMmaTakesIt) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{16, 16}, {17, 5}, {40, 33}}) {
        const auto weight = reference::draw_bf16(rows * cols, 7);
        reference::WorkerPool threads(2);
        const auto words = pack_fragments({weight.data(), rows, cols}, threads);
        const int64_t groups = (cols + 15) / 16;
        ASSERT_EQ(std::ssize(words), (rows + 15) / 16 * groups * 128);
        for (int64_t i = 0; i < std::ssize(words); ++i) {
            const int64_t lane = i / 4 % 32;
            const int64_t row = i / 128 / groups * 16 + lane / 4 + i % 2 * 8;
            const int64_t first = i / 128 % groups * 16 + lane % 4 * 2 + i % 4 / 2 * 8;
            for (int64_t k = first; k < first + 2; ++k) {
                const uint16_t want = row < rows && k < cols ? weight[row * cols + k] : uint16_t{0};
                ASSERT_EQ(static_cast<uint16_t>(words[i] >> (k % 2 * 16)), want) << row << ", " << k;
            }
        }
    }
}

}  // namespace
}  // namespace verbatim::cuda
