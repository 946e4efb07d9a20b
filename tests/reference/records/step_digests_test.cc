// The sums of a step's rows, and the places of the values in them.
#include "reference/records/step_digests.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/cpu/cpu_executor.h"
#include "reference/records/row_watch.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/families.h"

namespace verbatim::tests {
namespace {

using namespace records;

constexpr int32_t kPrompt = 9;

// A sequence on the CPU: its prompt, and steps that sample.
class Digested {
public:
    Digested(const SceneModel& model, DigestLevel level)
        : model_(model),
          executor_(model.model.config, model.model.weights, {.pools = {16, 4, 4}, .max_log_tokens = 4}),
          digesting_(std::in_place, executor_, executor_, level),
          plans_(model.model.config.vocab_size) {}

    // The token that follows.
    TokenId prefill() {
        plans_.next().start({.slot = 0, .tokens = prompt()});
        compute({.num_new_tokens = kPrompt, .num_sampled_positions = 1, .new_blocks = iota(0, 2)});
        return result.tokens.back();
    }
    TokenId decode(int64_t position, TokenId token, const std::vector<TokenId>& drafts = {}) {
        std::vector<TokenId> appended = {token};
        appended.insert(appended.end(), drafts.begin(), drafts.end());
        const auto count = static_cast<int32_t>(appended.size());
        plans_.next();
        compute({.num_computed_tokens = position,
                 .num_new_tokens = count,
                 .num_sampled_positions = count,
                 .appended = appended});
        return result.tokens.back();
    }
    void compute(SequenceSpec spec) {
        spec.state_src = spec.num_computed_tokens > 0 ? 0 : -1;
        spec.state_dst = 0;
        plans_.compute(spec);
        ASSERT_TRUE(digesting_->execute(plans_.plan(), result));
    }
    [[nodiscard]] std::vector<TokenId> prompt() const { return model_.tokens(kPrompt, 3); }
    [[nodiscard]] const SequenceRecord& record() const { return digesting_->sequences().at(0); }

