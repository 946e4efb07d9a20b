#include "reference/lockstep_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu/cpu_executor.h"
#include "reference/reference_executor.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::reference {
namespace {

using ::testing::HasSubstr;
using tests::SceneModel;
using tests::SequenceSpec;

constexpr uint64_t kSeed = 12;

ModelConfig small_granite() { return draw_small_config(Architecture::kGraniteHybrid, kSeed); }

// Two models with the same weights, the second to be changed.
struct Pair {
    explicit Pair(const ModelConfig& config = small_granite()) : first(config, kSeed), second(config, kSeed) {}

    // Runs a prefill of 20 tokens and two more steps on both; returns what the last plan said.
    Status run(LockstepOptions options = {}, int32_t num_threads = 1) {
        primary.emplace(first.model.config, first.model.weights, num_threads);
        secondary.emplace(second.model.config, second.model.weights);
        lockstep.emplace(*primary, *secondary, options);
        tests::PlanBuilder plans(first.model.config.vocab_size);
        auto tokens = first.tokens(20, 1);
        plans.next()
            .start({.slot = 0, .tokens = tokens})
            .compute({.slot = 0, .num_new_tokens = 15, .state_dst = 0, .state_writes = {{7, StateIndex{1}}}});
        RETURN_IF_ERROR(lockstep->execute(plans.plan(), result));
        plans.next().compute({.slot = 0, .num_computed_tokens = 15, .num_new_tokens = 5, .num_sampled_positions = 1});
        RETURN_IF_ERROR(lockstep->execute(plans.plan(), result));
        plans.next().compute({.slot = 0,
                              .num_computed_tokens = 20,
                              .num_new_tokens = 1,
                              .num_sampled_positions = 1,
                              .appended = {token_of(result, 0)}});
        return lockstep->execute(plans.plan(), result);
    }
    [[nodiscard]] int32_t mamba_layer() const {
        const auto& layers = first.model.config.layers;
        for (size_t i = 0; i < layers.size(); ++i) {
            if (layers[i].mamba) return static_cast<int32_t>(i);
        }
        return -1;
    }

    SceneModel first, second;
    std::optional<ReferenceExecutor> primary, secondary;
    std::optional<LockstepExecutor> lockstep;
    StepResult result;
};

TEST(LockstepExecutor, EqualExecutorsAreIdentical) {
    Pair pair;
    ASSERT_TRUE(pair.run({}, 2));
    EXPECT_TRUE(pair.lockstep->identical());
    EXPECT_EQ(pair.lockstep->counts().compared_logits, 2 * pair.first.model.config.vocab_size);
    EXPECT_GT(pair.lockstep->counts().compared_operations, 21 * 5);
    EXPECT_EQ(pair.lockstep->counts().unwatched_steps, 0);
    const auto digest = pair.lockstep->head_digest({.writer = SequenceSlot{0}, .length = 7, .blocks = {}});
    EXPECT_EQ(digest, pair.primary->head_digest({.writer = SequenceSlot{0}, .length = 7, .blocks = {}}));
    EXPECT_EQ(pair.lockstep->counts().compared_states, 1);
}

// One weight of the head: one logit differs, and nothing before it.
void change_logit(Pair& pair, int32_t token, std::vector<uint16_t>& table) {
    auto& head = pair.second.model.weights.lm_head;
    table.assign(head.data, head.data + head.rows * head.cols);
    table[token * head.cols] ^= 0x0080;  // doubles or halves it
    head.data = table.data();
}

TEST(LockstepExecutor, OneLogitIsNamed) {
    for (const bool watch : {true, false}) {
        Pair pair;
        std::vector<uint16_t> table;
        change_logit(pair, 9, table);
        ASSERT_TRUE(pair.run({.watch_operations = watch}));
        ASSERT_TRUE(pair.lockstep->first_difference().has_value());
        const Difference& difference = *pair.lockstep->first_difference();
        EXPECT_EQ(difference.step, 2);
        EXPECT_EQ(difference.request, RequestId{0});
        EXPECT_EQ(difference.position, 19);
        EXPECT_EQ(difference.layer, static_cast<int32_t>(pair.first.model.config.layers.size()));
        EXPECT_EQ(difference.op, watch ? "matmul logits" : "logits");
        EXPECT_EQ(difference.element, 9);
        EXPECT_NE(difference.primary, difference.secondary);
    }
}

TEST(LockstepExecutor, ADifferingOperationIsNamedBeforeTheLogits) {
    Pair pair;
    const int32_t layer = pair.mamba_layer();
    ASSERT_GE(layer, 0);
    auto& weights = pair.second.model.weights.layers[layer].mamba;
    std::vector<float> d(weights.d.begin(), weights.d.end());
    d.back() += 1;
    weights.d = d;
    ASSERT_TRUE(pair.run());
    ASSERT_TRUE(pair.lockstep->first_difference().has_value());
    const Difference& difference = *pair.lockstep->first_difference();
    const MambaConfig& mamba = *pair.first.model.config.layers[layer].mamba;
    EXPECT_EQ(difference.step, 1);
    EXPECT_EQ(difference.position, 0);
    EXPECT_EQ(difference.layer, layer);
    EXPECT_EQ(difference.op, "scan mixed");
    EXPECT_EQ(difference.element, mamba.d_inner() - mamba.head_dim);
    EXPECT_THAT(to_string(difference), HasSubstr(fmt::format("position 0, layer {}, scan mixed, element ", layer)));
}

TEST(LockstepExecutor, StopsAtTheFirstDifferenceOnRequest) {
    Pair pair;
    std::vector<uint16_t> table;
    change_logit(pair, 9, table);
    const Status status = pair.run({.stop_at_first = true});
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("step 2, request 0, position 19"));
}

