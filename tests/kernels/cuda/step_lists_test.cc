// What a step's lists weigh: they go up anew with every step (docs/cuda.md, A step).
#include "kernels/cuda/step_lists.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/emulated_device.h"
#include "reference/model/model_config.h"
#include "reference/model/presets.h"

namespace verbatim::cuda {
namespace {

struct DecodingStep {
    int32_t num_sequences = 0;
    int32_t context = 0;  // tokens of each, the new one among them
    int32_t block_size = 16;
};

// Of a step in which every sequence draws one token.
int64_t upload_bytes(const DecodingStep& decoding) {
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator);
    const auto config = *reference::preset("granite-4.0-h-micro");
    StateLog log(*device, config, 0);
    StepLists lists(*device, config.vocab_size, 4, true);

    const int32_t blocks_each = (decoding.context + decoding.block_size - 1) / decoding.block_size;
    std::vector<BlockId> blocks(static_cast<size_t>(decoding.num_sequences) * static_cast<size_t>(blocks_each));
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = BlockId{static_cast<int32_t>(i)};
    std::vector<PooledSequence> sequences;
    std::vector<reference::WalkSequence> parts;
    std::vector<int32_t> logit_rows;
    for (int32_t i = 0; i < decoding.num_sequences; ++i) {
        sequences.push_back({.slot = SequenceSlot{i},
                             .blocks = std::span(blocks).subspan(static_cast<size_t>(i) * blocks_each, blocks_each),
                             .state_src = StateIndex{i},
                             .state_dst = StateIndex{i},
                             .num_sampled_positions = 1});
        parts.push_back({.first_row = i, .num_rows = 1, .first_position = decoding.context - 1});
        logit_rows.push_back(i);
    }
    const std::vector<TokenId> tokens(sequences.size(), 1);
    const std::vector<reference::SamplingArgs> draws(sequences.size());
    lists.describe({.batch = {.tokens = tokens, .sequences = parts, .logit_rows = logit_rows},
                    .sequences = sequences,
                    .draws = draws},
                   log, false);
    lists.upload();
    return lists.upload_bytes();
}

TEST(CudaStepLists, ADecodeStepOf256SequencesOf32KTokensUploadsTheDocumentedBytes) {
    const int64_t tables = 256 * (32'768 / 16) * int64_t{sizeof(int32_t)};
    EXPECT_EQ(tables, 2'097'152);
    EXPECT_EQ(upload_bytes({.num_sequences = 256, .context = 32'768}), tables + 51'328);
    EXPECT_EQ(upload_bytes({.num_sequences = 256, .context = 16}), 256 * int64_t{sizeof(int32_t)} + 51'328);
}

// Attention reads the block behind an entry of a table.
TEST(CudaStepLists, ABlocksKvIsManyTimesItsTableEntry) {
    const auto times = [](const char* preset) {
        return 16 * reference::geometry(*reference::preset(preset)).kv_bytes_per_token / int64_t{sizeof(int32_t)};
    };
    EXPECT_EQ(times("granite-4.0-h-350m"), 16'384);
    EXPECT_EQ(times("granite-4.0-h-micro"), 32'768);
    EXPECT_EQ(times("llama-3.2-1b"), 131'072);
}

}  // namespace
}  // namespace verbatim::cuda
