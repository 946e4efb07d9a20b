// The exact profile against the binary64 truth of the golden checkpoints.
#include <gtest/gtest.h>

#include <cstring>

#include "reference/model/golden_check.h"
#include "reference/model/load_model.h"
#include "reference/reference_model.h"

namespace verbatim::reference {
namespace {

struct GoldenCheckpoint {
    const char* name;
    double bfloat16_rms_error;  // of transformers' own bfloat16: tests/data/golden/README.md
};

void PrintTo(const GoldenCheckpoint& checkpoint, std::ostream* out) { *out << checkpoint.name; }

constexpr GoldenCheckpoint kCheckpoints[] = {
    {"bamba", 0.0219},        {"falcon-h1", 0.0129}, {"falcon-h1-gated", 0.0123}, {"granite-hybrid", 0.0101},
    {"granite-rope", 0.0082}, {"llama", 0.0235},     {"mamba2", 0.0113},          {"mamba2-limit", 0.0068},
    {"nemotron-h", 0.0124},   {"qwen35", 0.0312},
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
    // Not suspiciously good either: activations do enter dot products as bf16.
    EXPECT_GT(report.exact.logits.rms_error(), 0.1 * GetParam().bfloat16_rms_error);
    EXPECT_LT(report.exact.states.rms_error(), GetParam().bfloat16_rms_error);
    EXPECT_LE(report.double_model.logits.max_error(), kDoubleTolerance);
}

TEST_P(ExactGolden, DecodingGivesTheBitsOfPrefillAtEveryPosition) {
    const ReferenceModel model(model_.config, model_.weights);
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
TEST(GoldenCheck, AWrongMultiplierFailsAndTheFirstLayerBehindItIsNamed) {
    const std::string folder = VERBATIM_SOURCE_DIR "/tests/data/golden/granite-hybrid";
    Model model = *load_model(folder);
    const auto prompts = *load_golden(folder + "/golden.safetensors", model.config);
    model.config.layers[2].attention->scale *= 2;
    const GoldenReport report = check_golden(model, prompts);
    EXPECT_FALSE(report.passes());
    EXPECT_EQ(report.double_model.first_off_hidden, 3);
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