TEST(LockstepExecutor, LogitsAreComparedInStepsTooLargeToWatch) {
    Pair pair;
    std::vector<uint16_t> table;
    change_logit(pair, 9, table);
    ASSERT_TRUE(pair.run({.max_watched_bytes = 100}));
    EXPECT_EQ(pair.lockstep->counts().unwatched_steps, 2);  // after the difference there is nothing to watch
    EXPECT_EQ(pair.lockstep->first_difference()->op, "logits");
}

TEST(LockstepExecutor, ResultIsThePrimarys) {
    Pair pair;
    std::vector<float> norm(pair.second.model.weights.final_norm.size(), 0.0F);
    pair.second.model.weights.final_norm = norm;  // all logits 0: token 0
    ASSERT_TRUE(pair.run());
    Pair alone;
    ASSERT_TRUE(alone.run());
    EXPECT_EQ(pair.result, alone.result);
    EXPECT_FALSE(pair.lockstep->identical());
}

// Head digests: the sequences agree, one of the two reads another layer's bytes.
class StaleHead final : public NumericExecutor {
public:
    StaleHead(ReferenceExecutor& inner, const ModelConfig& config)
        : NumericExecutor(config, state_tensors(config), {.vocab_size = config.vocab_size, .check_memory = false}),
          inner_(inner) {}
    bool read_head(const HeadImage& image, const HeadReader& reader) override {
        return inner_.read_head(image, [&](const HeadPiece& piece) {
            std::vector<std::byte> changed(piece.bytes.begin(), piece.bytes.end());
            const float value = 12345;
            if (piece.tensor.kind == StateKind::kConv) std::memcpy(&changed[3 * sizeof value], &value, sizeof value);
            reader({piece.tensor, changed});
        });
    }
    std::span<const float> logits(SequenceSlot slot, int32_t draw) override { return inner_.logits(slot, draw); }

protected:
    void compute(const StepPlan& plan) override {
        StepResult ignored;
        CHECK(inner_.execute(plan, ignored));
    }
    std::optional<int32_t> fault_layer(SequenceSlot, int32_t) override { return std::nullopt; }

private:
    ReferenceExecutor& inner_;
};

TEST(LockstepExecutor, HeadThatDiffersIsNamedByTensorAndElement) {
    const SceneModel model(small_granite(), kSeed);
    ReferenceExecutor primary(model.model.config, model.model.weights);
    ReferenceExecutor inner(model.model.config, model.model.weights);
    StaleHead secondary(inner, model.model.config);
    LockstepExecutor lockstep(primary, secondary, {.watch_operations = false});
    tests::PlanBuilder plans(model.model.config.vocab_size);
    plans.next()
        .start({.slot = 0, .tokens = model.tokens(5, 1)})
        .compute({.slot = 0, .num_new_tokens = 5, .num_sampled_positions = 1});
    StepResult result;
    ASSERT_TRUE(lockstep.execute(plans.plan(), result));
    EXPECT_TRUE(lockstep.identical());
    EXPECT_TRUE(lockstep.head_digest({.writer = SequenceSlot{0}, .length = 5, .blocks = {}}).has_value());
    ASSERT_TRUE(lockstep.first_difference().has_value());
    EXPECT_EQ(lockstep.first_difference()->op, "head conv");
    EXPECT_EQ(lockstep.first_difference()->element, 3);
    EXPECT_EQ(lockstep.first_difference()->secondary, 12345);
    EXPECT_EQ(lockstep.first_difference()->position, 5);
}

// A request of 5 tokens, and a plan for it with a share and sampling parameters.
struct Requested {
    explicit Requested(const SamplingParams& asked)
        : model(small_granite(), kSeed),
          primary(model.model.config, model.model.weights),
          secondary(model.model.config, model.model.weights),
          store(model.model.config.vocab_size),
          book({}, store),
          lockstep(primary, secondary) {
        lockstep.take_requests_from(&book);
        Call call{.kind = CallKind::kSubmit, .id = RequestId{0}};
        call.request.conversation.conversation_id = "a";
        call.request.messages.push_back({store.store(model.tokens(5, 1))});
        call.request.sampling = asked;
        book.on_call(call);
    }
    Status execute(const std::vector<TokenId>& tokens, const SamplingParams& planned, int32_t slot = 0) {
        StepPlan plan{.step = 1};
        plan.new_sequences.push_back({.slot = SequenceSlot{0},
                                      .request = RequestId{0},
                                      .tokens = store.store(tokens),
                                      .num_prompt_tokens = 5,
                                      .sampling = planned});
        plan.sequences.push_back({.slot = SequenceSlot{slot}, .num_new_tokens = 5, .num_sampled_positions = 1});
        return lockstep.execute(plan, result);
    }
    SceneModel model;
    ReferenceExecutor primary, secondary;
    TokenStore store;
    RequestBook book;
    LockstepExecutor lockstep;
    StepResult result;
};

