// The matmuls of tensor.sm90 in the emulator against tensor_dot, bit by bit, for shapes that fit no tile.
#include "kernels/cuda/ops/tensor_matmul.h"

#include <gtest/gtest.h>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/cuda/tensor_case.h"

namespace verbatim::cuda {
namespace {

using reference::Values;
using simt::Schedule;

void expect_definition(const TensorShape& shape, Values kind = Values::kNormal, bool uses_warpgroups = false) {
    for (const Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 5);
        const auto device = make_emulated_device(emulator);
        device->use_warpgroups(uses_warpgroups);
        TensorCase one(*device, shape, kind);
        one.multiply();
        one.expect_bits_of_definition();
    }
}

// Chunks beside each other: one, two, three, more than a block has warps.
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
TEST(HopperMatmul, AndTheSecondWitnessHaveTheSameBits) {
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
}

// As a device with many processors runs a batch that fills few large blocks.
TEST(TensorMatvec, MoreRowsAreSeveralBlocks) {
    simt::Emulator emulator(Schedule::kRandom, 5);
    const auto device = make_emulated_device(emulator);
    TensorCase one(*device, {70, 40, 1100});
    const int64_t groups = one.row_pairs / kGroupPairs;
    const auto view = [&](auto* data, int64_t count) {
        return simt::Global<std::remove_reference_t<decltype(*data)>>(emulator, data, count);
    };
    const TensorParameters parameters{view(one.device_pairs.data(), one.device_pairs.count()),
                                      view(one.device_weight.data(), one.device_weight.count()),
                                      simt::Global<const float>(),
                                      false,
                                      3,
                                      groups,
                                      {view(one.device_out.data(), one.device_out.count()), 70, 40, 40}};
    const TensorMatvec32 kernel{{parameters, 4}};
    emulator.launch("tensor_matvec32", {2, 3}, {simt::kWarpSize, TensorMatvec32::kWarps}, [&] { kernel(); });
    one.expect_bits_of_definition();
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
