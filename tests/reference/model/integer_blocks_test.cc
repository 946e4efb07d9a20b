#include "reference/model/integer_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "tests/support/random_blocks.h"

namespace verbatim::reference {
namespace {

class IntegerBlocks : public testing::TestWithParam<BlockFormat> {};

TEST_P(IntegerBlocks, MakeTheValuesOfTheirTypeBitForBit) {
    const IntegerFormat& format = *find_integer_format(GetParam());
    ASSERT_EQ(format.num_weights, GetParam().num_weights);
    std::mt19937_64 random(7);
    const auto bytes = tests::random_blocks(GetParam(), 1, int64_t{200} * format.num_weights, random);
    std::vector<float> wanted(static_cast<size_t>(format.num_weights));
    for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(GetParam().num_bytes)) {
        GetParam().dequantise(&bytes[at], wanted.data());
        IntegerBlock block;
        format.read(&bytes[at], block);
        for (int32_t k = 0; k < format.num_weights; ++k) {
            const int32_t j = k / format.run_weights;
            float value = block.scale * static_cast<float>(block.scales[j]) * static_cast<float>(block.quants[k]);
            if (format.has_minima) value += block.offset * static_cast<float>(block.minima[j]);
            ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(wanted[k])) << at << " " << k;
            ASSERT_GE(block.quants[k] + format.zero, 0);
            ASSERT_LT(block.quants[k] + format.zero, format.levels);
            if (format.has_scales && format.has_minima) ASSERT_LE(block.minima[j], 63);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, IntegerBlocks, testing::ValuesIn(tests::integer_formats()),
                         [](const auto& info) { return std::string(info.param.name); });

// 12 of GGUF, which llama.cpp multiplies with int8, and the integers of quantised checkpoints.
TEST(IntegerFormats, AreThoseWhoseWeightsAreIntegersTimesAScale) {
    EXPECT_EQ(tests::integer_formats().size(), 12u + 3u);
    for (const BlockFormat* other : {find_block_format("MXFP4"), &kScaledFp8, &kScaledFp4, &kOrderedIntegers})
        EXPECT_EQ(find_integer_format(*other), nullptr) << other->name;
    for (const BlockFormat* format : {&kScaledInt8, &kScaledInt4, &kScaledInt4Zero})
        EXPECT_EQ(find_integer_format(*format)->sharing, Int8Sharing::kRow) << format->name;
}

}  // namespace
}  // namespace verbatim::reference
