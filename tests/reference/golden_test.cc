// The exact profile against the binary64 truth of the golden checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "reference/loader/golden_check.h"
#include "reference/loader/load_model.h"
#include "reference/reference_model.h"

namespace verbatim::reference {
namespace {

struct GoldenCheckpoint {
    const char* name;
    double bfloat16_rms_error;  // of transformers' own bfloat16: tests/data/golden/README.md
};

void PrintTo(const GoldenCheckpoint& checkpoint, std::ostream* out) { *out << checkpoint.name; }

constexpr GoldenCheckpoint kCheckpoints[] = {
    {"bamba", 0.0219},        {"falcon-h1", 0.0129},   {"falcon-h1-gated", 0.0123}, {"granite-hybrid", 0.0101},
    {"granite-rope", 0.0082}, {"llama", 0.0235},       {"mamba2", 0.0113},          {"mamba2-limit", 0.0068},
    {"nemotron-h", 0.0124},   {"granite-moe", 0.0315}, {"nemotron-moe", 0.1006},    {"nemotron-moe-latent", 0.0849},
    {"qwen35", 0.0312},       {"qwen35-moe", 0.1486},  {"qwen3-next", 0.0950},
};

class ExactGolden : public testing::TestWithParam<GoldenCheckpoint> {
protected:
    void SetUp() override {
        const std::string folder = std::string(VERBATIM_SOURCE_DIR "/tests/data/golden/") + GetParam().name;
        auto model = load_model(folder);
        ASSERT_TRUE(model) << model.error().message;
        model_ = *std::move(model);
        auto prompts = load_golden(folder + "/golden.safetensors", model_.config);
        ASSERT_TRUE(prompts) << prompts.error().message;
        prompts_ = *std::move(prompts);
    }
    Model model_;
    std::vector<GoldenPrompt> prompts_;
};

TEST_P(ExactGolden, RmsErrorIsBelowThatOfBfloat16) {
    const GoldenReport report = check_golden(model_, prompts_);
    EXPECT_TRUE(report.passes());
    EXPECT_EQ(report.num_positions, 1 + 3 + 4 + 17 + 64 + 130);
    EXPECT_LT(report.exact.logits.rms_error(), GetParam().bfloat16_rms_error);
    // Not suspiciously good either: activations do enter dot products as bf16. (With experts, most of bfloat16's own
    // error are experts that flip.)
    const bool has_experts = geometry(model_.config).num_moe_layers > 0;
    EXPECT_GT(report.exact.logits.rms_error(), (has_experts ? 0.03 : 0.1) * GetParam().bfloat16_rms_error);
    EXPECT_LT(report.exact.states.rms_error(), GetParam().bfloat16_rms_error);
    EXPECT_LE(report.double_model.logits.max_error(), kDoubleTolerance);
}

// All of the double model's sets are the golden's; the exact model's, unless its error can turn them.
TEST_P(ExactGolden, ChosenExpertsAreTheGoldensWhereTheMarginAllows) {
    const GoldenReport report = check_golden(model_, prompts_);
    const int64_t num_layers = geometry(model_.config).num_moe_layers;
    EXPECT_EQ(report.double_model.choices.num_compared, report.num_positions * num_layers);
    EXPECT_EQ(report.double_model.choices.num_close_calls, 0);
    EXPECT_EQ(report.double_model.choices.num_wrong, 0);
    EXPECT_EQ(report.exact.choices.num_wrong, 0);
    // The comparison is not over before it has begun: a tenth of all positions come before the first close call.
    EXPECT_GE(10 * report.exact.num_positions, report.num_positions);
    EXPECT_LT(report.exact.choices.scores.rms_error(), 0.02);
    if (num_layers == 0) {
        EXPECT_EQ(report.exact.num_positions, report.num_positions);
    }
}

TEST_P(ExactGolden, DecodingGivesTheBitsOfPrefillAtEveryPosition) {
    ReferenceModel model(model_.config, model_.weights);
    const auto vocab = static_cast<size_t>(model_.config.vocab_size);
    for (const GoldenPrompt& prompt : prompts_) {
        ReferenceSequence whole(model);
        whole.append(prompt.tokens);
        ReferenceSequence stepped(model);
        for (size_t i = 0; i < prompt.tokens.size(); ++i) {
            stepped.append(std::span(prompt.tokens).subspan(i, 1));
            ASSERT_EQ(0, std::memcmp(stepped.logits().row(0), whole.logits().row(static_cast<int64_t>(i)),
                                     vocab * sizeof(float)))
                << "position " << i << " of " << prompt.tokens.size();
        }
        EXPECT_EQ(stepped.digest(), whole.digest());
    }
}

INSTANTIATE_TEST_SUITE_P(AllFamilies, ExactGolden, testing::ValuesIn(kCheckpoints), [](const auto& info) {
    std::string name = info.param.name;
    std::erase(name, '-');
    return name;
});

// The check itself must be able to fail: one multiplier off is named by the first layer behind it.
TEST(GoldenCheck, AWrongMultiplierFailsWithTheFirstLayerAfterIt) {
    const std::string folder = VERBATIM_SOURCE_DIR "/tests/data/golden/granite-hybrid";
    Model model = *load_model(folder);
    const auto prompts = *load_golden(folder + "/golden.safetensors", model.config);
    model.config.layers[2].attention->scale *= 2;
    const GoldenReport report = check_golden(model, prompts);
    EXPECT_FALSE(report.passes());
    EXPECT_EQ(report.double_model.first_off_hidden, 3);
}

// Each of these is a set that differs by more than rounding can turn, or weights that are off by as much.
TEST(GoldenCheck, AWrongRouterFails) {
    const std::string folder = VERBATIM_SOURCE_DIR "/tests/data/golden/nemotron-moe-latent";
    const auto check = [&](const auto& change) {
        Model model = *load_model(folder);
        const auto prompts = *load_golden(folder + "/golden.safetensors", model.config);
        EXPECT_TRUE(check_golden(model, prompts).passes());
        for (LayerConfig& layer : model.config.layers)
            if (layer.moe) change(*layer.moe);
        return check_golden(model, prompts);
    };
    const GoldenReport all_groups = check([](MoeConfig& moe) { moe.n_chosen_groups = 3; });
    EXPECT_GT(all_groups.double_model.choices.num_wrong, 0);
    EXPECT_GT(all_groups.exact.choices.num_wrong, 0);
    EXPECT_FALSE(all_groups.passes());
    const GoldenReport unscaled = check([](MoeConfig& moe) { moe.scale = 1; });
    EXPECT_EQ(unscaled.double_model.first_off_hidden, 1);
    EXPECT_FALSE(unscaled.passes());
    EXPECT_FALSE(check([](MoeConfig& moe) { moe.normalize = false; }).passes());
}

// Of Qwen3-Next: the shared expert's gate, and weights whose sum is that of the chosen.
TEST(GoldenCheck, AWrongSharedGateOrSumOfWeightsFails) {
    const std::string folder = VERBATIM_SOURCE_DIR "/tests/data/golden/qwen3-next";
    const auto check = [&](const auto& change) {
        Model model = *load_model(folder);
        const auto prompts = *load_golden(folder + "/golden.safetensors", model.config);
        EXPECT_TRUE(check_golden(model, prompts).passes());
        for (LayerConfig& layer : model.config.layers)
            if (layer.moe) change(*layer.moe);
        return check_golden(model, prompts);
    };
    const GoldenReport ungated = check([](MoeConfig& moe) { moe.shared_gate = false; });
    EXPECT_GT(ungated.double_model.choices.num_wrong, 0);  // in the next layer
    EXPECT_FALSE(ungated.passes());
    const GoldenReport of_all = check([](MoeConfig& moe) { moe.normalize = false; });
    EXPECT_GT(of_all.double_model.choices.num_wrong, 0);
    EXPECT_FALSE(of_all.passes());
}

// The exact profile's sets are judged against the file's margin alone.
TEST(GoldenCheck, ASetThatDiffersIsACloseCallOnlyWithinTheMargin) {
    const std::string folder = VERBATIM_SOURCE_DIR "/tests/data/golden/granite-moe";
    const Model model = *load_model(folder);
    auto prompts = *load_golden(folder + "/golden.safetensors", model.config);
    prompts = {prompts[3]};
    std::vector<int32_t>& ids = prompts[0].experts.at(1);
    const int32_t n_experts = model.config.layers[1].moe->n_experts;
    for (int32_t& id : std::span(ids).subspan(5 * 3, 3)) id = n_experts - 1 - id;  // another set, at position 5
    std::sort(ids.begin() + 15, ids.begin() + 18);
    const GoldenReport wrong = check_golden(model, prompts);
    EXPECT_EQ(wrong.exact.choices.num_wrong, 1);
    EXPECT_EQ(wrong.double_model.choices.num_wrong, 1);
    EXPECT_EQ(wrong.exact.num_positions, 5);
    EXPECT_EQ(wrong.exact.logits.count(), 5 * model.config.vocab_size);
    EXPECT_EQ(wrong.exact.states.count(), 0);
    EXPECT_FALSE(wrong.passes());
    prompts[0].margin.at(1)[5] = 1e-12;
    const GoldenReport close = check_golden(model, prompts);
    EXPECT_EQ(close.exact.choices.num_close_calls, 1);
    EXPECT_EQ(close.exact.choices.num_wrong, 0);
    EXPECT_TRUE(close.passes());
}

TEST(ErrorMeter, NaNIsNeverSmall) {
    ErrorMeter meter;
    meter.add(1.0, 1.0);
    EXPECT_EQ(meter.max_error(), 0.0);
    meter.add(std::numeric_limits<double>::quiet_NaN(), 1.0);
    EXPECT_FALSE(meter.max_error() <= 1e9);
    EXPECT_FALSE(meter.rms_error() <= 1e9);
}

}  // namespace
}  // namespace verbatim::reference
