// What a plan's digest covers: contents, all of them, and nothing of how they are kept.
#include "engine/step_plan.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace verbatim {
namespace {

StepPlan plan_with(TokenSeq prompt) {
    StepPlan plan;
    plan.step = 7;
    plan.ends = {SequenceSlot{2}};
    plan.starts.push_back({.slot = SequenceSlot{1}, .request = RequestId{5}, .tokens = std::move(prompt)});
    plan.starts.back().num_prompt_tokens = 3;
    plan.copies = {{BlockId{4}, BlockId{6}, 3}};
    plan.sequences = {{.slot = SequenceSlot{1}, .num_new_tokens = 3, .samples = true}};
    plan.tokens = {9};
    plan.blocks = {{BlockId{6}, 2}};
    plan.state_writes = {{2, StateIndex{3}}};
    return plan;
}

TEST(StepPlan, TheDigestCoversTokensAndNotThePiecesThatTheyLieIn) {
    TokenStore store(100);
    const TokenSeq whole = store.store(std::vector<TokenId>{1, 2, 3});
    TokenSeq pieces = store.store(std::vector<TokenId>{1});
    pieces.append(store.store(std::vector<TokenId>{2, 3}));
    const TokenSeq other = store.store(std::vector<TokenId>{1, 2, 4});
    EXPECT_EQ(plan_with(whole).digest(), plan_with(pieces).digest());
    EXPECT_NE(plan_with(whole).digest(), plan_with(other).digest());
}

TEST(StepPlan, EveryFieldIsInTheDigest) {
    TokenStore store(100);
    const TokenSeq prompt = store.store(std::vector<TokenId>{1, 2, 3});
    const std::vector<std::function<void(StepPlan&)>> changes = {
        [](StepPlan& plan) { plan.step = 8; },
        [](StepPlan& plan) { plan.ends.push_back(SequenceSlot{3}); },
        [](StepPlan& plan) { plan.starts[0].slot = SequenceSlot{2}; },
        [](StepPlan& plan) { plan.starts[0].request = RequestId{6}; },
        [](StepPlan& plan) { plan.starts[0].tokens = plan.starts[0].tokens.slice(0, 2); },
        [](StepPlan& plan) { plan.starts[0].num_prompt_tokens = 2; },
        [](StepPlan& plan) { plan.starts[0].num_computed_tokens = 1; },
        [](StepPlan& plan) {
            plan.starts[0].blocks = {0, 1};
        },
        [](StepPlan& plan) { plan.starts[0].sampling.temperature = 1; },
        [](StepPlan& plan) { plan.starts[0].sampling.top_k = 1; },
        [](StepPlan& plan) { plan.starts[0].sampling.top_p = 0.5F; },
        [](StepPlan& plan) { plan.starts[0].sampling.repetition_penalty = 2; },
        [](StepPlan& plan) { plan.starts[0].sampling.presence_penalty = 2; },
        [](StepPlan& plan) { plan.starts[0].sampling.frequency_penalty = 2; },
        [](StepPlan& plan) { plan.starts[0].sampling.seed = 2; },
        [](StepPlan& plan) { plan.starts.push_back({}); },
        [](StepPlan& plan) { plan.copies[0].src = BlockId{5}; },
        [](StepPlan& plan) { plan.copies[0].dst = BlockId{7}; },
        [](StepPlan& plan) { plan.copies[0].num_slots = 2; },
        [](StepPlan& plan) { plan.sequences[0].slot = SequenceSlot{3}; },
        [](StepPlan& plan) { plan.sequences[0].num_computed_tokens = 1; },
        [](StepPlan& plan) { plan.sequences[0].num_new_tokens = 2; },
        [](StepPlan& plan) { plan.sequences[0].samples = false; },
        [](StepPlan& plan) { plan.sequences[0].state_src = StateIndex{1}; },
        [](StepPlan& plan) { plan.sequences[0].state_dst = StateIndex{1}; },
        [](StepPlan& plan) {
            plan.sequences[0].appended = {0, 1};
        },
        [](StepPlan& plan) {
            plan.sequences[0].new_blocks = {0, 1};
        },
        [](StepPlan& plan) {
            plan.sequences[0].state_writes = {0, 1};
        },
        [](StepPlan& plan) { plan.tokens[0] = 8; },
        [](StepPlan& plan) { plan.blocks[0].first = BlockId{5}; },
        [](StepPlan& plan) { plan.blocks[0].count = 1; },
        [](StepPlan& plan) { plan.state_writes[0].length = 3; },
        [](StepPlan& plan) { plan.state_writes[0].dst = StateIndex{2}; },
    };
    const Digest unchanged = plan_with(prompt).digest();
    for (size_t i = 0; i < changes.size(); ++i) {
        StepPlan plan = plan_with(prompt);
        changes[i](plan);
        EXPECT_NE(plan.digest(), unchanged) << "change " << i;
    }
}

// What is fed value by value is what is fed at once, wherever the digester's own buffer ends.
TEST(Digester, TheDigestDependsOnTheBytesAlone) {
    std::vector<uint64_t> values(300);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = i * 0x9e3779b97f4a7c15u;
        Digester one_by_one;
        for (size_t k = 0; k <= i; ++k) one_by_one.add(values[k]);
        Digester at_once;
        at_once.bytes(values.data(), (i + 1) * sizeof values[0]);
        EXPECT_EQ(one_by_one.digest(), at_once.digest()) << i;
        EXPECT_EQ(one_by_one.digest(), at_once.digest()) << "asked twice";
    }
}

}  // namespace
}  // namespace verbatim
