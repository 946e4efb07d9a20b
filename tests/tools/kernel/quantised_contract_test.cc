// kernels/sandbox/naive/quantised_matmul.h says what the reference computes of a file's blocks.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "engine/base/prng.h"
#include "kernels/sandbox/naive/quantised_matmul.h"
#include "reference/model/block_bytes.h"
#include "reference/model/quantised_blocks.h"
#include "reference/ops/quantised.h"

namespace verbatim::tools {
namespace {

constexpr int64_t kNumRows = 3;
constexpr int64_t kNumOutputs = 5;
constexpr int64_t kNumColumns = 512;

// A matrix in Q8_0 or Q4_K, and the same as the contract's operands.
struct UnpackedMatrix {
    std::vector<std::byte> blocks;
    std::vector<uint32_t> quants;
    std::vector<float> scales;
};

void put_bits(std::vector<uint32_t>& quants, int64_t first_byte, int64_t byte, uint32_t bits) {
    quants[static_cast<size_t>((first_byte + byte) / 4)] |= bits << ((first_byte + byte) % 4 * 8);
}

UnpackedMatrix unpacked(const reference::BlockFormat& format, Prng& prng) {
    const bool has_minima = format.name == "Q4_K";
    const int64_t num_runs = kNumOutputs * kNumColumns / 32;
    const int64_t run_bytes = has_minima ? 16 : 32;
    UnpackedMatrix made;
    made.blocks.resize(static_cast<size_t>(kNumOutputs * format.row_bytes(kNumColumns)));
    made.quants.resize(static_cast<size_t>(num_runs * run_bytes / 4));
    std::vector<float> values(static_cast<size_t>(kNumColumns));
    for (int64_t n = 0; n < kNumOutputs; ++n) {
        for (float& value : values) value = static_cast<float>(prng.below(2001)) / 1000.0F - 1.0F;
        quantise(format, values,
                 std::span(made.blocks)
                     .subspan(static_cast<size_t>(n * format.row_bytes(kNumColumns)),
                              static_cast<size_t>(format.row_bytes(kNumColumns))));
    }
    for (int64_t run = 0; run < num_runs; ++run) {
        if (!has_minima) {
            const std::byte* block = made.blocks.data() + run * 34;
            made.scales.push_back(reference::half_at(block, 0));
            for (int64_t l = 0; l < 32; ++l)
                put_bits(made.quants, run * run_bytes, l, reference::byte_at(block, 2 + l));
            continue;
        }
        const std::byte* block = made.blocks.data() + run / 8 * 144;
        const int64_t j = run % 8;
        const reference::ScaleAndMin numbers = reference::scale_and_min(block, j);
        made.scales.push_back(numbers.scale);
        made.scales.push_back(numbers.min);
        for (int64_t l = 0; l < 32; ++l) {
            const uint32_t q = reference::byte_at(block, 16 + j / 2 * 32 + l) >> (j % 2 * 4) & 15U;
            put_bits(made.quants, run * run_bytes, l % 16, q << (l / 16 * 4));
        }
    }
    return made;
}

TEST(QuantisedContract, IsTheReferencesMatmulOfQ8AndQ4K) {
    for (const std::string_view name : {"Q8_0", "Q4_K"}) {
        const reference::BlockFormat& format = *reference::find_block_format(name);
        Prng prng(7);
        UnpackedMatrix matrix = unpacked(format, prng);
        std::vector<float> x(static_cast<size_t>(kNumRows * kNumColumns));
        for (float& value : x) value = static_cast<float>(prng.below(4001)) / 1000.0F - 2.0F;
        std::vector<float> bias = {0.5F, -1.0F, 0.0F, 3.25F, 1e-3F};
        std::vector<float> wanted(static_cast<size_t>(kNumRows * kNumOutputs));
        std::vector<float> got(wanted.size());
        reference::quantised_matmul(
            {.x = reference::dense_rows(static_cast<const float*>(x.data()), kNumRows, kNumColumns),
             .weight = {nullptr, kNumOutputs, kNumColumns, &format, matrix.blocks.data()},
             .bias = bias.data(),
             .in_multiplier = 0.75F,
             .out = reference::dense_rows(wanted.data(), kNumRows, kNumOutputs)});
        verbatim_call call{};
        call.num_rows = kNumRows;
        const int64_t sizes[] = {kNumRows, kNumOutputs, kNumColumns / 32, name == "Q8_0" ? 8 : 4,
                                 name == "Q8_0" ? 1 : 2};
        std::copy(std::begin(sizes), std::end(sizes), call.sizes);
        call.parameters[kInMultiplier] = 0.75F;
        const auto place = [&call](int operand, void* data, int64_t stride) {
            call.operands[operand].data = data;
            call.operands[operand].stride = stride;
        };
        place(kX, x.data(), kNumColumns);
        place(kQuants, matrix.quants.data(), 0);
        place(kScales, matrix.scales.data(), 0);
        place(kBias, bias.data(), 0);
        place(kOut, got.data(), kNumOutputs);
        ASSERT_EQ(quantised_matmul.reference(&call), 0);
        for (size_t i = 0; i < got.size(); ++i)
            EXPECT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted[i])) << name << ' ' << i;
    }
}

}  // namespace
}  // namespace verbatim::tools
