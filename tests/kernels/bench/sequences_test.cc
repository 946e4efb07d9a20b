// The sequences that are timed: what attaches, and which tokens they have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "kernels/bench/sequences.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"

namespace verbatim::bench {
namespace {

// What the turns are timed with must really attach.
TEST(BenchSequences, ATurnComputesItsSuffixAloneAndDrawsFromTheSameBits) {
    const reference::Model model = reference::make_random_model(reference::preset("tiny-granite").value(), 1);
    cpu::CpuExecutor executor(model.config, model.weights, {.pools = {.num_blocks = 30, .num_state_rows = 5}});
    BenchSequences sequences(executor, 1);
    sequences.divide({.num_slots = 3, .tokens_per_slot = 60, .num_head_rows = 2});
    const TokenSeq tokens = sequences.fresh_tokens(60);
    sequences.start(1, tokens, 60, sequences.compute_head(0, tokens, 37));
    sequences.start(2, tokens, 60);
    sequences.compute(1, 23, true);
    sequences.compute(2, 60, true);
    EXPECT_GT(sequences.step(), 0);
    EXPECT_EQ(executor.tables().at(SequenceSlot{1}).num_attached_tokens, 37);
    EXPECT_EQ(executor.tables().at(SequenceSlot{2}).num_attached_tokens, 0);
    EXPECT_EQ(sequences.logits_digest(1), sequences.logits_digest(2));
    EXPECT_TRUE(sequences.logits_are_finite(1));
}

// Timing after a long context must find its pages: each a copy in a separate block.
TEST(BenchSequences, ALengthenedHeadRepeatsItsKv) {
    const reference::Model model = reference::make_random_model(reference::preset("tiny-granite").value(), 1);
    cpu::CpuExecutor executor(model.config, model.weights, {.pools = {.num_blocks = 30, .num_state_rows = 5}});
    BenchSequences sequences(executor, 1);
    sequences.divide({.num_slots = 2, .tokens_per_slot = 100, .num_head_rows = 1});
    const BenchHead head = sequences.lengthen(sequences.compute_head(0, sequences.fresh_tokens(32), 32), 75);
    EXPECT_EQ(head.length, 75);
    EXPECT_EQ(head.tokens.size(), 75);
    const BlockRun run{BlockId{0}, 5};
    std::map<std::pair<int, reference::StateKind>, std::vector<uint16_t>> kv;  // by layer and tensor
    ASSERT_TRUE(executor.read_head({.length = 75, .blocks = {&run, 1}, .state = StateIndex{2}},
                                   [&](const reference::HeadPiece& piece) {
                                       if (piece.tensor.per != reference::StatePer::kToken) return;
                                       auto& all = kv[{piece.tensor.layer, piece.tensor.kind}];
                                       const size_t before = all.size();
                                       all.resize(before + piece.bytes.size() / sizeof(uint16_t));
                                       std::memcpy(&all[before], piece.bytes.data(), piece.bytes.size());
                                   }));
    int64_t num_tensors = 0;
    for (const auto& [place, values] : kv) {
        if (values.empty()) continue;
        ++num_tensors;
        const size_t period = values.size() / 75 * 32;
        EXPECT_TRUE(std::equal(values.begin() + static_cast<std::ptrdiff_t>(period), values.end(), values.begin()));
        EXPECT_FALSE(std::equal(values.begin() + 1, values.end(), values.begin()));
    }
    EXPECT_GT(num_tensors, 0);
    TokenSeq longer = head.tokens;
    longer.append(sequences.fresh_tokens(5));
    sequences.start(1, longer, 80, head);
    sequences.compute(1, 5, true);
    sequences.step();
    EXPECT_EQ(executor.tables().at(SequenceSlot{1}).num_attached_tokens, 75);
}

TEST(BenchSequences, NoTwoSequencesHaveTheSameTokens) {
    const reference::Model model = reference::make_random_model(reference::preset("tiny-granite").value(), 1);
    cpu::CpuExecutor executor(model.config, model.weights, {.pools = {.num_blocks = 4, .num_state_rows = 2}});
    BenchSequences sequences(executor, 1);
    const TokenSeq first = sequences.fresh_tokens(64);
    EXPECT_LT(first.common_prefix(sequences.fresh_tokens(64)), 4);
    BenchSequences other_seed(executor, 2);
    EXPECT_LT(first.common_prefix(other_seed.fresh_tokens(64)), 4);
}

}  // namespace
}  // namespace verbatim::bench