TEST(LockstepExecutor, SecondaryReadsTokensAndSamplingOfTheRequest) {
    const SamplingParams asked{.temperature = 2, .repetition_penalty = 1.5F, .seed = 5};
    Requested right(asked);
    ASSERT_TRUE(right.execute(right.model.tokens(5, 1), asked));
    EXPECT_TRUE(right.lockstep.identical());

    Requested wrong(asked);
    const std::vector<TokenId> other = wrong.model.tokens(5, 2);
    ASSERT_TRUE(wrong.execute(other, {}));
    ASSERT_TRUE(wrong.lockstep.first_difference().has_value());
    EXPECT_EQ(wrong.lockstep.first_difference()->op, "plan starts.tokens");
    EXPECT_EQ(wrong.lockstep.first_difference()->request, RequestId{0});
    EXPECT_EQ(wrong.lockstep.first_difference()->primary, other.front());
    EXPECT_EQ(wrong.primary.tables().at(SequenceSlot{0}).sampling, SamplingParams{});
    EXPECT_EQ(wrong.secondary.tables().at(SequenceSlot{0}).sampling, asked);
    EXPECT_EQ(wrong.secondary.tables().at(SequenceSlot{0}).tokens, wrong.model.tokens(5, 1));
}

TEST(LockstepExecutor, APlanThatTheRequestsRefuseIsNotRun) {
    Requested scene({});
    const Status refused = scene.execute(scene.model.tokens(6, 1), {});
    ASSERT_FALSE(refused);
    EXPECT_THAT(
        refused.error().message,
        HasSubstr("step 1: the plan is refused: request 0: starts.tokens: 6 tokens in the plan, 5 in the request"));
    EXPECT_EQ(scene.lockstep.first_difference()->op, "plan starts.tokens");
    EXPECT_EQ(scene.lockstep.first_difference()->step, 1);

    Requested elsewhere({});
    ASSERT_FALSE(elsewhere.execute(elsewhere.model.tokens(5, 1), {}, 3));
    EXPECT_EQ(elsewhere.lockstep.first_difference()->op, "plan starts.slot");
    EXPECT_EQ(elsewhere.lockstep.first_difference()->request, RequestId{0});
}

TEST(LockstepExecutor, AReportedTokenThatWasNotSampledIsNamed) {
    Requested scene({});
    ASSERT_TRUE(scene.execute(scene.model.tokens(5, 1), {}));
    const TokenId drawn = token_of(scene.result, 0);
    scene.book.on_token(RequestId{0}, drawn == 0 ? 1 : 0);
    ASSERT_TRUE(scene.lockstep.first_difference().has_value());
    EXPECT_EQ(scene.lockstep.first_difference()->op, "reported token");
    EXPECT_EQ(scene.lockstep.first_difference()->request, RequestId{0});
    EXPECT_EQ(scene.lockstep.first_difference()->position, 5);
    EXPECT_EQ(scene.lockstep.first_difference()->secondary, drawn);
}

// Of a head before the writer's present length, an executor without pools has what a state write named.
TEST(LockstepExecutor, HeadWithoutAStateWriteIsADifference) {
    const SceneModel model(small_granite(), kSeed);
    cpu::CpuExecutor primary(model.model.config, model.model.weights, {.pools = {4, 8, 4}});
    ReferenceExecutor secondary(model.model.config, model.model.weights);
    LockstepExecutor lockstep(primary, secondary);
    tests::PlanBuilder plans(model.model.config.vocab_size);
    plans.next()
        .start({.slot = 0, .tokens = model.tokens(6, 1)})
        .compute({.slot = 0, .num_new_tokens = 6, .num_sampled_positions = 1, .state_dst = 0, .new_blocks = {0, 1}});
    StepResult result;
    ASSERT_TRUE(lockstep.execute(plans.plan(), result));
    const std::vector<BlockRun> blocks = {{BlockId{0}, 2}};
    static_cast<void>(lockstep.head_digest({SequenceSlot{0}, 5, blocks, StateIndex{0}}));
    ASSERT_TRUE(lockstep.first_difference().has_value());
    EXPECT_EQ(lockstep.first_difference()->op, "head without a state write");
    EXPECT_EQ(lockstep.first_difference()->position, 5);
}

}  // namespace
}  // namespace verbatim::reference
