#include "reference/model/quantised_blocks.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>

#include "engine/base/prng.h"
#include "files/mapped_file.h"
#include "reference/loader/safetensors.h"

namespace verbatim::reference {
namespace {

// tests/data/gguf/blocks.safetensors, made by tools/model/make_block_golden.py with gguf-py.
class BlockGoldens {
public:
    BlockGoldens()
        : file_(*MappedFile::open(VERBATIM_SOURCE_DIR "/tests/data/gguf/blocks.safetensors")),
          tensors_(*parse_safetensors(file_.bytes(), "blocks.safetensors")) {}

    [[nodiscard]] std::span<const std::byte> bytes(std::string_view format, std::string_view what) const {
        for (const TensorEntry& tensor : tensors_)
            if (tensor.name == fmt::format("{}.{}", format, what)) return tensor.bytes;
        return {};
    }
    template <typename T>
    [[nodiscard]] std::vector<T> values(std::string_view format, std::string_view what) const {
        const auto from = bytes(format, what);
        std::vector<T> values(from.size() / sizeof(T));
        std::memcpy(values.data(), from.data(), from.size());
        return values;
    }

private:
    MappedFile file_;
    std::vector<TensorEntry> tensors_;
};

class BlockFormats : public testing::TestWithParam<BlockFormat> {
protected:
    static std::vector<float> dequantised(std::span<const std::byte> blocks) {
        const BlockFormat& format = GetParam();
        std::vector<float> values(blocks.size() / format.num_bytes * format.num_weights);
        dequantise(format, blocks, values);
        return values;
    }
    BlockGoldens goldens_;
};

TEST_P(BlockFormats, ValuesAreThoseOfGgufPyBitForBit) {
    const std::vector<float> got = dequantised(goldens_.bytes(GetParam().name, "blocks"));
    const auto wanted = goldens_.values<uint32_t>(GetParam().name, "values");
    ASSERT_EQ(got.size(), wanted.size());
    ASSERT_GE(got.size(), 20u);
    for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(std::bit_cast<float>(wanted[i])))
            EXPECT_TRUE(std::isnan(got[i])) << i;
        else
            ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), wanted[i]) << "weight " << i << ": " << got[i];
    }
}

TEST_P(BlockFormats, EveryValueOfEveryByteMeansWhatItMeansToGgufPy) {
    const BlockFormat& format = GetParam();
    // make_block_golden.py's every_byte(): halves are 0x2345.
    constexpr std::array<std::byte, 2> kHalf = {std::byte{0x45}, std::byte{0x23}};
    const std::map<std::string_view, std::vector<int64_t>> halves = {
        {"Q4_0", {0}},   {"Q4_1", {0, 2}}, {"Q5_0", {0}},    {"Q5_1", {0, 2}}, {"Q8_0", {0}},   {"Q2_K", {80, 82}},
        {"Q3_K", {108}}, {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}}, {"Q6_K", {208}},  {"IQ4_NL", {0}}, {"IQ4_XS", {0}}};
    std::vector<std::byte> blocks;
    for (int32_t v = 0; v < 256; ++v) {
        for (int32_t i = 0; i < format.num_bytes; ++i) blocks.push_back(static_cast<std::byte>(v + 37 * i));
        const auto found = halves.find(format.name);
        if (found == halves.end()) continue;
        for (const int64_t offset : found->second) std::ranges::copy(kHalf, blocks.end() - format.num_bytes + offset);
    }
    uint64_t digest = 0xCBF29CE484222325;
    for (const float value : dequantised(blocks)) digest = (digest ^ std::bit_cast<uint32_t>(value)) * 0x100000001B3;
    EXPECT_EQ(digest, goldens_.values<uint64_t>(format.name, "digest").at(0));
}

TEST_P(BlockFormats, AreFoundByNumberAndByName) {
    EXPECT_EQ(find_block_format(GetParam().ggml_type)->name, GetParam().name);
    EXPECT_EQ(find_block_format(GetParam().name)->ggml_type, GetParam().ggml_type);
}

INSTANTIATE_TEST_SUITE_P(All, BlockFormats, testing::ValuesIn(block_formats().begin(), block_formats().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(QuantisedBlocks, TypesWithoutAFormulaAreNotFound) {
    EXPECT_EQ(find_block_format(uint32_t{4}), nullptr);   // Q4_2, which ggml removed
    EXPECT_EQ(find_block_format(uint32_t{16}), nullptr);  // IQ2_XXS
    EXPECT_EQ(find_block_format("q4_k"), nullptr);
}

TEST(QuantisedBlocks, BlocksMadeHereAreThoseOfGgmlsReferenceQuantiser) {
    const BlockGoldens goldens;
    int num_quantisers = 0;
    for (const BlockFormat& format : block_formats()) {
        if (format.quantise == nullptr) continue;
        ++num_quantisers;
        const auto from = goldens.values<float>(format.name, "from");
        const auto wanted = goldens.bytes(format.name, "quantised");
        ASSERT_GE(from.size(), 512u) << format.name;
        std::vector<std::byte> got(wanted.size());
        quantise(format, from, got);
        EXPECT_TRUE(std::ranges::equal(got, wanted)) << format.name;
    }
    EXPECT_EQ(num_quantisers, 5);
}

TEST(QuantisedBlocks, TinyAndHugeValuesAreQuantisedWithoutLeavingTheBlock) {
    for (const float scale : {0x1p-149F, 0x1p-130F, 0x1p120F}) {
        std::vector<float> values(256);
        for (size_t i = 0; i < values.size(); ++i) values[i] = scale * (i % 2 == 0 ? 1.0F : -1.0F);
        values[7] = 0.0F;
        for (const std::string_view name : {"Q8_0", "Q4_0", "Q5_0", "Q4_K", "Q6_K"}) {
            const BlockFormat& format = *find_block_format(name);
            std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(256)));
            quantise(format, values, blocks);
            std::vector<float> back(256);
            dequantise(format, blocks, back);
        }
    }
}

// Errors are those of rounding to so many steps: 0.29 of a step in the mean, more where a run's scale was cut to its
// six or eight bits.
RC_GTEST_PROP(KQuantisers, ValuesOfABlockComeBack, (uint64_t seed)) {
    Prng prng(seed);
    const std::string_view name = prng.below(2) == 0 ? "Q4_K" : "Q6_K";
    const BlockFormat& format = *find_block_format(name);
    const float scale = std::ldexp(1.0F, static_cast<int>(prng.below(20)) - 12);
    std::vector<float> values(256);
    for (float& value : values) value = scale * (static_cast<float>(prng.below(2001)) / 1000.0F - 1.0F);
    std::vector<std::byte> block(static_cast<size_t>(format.num_bytes));
    quantise(format, values, block);
    std::vector<float> back(256);
    dequantise(format, block, back);
    const float step = 2 * scale / (name == "Q4_K" ? 15 : 63);
    float squares = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        RC_ASSERT(std::abs(back[i] - values[i]) <= 1.5F * step);
        squares += (back[i] - values[i]) * (back[i] - values[i]);
    }
    RC_ASSERT(std::sqrt(squares / 256) <= 0.4F * step);
}

}  // namespace
}  // namespace verbatim::reference
