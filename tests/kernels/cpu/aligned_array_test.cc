#include "kernels/cpu/aligned_array.h"

#include <gtest/gtest.h>

namespace verbatim::cpu {
namespace {

TEST(AlignedArray, WithoutMemoryItThrowsAndIsEmpty) {
    AlignedArray<float> array(5);
    EXPECT_THROW(array.ensure(int64_t{1} << 50), std::bad_alloc);
    EXPECT_EQ(array.size(), 0);
    ASSERT_NE(array.ensure(3), nullptr);
    EXPECT_EQ(array.data()[2], 0.0F);
}

TEST(AlignedArray, FreshMemoryIsZeroAndAlignedWhateverItsSize) {
    for (const int64_t size : {1, 16, 1000, 524'287, 524'288, 1'000'000}) {  // 2 MiB are 524 288 floats
        AlignedArray<float> array(size);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % AlignedArray<float>::kAlignment, 0U);
        EXPECT_EQ(array.data()[0], 0.0F);
        EXPECT_EQ(array.data()[size - 1], 0.0F);
        array.data()[size - 1] = 1.0F;
        EXPECT_EQ(array.ensure(size)[size - 1], 1.0F) << "it did not have to grow";
    }
}

}  // namespace
}  // namespace verbatim::cpu
