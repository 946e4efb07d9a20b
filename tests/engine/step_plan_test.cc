// What a plan's digest covers: contents, all of them, and nothing of how they are kept.
#include "engine/step_plan.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/fields.h"

namespace verbatim {
namespace {

StepPlan plan_with(TokenSeq prompt) {
    StepPlan plan;
    plan.step = 7;
    plan.finished_slots = {SequenceSlot{2}};
    plan.new_sequences.push_back({.slot = SequenceSlot{1}, .request = RequestId{5}, .tokens = std::move(prompt)});
    plan.new_sequences.back().num_prompt_tokens = 3;
    plan.copies = {{BlockId{4}, BlockId{6}, 3}};
    plan.sequences = {{.slot = SequenceSlot{1}, .num_new_tokens = 3, .num_sampled_positions = 1}};
    plan.tokens = {9};
    plan.blocks = {{BlockId{6}, 2}};
    plan.state_writes = {{2, StateIndex{3}}};
    return plan;
}

TEST(StepPlan, AClearedPlanIsAFreshOne) {
    TokenStore store(100);
    StepPlan plan = plan_with(store.store(std::vector<TokenId>{1, 2, 3}));
    plan.clear(8);
    StepPlan fresh;
    fresh.step = 8;
    EXPECT_EQ(plan, fresh);
}

TEST(StepResult, AClearedResultIsAFreshOne) {
    StepResult result{.step = 7, .elapsed_ns = 5, .materialised_through_step = 6};
    result.add(SequenceSlot{1}, std::vector<TokenId>{3, 4});
    result.clear(8);
    EXPECT_EQ(result, StepResult{.step = 8});
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
        [](StepPlan& plan) { plan.finished_slots.push_back(SequenceSlot{3}); },
        [](StepPlan& plan) { plan.new_sequences[0].slot = SequenceSlot{2}; },
        [](StepPlan& plan) { plan.new_sequences[0].request = RequestId{6}; },
        [](StepPlan& plan) { plan.new_sequences[0].tokens = plan.new_sequences[0].tokens.slice(0, 2); },
        [](StepPlan& plan) { plan.new_sequences[0].num_prompt_tokens = 2; },
        [](StepPlan& plan) { plan.new_sequences[0].num_computed_tokens = 1; },
        [](StepPlan& plan) {
            plan.new_sequences[0].blocks = {0, 1};
        },
        [](StepPlan& plan) { plan.new_sequences[0].sampling.temperature = 1; },
        [](StepPlan& plan) { plan.new_sequences[0].sampling.top_k = 1; },
        [](StepPlan& plan) { plan.new_sequences[0].sampling.top_p = 0.5F; },
        [](StepPlan& plan) { plan.new_sequences[0].sampling.repetition_penalty = 2; },
        [](StepPlan& plan) { plan.new_sequences[0].sampling.presence_penalty = 2; },
        [](StepPlan& plan) { plan.new_sequences[0].sampling.frequency_penalty = 2; },
        [](StepPlan& plan) { plan.new_sequences[0].sampling.seed = 2; },
        [](StepPlan& plan) { plan.new_sequences.push_back({}); },
        [](StepPlan& plan) { plan.copies[0].src = BlockId{5}; },
        [](StepPlan& plan) { plan.copies[0].dst = BlockId{7}; },
        [](StepPlan& plan) { plan.copies[0].num_slots = 2; },
        [](StepPlan& plan) { plan.sequences[0].slot = SequenceSlot{3}; },
        [](StepPlan& plan) { plan.sequences[0].num_computed_tokens = 1; },
        [](StepPlan& plan) { plan.sequences[0].num_new_tokens = 2; },
        [](StepPlan& plan) { plan.sequences[0].num_sampled_positions = 2; },
        [](StepPlan& plan) { plan.sequences[0].arithmetic = Arithmetic::kOrdinary; },
        [](StepPlan& plan) { plan.sequences[0].num_state_tokens = 2; },
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

// --- bytes

std::vector<std::byte> bytes_of(const StepPlan& plan) {
    std::vector<std::byte> bytes;
    write_fields(bytes, plan);
    return bytes;
}

StepResult some_result() {
    StepResult result;
    result.clear(7);
    result.elapsed_ns = 12;
    result.materialised_through_step = 6;
    const std::vector<TokenId> tokens{4, 5};
    result.add(SequenceSlot{1}, tokens);
    result.add(SequenceSlot{2}, {}, 3);
    return result;
}

TEST(StepPlan, WhatIsWrittenIsReadAgain) {
    TokenStore store(100);
    StepPlan plan = plan_with(store.store(std::vector<TokenId>{1, 2, 3}));
    plan.new_sequences[0].sampling = {.temperature = 0.5F, .top_k = 3, .seed = 9};
    const std::vector<std::byte> bytes = bytes_of(plan);
    const auto read = read_fields<StepPlan>(bytes, store);
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(*read, plan);
    EXPECT_EQ(read->digest(), plan.digest());
    EXPECT_EQ(to_text(*read), to_text(plan));

    std::vector<std::byte> result_bytes;
    write_fields(result_bytes, some_result());
    EXPECT_EQ(read_fields<StepResult>(result_bytes, store), some_result());
}

TEST(StepPlan, EveryPieceOfItsBytesIsAnErrorAndNoCrash) {
    TokenStore store(100);
    const std::vector<std::byte> bytes = bytes_of(plan_with(store.store(std::vector<TokenId>{1, 2, 3})));
    for (size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(read_fields<StepPlan>(std::span(bytes).first(size), store)) << size;
    }
    std::vector<std::byte> longer = bytes;
    longer.push_back({});
    const auto read = read_fields<StepPlan>(longer, store);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, fmt::format("1 bytes are left after {}", bytes.size()));
    // Any byte may be anything: what comes back says so or is a plan of these bytes.
    for (size_t at = 0; at < bytes.size(); ++at) {
        std::vector<std::byte> changed = bytes;
        changed[at] ^= std::byte{0x80};
        const auto other = read_fields<StepPlan>(changed, store);
        if (other) EXPECT_EQ(bytes_of(*other), changed) << at;
    }
    EXPECT_EQ(store.num_stored_sources(), 0u);
}

TEST(StepPlan, SlicesOutsideTheirListsAreFound) {
    TokenStore store(100);
    StepPlan plan = plan_with(store.store(std::vector<TokenId>{1, 2, 3}));
    EXPECT_TRUE(plan.check_slices());
    plan.sequences[0].appended = {1, 1};
    EXPECT_FALSE(plan.check_slices());
    plan.sequences[0].appended = {0xffffffff, 1};
    EXPECT_FALSE(plan.check_slices());
    plan.sequences[0].appended = {};
    plan.new_sequences[0].blocks = {0, 2};
    EXPECT_FALSE(plan.check_slices());
}

TEST(StepPlan, ItsTextNamesItsFields) {
    TokenStore store(100);
    const StepPlan plan = plan_with(store.store(std::vector<TokenId>{1, 2, 3}));
    const std::string text = to_text(plan);
    EXPECT_EQ(text.find("{step: 7, ends: [2], starts: [{slot: 1, request: 5, tokens: [1, 2, 3], num_prompt_tokens: 3"),
              0u)
        << text;
    EXPECT_EQ(to_text(some_result()),
              "{step: 7, elapsed_ns: 12, materialised_through_step: 6, drawn: [{slot: 1, tokens: {begin: 0, count: 2}, "
              "fault_layer: -1}, {slot: 2, tokens: {begin: 2, count: 0}, fault_layer: 3}], tokens: [4, 5]}");
}

// What a result may not say of a plan.
TEST(StepResult, IsCheckedAgainstItsPlan) {
    StepPlan plan;
    plan.step = 7;
    plan.tokens = {3, 4, 9};
    plan.sequences = {{.slot = SequenceSlot{1}, .num_new_tokens = 3, .num_sampled_positions = 3, .appended = {0, 3}},
                      {.slot = SequenceSlot{2}, .num_new_tokens = 1}};
    const auto told = [&](std::vector<TokenId> tokens, int32_t fault_layer = -1, int32_t slot = 1) {
        StepResult result;
        result.clear(7);
        result.add(SequenceSlot{slot}, tokens, fault_layer);
        const Status status = result.check(plan);
        return status ? std::string() : status.error().message;
    };
    EXPECT_EQ(told({4, 9, 2}), "");
    EXPECT_EQ(told({4, 8}), "");
    EXPECT_EQ(told({5}), "");
    EXPECT_EQ(told({4}, 2), "");
    EXPECT_EQ(told({}, 2), "");
    EXPECT_EQ(told({}), "step 7: slot 1 draws 3 times and is told 0 tokens");
    EXPECT_EQ(told({4, 9, 2}, 1), "step 7: slot 1 draws 3 times and is told 3 tokens");
    EXPECT_EQ(told({5, 9}), "step 7: slot 1 is told token 5 where 4 was drafted, and more");
    EXPECT_EQ(told({4}, -1, 3), "step 7: no tokens for slot 1, which draws");
    StepResult none;
    none.clear(6);
    EXPECT_EQ(none.check(plan).error().message, "result of step 6, plan of step 7");
}

TEST(StepResult, ASequenceIsAsLongAsWhatWasAccepted) {
    const ScheduledSequence window{.num_computed_tokens = 10, .num_new_tokens = 5, .num_sampled_positions = 3};
    const auto length = [&](uint32_t count, int32_t fault = -1) {
        const SampledTokens drawn{.tokens = {0, count}, .fault_layer = fault};
        return length_after(window, &drawn);
    };
    EXPECT_EQ(window.known_end(), 13);
    EXPECT_EQ(length(1), 13);
    EXPECT_EQ(length(3), 15);
    EXPECT_EQ(length(0, 2), 13);
    EXPECT_EQ(length(2, 2), 15);
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