    std::optional<DigestingExecutor>& digesting() { return digesting_; }
    cpu::CpuExecutor& executor() { return executor_; }
    PlanBuilder& plans() { return plans_; }
    StepResult result;

private:
    const SceneModel& model_;
    cpu::CpuExecutor executor_;
    std::optional<DigestingExecutor> digesting_;
    PlanBuilder plans_;
};

SceneModel small_model() { return {reference::draw_small_config(reference::Architecture::kGraniteHybrid, 11), 11}; }

// What two consecutive parts of a sequence have together.
SequenceRecord together(SequenceRecord first, const SequenceRecord& second) {
    EXPECT_EQ(first.end, second.begin);
    first.end = second.end;
    first.logits.insert(first.logits.end(), second.logits.begin(), second.logits.end());
    first.layers += second.layers;
    for (size_t i = 0; i < first.layer_tags.size(); ++i)
        first.layer_tags[i] = static_cast<char>(first.layer_tags[i] + second.layer_tags[i]);
    for (size_t i = 0; i < first.ops.size(); ++i) {
        first.ops[i].low += second.ops[i].low;
        first.ops[i].high += second.ops[i].high;
    }
    return first;
}

TEST(StepDigests, RejectedDraftsAreNotInTheSums) {
    const SceneModel model = small_model();
    for (const DigestLevel level : {DigestLevel::kHeads, DigestLevel::kLayers, DigestLevel::kOps}) {
        Digested plain(model, level);
        const TokenId token = plain.prefill();
        const TokenId second = plain.decode(kPrompt, token);
        const SequenceRecord first_step = plain.record();
        const TokenId third = plain.decode(kPrompt + 1, second);
        const SequenceRecord second_step = plain.record();
        plain.decode(kPrompt + 2, third);
        const SequenceRecord third_step = plain.record();
        const TokenId wrong = second == 0 ? 1 : 0;
        const TokenId wrong_too = third == 0 ? 1 : 0;
        const auto with_drafts = [&](const std::vector<TokenId>& drafts) {
            Digested drafting(model, level);
            EXPECT_EQ(drafting.prefill(), token);
            drafting.decode(kPrompt, token, drafts);
            SequenceRecord record = drafting.record();
            EXPECT_EQ(record.drafts, drafts);
            record.drafts.clear();
            return record;
        };
        EXPECT_EQ(first_step.logits.size(), 1U);
        EXPECT_EQ(with_drafts({wrong, third}), first_step) << name(level);
        EXPECT_EQ(with_drafts({second, wrong_too}), together(first_step, second_step)) << name(level);
        EXPECT_EQ(with_drafts({second, third}), together(together(first_step, second_step), third_step));
    }
}

TEST(StepDigests, RowsThatAreScoredAloneAreSummed) {
    const SceneModel model = small_model();
    const WalkPoints points(model.model.config);
    Digested digested(model, DigestLevel::kHeads);
    const std::vector<TokenId> prompt = digested.prompt();
    digested.plans().next().start({.slot = 0, .tokens = prompt});
    digested.compute({.num_new_tokens = kPrompt - 2, .num_scored_positions = 3, .new_blocks = iota(0, 1)});
    const std::vector<uint64_t> want = reference_rows(model.reference, points, prompt, 0, {}).logits;
    EXPECT_EQ(digested.record().logits, std::vector(want.begin() + kPrompt - 5, want.begin() + kPrompt - 2));
    EXPECT_EQ(digested.record().end, kPrompt - 2);
    EXPECT_EQ(digested.record().layers, 0U);
    digested.plans().next();
    digested.compute({.num_computed_tokens = kPrompt - 2,
                      .num_new_tokens = 2,
                      .num_sampled_positions = 1,
                      .num_scored_positions = 1});
    EXPECT_EQ(digested.record().logits, std::vector(want.begin() + kPrompt - 2, want.end()));
}

TEST(StepDigests, AnExecutorIsNotObservedAfterwards) {
    const SceneModel model = small_model();
    Digested digested(model, DigestLevel::kOps);
    const TokenId token = digested.prefill();
    EXPECT_FALSE(digested.record().ops.empty());
    digested.digesting().emplace(digested.executor(), digested.executor(), DigestLevel::kNone);
    digested.decode(kPrompt, token);
    EXPECT_TRUE(digested.record().ops.empty());
    EXPECT_TRUE(digested.record().logits.empty());
}

TEST(StepDigests, OrdinaryArithmeticIsRecorded) {
    PlanBuilder plans(100);
    plans.next().start({.slot = 0, .tokens = {1, 2, 3}}).compute({.slot = 0, .num_new_tokens = 2});
    EXPECT_FALSE(plain_record_of(plans.plan(), plans.plan().sequences[0], RequestId{4}, nullptr).ordinary);
    plans.next().compute(
        {.slot = 0, .num_computed_tokens = 2, .num_new_tokens = 1, .arithmetic = Arithmetic::kOrdinary});
    const SequenceRecord record = plain_record_of(plans.plan(), plans.plan().sequences[0], RequestId{4}, nullptr);
    EXPECT_TRUE(record.ordinary);
    EXPECT_EQ(record.request, RequestId{4});
    EXPECT_EQ(record.begin, 2);
    EXPECT_EQ(record.end, 3);
}

TEST(StepDigests, EveryNanIsOne) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> a = {1, nan, -0.0F};
    const std::vector<float> b = {1, -nan, -0.0F};
    const std::vector<float> c = {1, nan, 0.0F};
    EXPECT_EQ(sum_of_row(a, 7), sum_of_row(b, 7));
    EXPECT_NE(sum_of_row(a, 7), sum_of_row(c, 7));
    EXPECT_NE(sum_of_row(a, 7), sum_of_row(a, 8));
    EXPECT_EQ(logits_sum(a, 2), sum_of_row(a, 6).low);
}

TEST(WalkPoints, EveryValueOfASequenceHasADistinctPlace) {
    for (const Family& family : kAllFamilies) {
        const reference::ModelConfig config = family.draw(5);
        const WalkPoints points(config);
        int64_t next = 0;
        for (int64_t position = 0; position < 2; ++position) {
            for (size_t op = 0; op < points.size(); ++op) {
                EXPECT_EQ(points.place(op, position), next) << family.name() << " " << op;
                next += points[op].columns.count;
            }
            EXPECT_EQ(next, (position + 1) * points.width());
        }
    }
}

TEST(WalkPoints, OperationsAreThoseOfTheForwardPass) {
    for (const Family& family : kAllFamilies) {
        const reference::ModelConfig config = family.draw(5);
        const WalkPoints points(config);
        for (size_t op = 0; op < points.size(); ++op) {
            EXPECT_EQ(std::ranges::count(points.call_of(op).written(), points[op]), 1) << family.name() << " " << op;
            EXPECT_EQ(op >= points.first_of_head(), points[op].layer == std::ssize(config.layers));
        }
        ASSERT_EQ(points.layers().size(), config.layers.size());
        for (size_t i = 0; i < points.layers().size(); ++i) {
            EXPECT_EQ(points[points.layers()[i]].op, reference::WalkOp::kLayer);
            EXPECT_EQ(points[points.layers()[i]].layer, static_cast<int32_t>(i));
        }
    }
}

}  // namespace
}  // namespace verbatim::tests
