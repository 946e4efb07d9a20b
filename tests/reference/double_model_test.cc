#include "reference/double_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "reference/loader/golden_file.h"
#include "reference/loader/load_model.h"
#include "reference/model/random_model.h"

namespace verbatim::reference {
namespace {

constexpr double kTolerance = 1e-9;

class DoubleModelGolden : public testing::TestWithParam<const char*> {
protected:
    void SetUp() override {
        const std::string folder = std::string(VERBATIM_SOURCE_DIR "/tests/data/golden/") + GetParam();
        auto model = load_model(folder);
        ASSERT_TRUE(model) << model.error().message;
        model_ = *std::move(model);
        auto prompts = load_golden(folder + "/golden.safetensors", model_.config);
        ASSERT_TRUE(prompts) << prompts.error().message;
        prompts_ = *std::move(prompts);
        ASSERT_EQ(prompts_.size(), 6u);
    }
    Model model_;
    std::vector<GoldenPrompt> prompts_;
};

void expect_near(std::span<const double> values, std::span<const double> truth, const std::string& what) {
    ASSERT_EQ(values.size(), truth.size()) << what;
    ErrorMeter meter;
    for (size_t i = 0; i < truth.size(); ++i) meter.add(values[i], truth[i]);
    EXPECT_LE(meter.max_error(), kTolerance) << what;
}

TEST_P(DoubleModelGolden, LogitsAgreeAtEveryPositionOfEveryPrompt) {
    for (const GoldenPrompt& prompt : prompts_)
        expect_near(run_double_model(model_, prompt.tokens).logits, prompt.logits,
                    fmt::format("prompt of {} tokens", prompt.tokens.size()));
}

TEST_P(DoubleModelGolden, HiddenRowsAgreeAfterEveryLayer) {
    size_t num_checked = 0;
    for (const GoldenPrompt& prompt : prompts_) {
        if (prompt.hidden.empty()) continue;
        const DoubleOutput output = run_double_model(model_, prompt.tokens);
        for (const auto& [k, rows] : prompt.hidden) {
            expect_near(output.hidden[static_cast<size_t>(k)], rows, fmt::format("hidden {}", k));
            ++num_checked;
        }
    }
    EXPECT_EQ(num_checked, model_.config.layers.size() + 1);
}

TEST_P(DoubleModelGolden, StatesAgreeInEveryLayerThatHasOne) {
    size_t num_checked = 0;
    for (const GoldenPrompt& prompt : prompts_) {
        if (prompt.ssm.empty()) continue;
        for (const DoubleState& state : run_double_model(model_, prompt.tokens).states) {
            expect_near(state.recurrent, prompt.ssm.at(state.layer), fmt::format("ssm {}", state.layer));
            expect_near(state.conv, prompt.conv.at(state.layer), fmt::format("conv {}", state.layer));
            ++num_checked;
        }
    }
    const ModelGeometry counts = geometry(model_.config);
    EXPECT_EQ(num_checked, 2 * static_cast<size_t>(counts.num_mamba_layers + counts.num_delta_layers));
}

// Of logits where the router is a softmax, of scores with their bias where it is a sigmoid.
TEST_P(DoubleModelGolden, MarginsAreTheGapAfterTheLastChosenScore) {
    for (const GoldenPrompt& prompt : prompts_) {
        for (const DoubleChoice& choice : run_double_model(model_, prompt.tokens).choices) {
            const MoeConfig& moe = *model_.config.layers[static_cast<size_t>(choice.layer)].moe;
            if (moe.n_groups > 1) continue;  // a group may be nearer
            std::vector<double> gaps;
            for (size_t t = 0; t < prompt.tokens.size(); ++t) {
                const auto n_experts = static_cast<size_t>(moe.n_experts);
                const auto row = std::span(choice.scores).subspan(t * n_experts, n_experts);
                std::vector<double> sorted(row.begin(), row.end());
                std::ranges::sort(sorted, std::greater());
                const auto last = static_cast<size_t>(moe.n_chosen) - 1;
                gaps.push_back(sorted[last] - sorted[last + 1]);
            }
            expect_near(gaps, prompt.margin.at(choice.layer), fmt::format("margin {}", choice.layer));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(AllFamilies, DoubleModelGolden,
                         testing::Values("bamba", "falcon-h1", "falcon-h1-gated", "granite-hybrid", "granite-rope",
                                         "llama", "mamba2", "mamba2-limit", "nemotron-h", "granite-moe", "nemotron-moe",
                                         "nemotron-moe-latent", "qwen35", "qwen35-moe", "qwen3-next"),
                         [](const auto& info) {
                             std::string name = info.param;
                             std::erase(name, '-');
                             return name;
                         });

// The goldens' MLPs have no bias except in one family, their conv widths differ by family: random configs mix them.
TEST(DoubleModel, AnyFamilyRunsAndALaterTokenChangesNoEarlierRow) {
    for (uint64_t seed = 0; seed < 24; ++seed) {
        const Model model = make_random_model(draw_small_config(seed), seed);
        const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7};
        const DoubleOutput whole = run_double_model(model, tokens);
        const DoubleOutput prefix = run_double_model(model, std::span(tokens).first(4));
        ASSERT_EQ(whole.logits.size(), tokens.size() * static_cast<size_t>(model.config.vocab_size));
        expect_near(std::span(whole.logits).first(prefix.logits.size()), prefix.logits, fmt::format("seed {}", seed));
    }
}

}  // namespace
}  // namespace verbatim::reference
