#include "reference/model/state_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "reference/model/presets.h"

namespace verbatim::reference {
namespace {

using ::testing::ElementsAre;

StateTensor tensor_of(int32_t layer, StateKind kind, StateDtype dtype, std::vector<int64_t> shape) {
    return {layer, kind, StatePer::kSequence, dtype, std::move(shape)};
}

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
    return std::as_bytes(std::span(values));
}

TEST(StateTensors, AreThoseOfEachLayerInOrder) {
    // tiny-granite: one layer is attention with 2 KV heads of 16, the others Mamba with 6 heads of 16, d_state 16, 2
    // groups.
    const StateTensors tensors = state_tensors(*preset("tiny-granite"));
    ASSERT_EQ(tensors.size(), 8u);
    const auto mamba = [](int32_t layer, size_t which) {
        return which == 0 ? tensor_of(layer, StateKind::kSsm, StateDtype::kFloat32, {6, 16, 16})
                          : tensor_of(layer, StateKind::kConv, StateDtype::kFloat32, {3, 160});
    };
    size_t place = 0;
    for (int32_t layer = 0; layer < 4; ++layer) {
        const bool attends = !tensors.has(layer, StateKind::kSsm);
        for (const size_t which : {0, 1}) {
            const StateTensor kv{
                layer, which == 0 ? StateKind::kK : StateKind::kV, StatePer::kToken, StateDtype::kBf16, {2, 16}};
            const StateTensor& wanted = attends ? kv : mamba(layer, which);
            EXPECT_EQ(tensors[place], wanted) << layer;
            EXPECT_EQ(tensors.place(layer, wanted.kind), place++);
        }
    }
    EXPECT_EQ(tensors.num_bytes(StatePer::kToken), 2 * 2 * 16 * 2);
    EXPECT_EQ(tensors.num_bytes(StatePer::kSequence), 3 * 4 * (6 * 16 * 16 + 3 * 160));
}

TEST(StateTensors, AModelHasWhatItsLayersHave) {
    EXPECT_FALSE(state_tensors(*preset("tiny-llama")).has_any(StatePer::kSequence));
    EXPECT_TRUE(state_tensors(*preset("tiny-llama")).has_any(StatePer::kToken));
    EXPECT_FALSE(state_tensors(*preset("tiny-mamba2")).has_any(StatePer::kToken));
    EXPECT_FALSE(state_tensors({}).has_any(StatePer::kSequence));
    EXPECT_FALSE(state_tensors({}).has(0, StateKind::kK));
}

TEST(StateTensors, ARowAlignsEveryTensor) {
    const StateTensors tensors({tensor_of(1, StateKind::kSsm, StateDtype::kInt32, {3, 5}),
                                {1, StateKind::kK, StatePer::kToken, StateDtype::kBf16, {7}},
                                tensor_of(4, StateKind::kSsm, StateDtype::kBf16, {32}),
                                tensor_of(4, StateKind::kConv, StateDtype::kFloat32, {17})});
    const StateRowLayout layout = row_layout(tensors, 64);
    EXPECT_THAT(layout.offsets, ElementsAre(0, -1, 64, 128));
    EXPECT_EQ(layout.row_bytes, 256);
    EXPECT_THAT(row_layout(tensors, 1).offsets, ElementsAre(0, -1, 60, 124));
    EXPECT_EQ(tensors.place(4, StateKind::kConv), 3u);
    EXPECT_FALSE(tensors.has(2, StateKind::kSsm));
    EXPECT_FALSE(tensors.has(5, StateKind::kSsm));
}

TEST(StateTensors, ElementsAreReadByTheirDtype) {
    const std::vector<float> floats = {1.5F, -0.0F};
    const std::vector<uint16_t> halves = {0x3FC0, 0xC000};
    const std::vector<int32_t> integers = {7, std::numeric_limits<int32_t>::min()};
    EXPECT_EQ(element(StateDtype::kFloat32, bytes_of(floats), 0), 1.5);
    EXPECT_TRUE(std::signbit(element(StateDtype::kFloat32, bytes_of(floats), 1)));
    EXPECT_EQ(element(StateDtype::kBf16, bytes_of(halves), 0), 1.5);
    EXPECT_EQ(element(StateDtype::kBf16, bytes_of(halves), 1), -2.0);
    EXPECT_EQ(element(StateDtype::kInt32, bytes_of(integers), 1), -2147483648.0);
}

TEST(StateTensors, OnlyRealNumbersCanBeInfinite) {
    const std::vector<float> floats = {0.0F, std::numeric_limits<float>::infinity()};
    const std::vector<uint16_t> halves = {0x7F7F, 0x7FC0};
    const std::vector<int32_t> integers = {0x7F800000};
    EXPECT_FALSE(is_finite(StateDtype::kFloat32, bytes_of(floats)));
    EXPECT_TRUE(is_finite(StateDtype::kFloat32, bytes_of(floats).first(4)));
    EXPECT_FALSE(is_finite(StateDtype::kBf16, bytes_of(halves)));
    EXPECT_TRUE(is_finite(StateDtype::kBf16, bytes_of(halves).first(2)));
    EXPECT_TRUE(is_finite(StateDtype::kInt32, bytes_of(integers)));
}

TEST(StateTensorsDeath, LayersAscendAndHaveAKindOnce) {
    const auto list = [](int32_t first, int32_t second) {
        return StateTensors({tensor_of(first, StateKind::kSsm, StateDtype::kFloat32, {1}),
                             tensor_of(second, StateKind::kSsm, StateDtype::kFloat32, {1})});
    };
    EXPECT_DEATH(list(2, 1), "layer 1 after layer 2");
    EXPECT_DEATH(list(2, 2), "layer 2 has ssm twice");
    EXPECT_DEATH((void)list(1, 2).place(1, StateKind::kV), "layer 1 has no v");
}

}  // namespace
}  // namespace verbatim::reference
