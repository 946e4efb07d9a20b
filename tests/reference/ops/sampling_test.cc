#include "reference/ops/sampling.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/numerics/math.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

using Words = PhiloxWords;

// Known answers published with the Random123 library (Salmon et al., SC 2011): philox4x32, 10 rounds.
TEST(Philox, GivesTheKnownAnswers) {
    EXPECT_EQ(philox4x32_10({{0, 0, 0, 0}}, {0, 0}), (Words{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
    EXPECT_EQ(philox4x32_10({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, {0xffffffff, 0xffffffff}),
              (Words{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
    EXPECT_EQ(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, {0xa4093822, 0x299f31d0}),
              (Words{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

TEST(GumbelNoise, ComesFromTheWordOfItsSeedPositionAndId) {
    const uint64_t seed = 0x299f31d0a4093822;
    const uint64_t position = 0x85a308d3243f6a88;
    const Words words = philox4x32_10({{0x243f6a88, 0x85a308d3, 5, 0}}, {0xa4093822, 0x299f31d0});
    for (int32_t i = 0; i < 4; ++i) {
        const double u = ((words.word[i] >> 9) + 0.5) / 8388608.0;
        EXPECT_NEAR(gumbel_noise(seed, position, 20 + i), -std::log(-std::log(u)), 1e-5);
    }
}

SamplingArgs args_of(std::span<const float> logits, const SamplingParams& params = {}) {
    return {.logits = logits, .params = params, .prefix = {}, .position = 17};
}

TEST(Sampling, GreedyTakesTheLowestIdAmongEquals) {
    const std::vector<float> logits = {-1.0F, 3.0F, 2.0F, 3.0F, -0.0F, 0.0F};
    EXPECT_EQ(sample(args_of(logits)), 1);
    EXPECT_EQ(sample(args_of(std::vector<float>{-0.0F, 0.0F})), 0);
    EXPECT_EQ(sample(args_of(std::vector<float>(50, -2.0F))), 0);
}

TEST(Sampling, DependsOnSeedAndPositionAlone) {
    const std::vector<float> logits(1000, 0.0F);
    SamplingParams params{.temperature = 1.0F, .seed = 5};
    SamplingArgs args = args_of(logits, params);
    const int32_t first = sample(args);
    EXPECT_EQ(sample(args), first);
    args.position = 18;
    EXPECT_NE(sample(args), first);
    args.position = 17;
    args.params.seed = 6;
    EXPECT_NE(sample(args), first);
    args.params.seed = 5 + (uint64_t{1} << 32);  // the key's high word counts
    EXPECT_NE(sample(args), first);
    args.params.seed = 5;
    args.position = 17 + (uint64_t{1} << 32);  // so does the position's
    EXPECT_NE(sample(args), first);
}

TEST(Sampling, FrequenciesFollowTheSoftmax) {
    const std::vector<float> logits = {0.0F, 1.0F, 2.0F};
    const double total = 1.0 + std::exp(1.0) + std::exp(2.0);
    std::vector<int> counts(3);
    SamplingArgs args = args_of(logits, {.temperature = 1.0F, .seed = 9});
    constexpr int kDraws = 20000;
    for (args.position = 0; args.position < kDraws; ++args.position) ++counts[sample(args)];
    for (int i = 0; i < 3; ++i)
        EXPECT_NEAR(counts[i] / static_cast<double>(kDraws), std::exp(logits[i]) / total, 0.015);
}

TEST(Sampling, ATinyTemperatureIsGreedyEvenWhereItOverflows) {
    const std::vector<float> logits = {-3.0F, 5.0F, 4.0F, 5.0F};
    for (const float temperature : {1e-3F, 1e-30F, std::numeric_limits<float>::denorm_min()}) {
        const int32_t id = sample(args_of(logits, {.temperature = temperature, .top_p = 0.9F, .seed = 1}));
        EXPECT_TRUE(id == 1 || id == 3) << temperature;
    }
    const std::vector<float> negative = {-3.0F, -5.0F};
    EXPECT_EQ(sample(args_of(negative, {.temperature = 1e-40F, .top_p = 0.5F})), 0);
}

TEST(Penalties, RepetitionCountsPromptAndGeneratedOnceThenPresenceAndFrequency) {
    const std::vector<float> logits = {1.0F, -1.0F, 2.0F, -2.0F, 3.0F};
    const std::vector<int32_t> prompt = {0, 1, 0, 2};
    const std::vector<int32_t> generated = {2, 3, 2};
    SamplingArgs args =
        args_of(logits, {.repetition_penalty = 1.5F, .presence_penalty = 0.25F, .frequency_penalty = 0.1F});
    args.prefix = {prompt, generated};
    const std::vector<float> l = penalised(args);
    EXPECT_EQ(l[0], 1.0F / 1.5F);
    EXPECT_EQ(l[1], -1.0F * 1.5F);
    EXPECT_EQ(l[2], std::fma(-0.1F, 2.0F, 2.0F / 1.5F - 0.25F));
    EXPECT_EQ(l[3], std::fma(-0.1F, 1.0F, -2.0F * 1.5F - 0.25F));
    EXPECT_EQ(l[4], 3.0F);
}

TEST(Penalties, MoveTheGreedyChoice) {
    const std::vector<float> logits = {1.0F, 1.1F, 0.5F};
    const std::vector<int32_t> generated = {1};
    SamplingArgs args = args_of(logits, {.presence_penalty = 0.2F});
    EXPECT_EQ(sample(args), 1);
    args.prefix.generated = generated;
    EXPECT_EQ(sample(args), 0);
}

TEST(Masks, ForbidWhateverBiasAndPenaltiesMadeOfALogit) {
    const std::vector<float> logits = {1.0F, 9.0F, 0.5F, 4.0F, 3.0F};
    const std::vector<int32_t> runs = {2, 1, 1, 1};  // tokens 2 and 4
    SamplingArgs args = args_of(logits, {.logit_bias = {{1, 100.0F}, {2, 5.0F}}});
    args.mask_runs = runs;
    constexpr float kForbidden = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(penalised(args), (std::vector<float>{kForbidden, kForbidden, 5.5F, kForbidden, 3.0F}));
    EXPECT_EQ(sample(args), 2);
    const std::vector<int32_t> last = {4, 1};
    args.mask_runs = last;
    args.params.temperature = 1.7F;
    args.params.top_k = 3;
    args.params.min_p = 0.5F;
    args.params.top_p = 0.9F;
    EXPECT_EQ(sample(args), 4);
}

// What the grammar wants comes first: else there would be nothing to sample.
TEST(Masks, EndTokensThatAreAllThereIsAreNotBanned) {
    const std::vector<float> logits = {1.0F, 2.0F, 3.0F};
    SamplingArgs args = args_of(logits, {.min_tokens = 4, .end_tokens = {1, 2}});
    const std::vector<int32_t> ends = {1, 2};
    args.mask_runs = ends;
    EXPECT_EQ(sample(args), 2);
    const std::vector<int32_t> all = {0, 3};
    args.mask_runs = all;
    EXPECT_EQ(sample(args), 0);
}

RC_GTEST_PROP(Masks, TheTokenIsAnAllowedOneAndThatOfTheAllowedLogits, ()) {
    const std::vector<float> logits = draw_values(24, *rc::gen::arbitrary<uint64_t>().as("logits"));
    const auto set = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint32_t>(1, 1U << 24)).as("allowed");
    std::vector<std::byte> bits(4);
    std::memcpy(bits.data(), &set, sizeof set);
    const TokenMask mask = mask_of_bits(bits, 24);
    SamplingArgs args = args_of(logits, {.temperature = *rc::gen::element(0.0F, 1.0F), .seed = set});
    args.mask_runs = mask.runs;
    const int32_t token = sample(args);
    RC_ASSERT(allows(mask.runs, token));
    std::vector<float> far = logits;
    for (int32_t id = 0; id < 24; ++id) {
        if (!allows(mask.runs, id)) far[id] = -1e30F;
    }
    RC_ASSERT(sample(args_of(far, args.params)) == token);
}

// In this order: the penalty sees the biased logit, and nothing brings a banned token back.
TEST(LogitBias, ComesBeforePenaltiesAndTheBan) {
    const std::vector<float> logits = {1.0F, -2.0F, 0.5F, 4.0F};
    const std::vector<int32_t> generated = {1, 3};
    SamplingArgs args = args_of(logits, {.repetition_penalty = 2.0F});
    args.params.logit_bias = {{1, 3.0F}, {3, 100.0F}};
    args.params.min_tokens = 3;
    args.params.end_tokens = {3};
    args.prefix.generated = generated;
    const std::vector<float> l = penalised(args);
    EXPECT_EQ(l[0], 1.0F);
    EXPECT_EQ(l[1], (-2.0F + 3.0F) / 2.0F);
    EXPECT_EQ(l[2], 0.5F);
    EXPECT_EQ(l[3], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(sample(args), 0);
    args.params.min_tokens = 2;  // there are two
    EXPECT_EQ(sample(args), 3);
}

TEST(MinTokens, NoEndTokenIsSampledWhateverIsKept) {
    const std::vector<float> logits = {50.0F, 0.0F, 49.0F};
    for (const float temperature : {0.0F, 1.0F, 1e-30F}) {
        for (const int32_t top_k : {0, 1, 3}) {
            SamplingArgs args = args_of(logits, {.temperature = temperature, .top_k = top_k, .top_p = 0.999F});
            args.params.min_tokens = 1;
            args.params.end_tokens = {0, 2};
            for (args.position = 0; args.position < 50; ++args.position) ASSERT_EQ(sample(args), 1);
        }
    }
}

TEST(MinP, KeepsWhatIsLikelyEnough) {
    const std::vector<float> logits = {0.0F, std::log(0.5F), 1.0F - 1.0F, std::log(0.25F), -40.0F};
    EXPECT_EQ(kept_ids(logits, {0, 1.0F, 0.0F}).size(), 5U);
    EXPECT_EQ(kept_ids(logits, {0, 1.0F, 1e-9F}), (std::vector<int32_t>{0, 2, 1, 3}));
    EXPECT_EQ(kept_ids(logits, {0, 1.0F, 0.3F}), (std::vector<int32_t>{0, 2, 1}));
    EXPECT_EQ(kept_ids(logits, {0, 1.0F, 0.6F}), (std::vector<int32_t>{0, 2}));
    EXPECT_EQ(kept_ids(logits, {0, 1.0F, 1.0F}), (std::vector<int32_t>{0, 2}));
    EXPECT_EQ(kept_ids(logits, {1, 1.0F, 0.3F}), (std::vector<int32_t>{0}));  // of what top_k left
    EXPECT_EQ(kept_ids(logits, {0, 0.5F, 0.3F}), (std::vector<int32_t>{0, 2}));
}

TEST(TopK, KeepsTheLowestIdsAmongEqualLogits) {
    const std::vector<float> logits = {1.0F, 2.0F, 1.0F, 2.0F, 1.0F, 0.0F, -0.0F};
    EXPECT_EQ(kept_ids(logits, {0, 1.0F}), (std::vector<int32_t>{1, 3, 0, 2, 4, 5, 6}));
    EXPECT_EQ(kept_ids(logits, {3, 1.0F}), (std::vector<int32_t>{1, 3, 0}));
    EXPECT_EQ(kept_ids(logits, {100, 1.0F}).size(), 7U);
}

TEST(TopP, KeepsTheShortestPrefixThatReachesItsShare) {
    // Four equal weights of 2^32: shares of 1/4 exactly.
    const std::vector<float> logits(4, 0.5F);
    EXPECT_EQ(kept_ids(logits, {0, 0.25F}), (std::vector<int32_t>{0}));
    EXPECT_EQ(kept_ids(logits, {0, std::nextafter(0.25F, 1.0F)}), (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(kept_ids(logits, {0, 0.5F}), (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(kept_ids(logits, {0, 0.75F}), (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(kept_ids(logits, {0, std::nextafter(1.0F, 0.0F)}), (std::vector<int32_t>{0, 1, 2, 3}));
    EXPECT_EQ(kept_ids(logits, {0, std::numeric_limits<float>::denorm_min()}), (std::vector<int32_t>{0}));
    EXPECT_EQ(kept_ids(logits, {0, 1e-20F}), (std::vector<int32_t>{0}));   // a share below one unit of weight rounds up
    EXPECT_EQ(kept_ids(logits, {3, 0.5F}), (std::vector<int32_t>{0, 1}));  // of what top_k left
}

RC_GTEST_PROP(TopP, TheKeptShareReachesTopPAndNoShorterPrefixDoes, (uint64_t seed)) {
    const auto count = *rc::gen::inRange<int64_t>(1, 60);
    const float top_p = static_cast<float>(*rc::gen::inRange(1, 1000)) / 1000.0F;
    const std::vector<float> logits = draw_values(count, seed);
    const std::vector<int32_t> order = kept_ids(logits, {0, 1.0F});
    const std::vector<int32_t> kept = kept_ids(logits, {0, top_p});
    const auto weight = [&](int32_t id) {
        return std::floor(static_cast<double>(exp_f32(logits[id] - logits[order[0]])) * 0x1p+32);
    };
    double total = 0.0;  // integers below 2^53 and so exact
    for (const int32_t id : order) total += weight(id);
    double sum = 0.0;
    for (const int32_t id : kept) sum += weight(id);
    // In long double the product of a 24-bit top_p and a 40-bit total is exact.
    const long double wanted = std::ceil(static_cast<long double>(top_p) * total);
    RC_ASSERT(sum >= wanted);
    RC_ASSERT(sum - weight(kept.back()) < wanted);
    RC_ASSERT(std::equal(kept.begin(), kept.end(), order.begin()));
}

TEST(Sampling, EqualScoresOfUnequalLogitsGoToTheLowestId) {
    // Near 2^27 neighbours are 8 apart, so the noise often lifts the lower logit to the other's score.
    const std::vector<float> logits = {0x1p+27F - 8.0F, 0x1p+27F};
    int num_ties = 0;
    SamplingArgs args = args_of(logits, {.temperature = 1.0F, .seed = 2});
    for (args.position = 0; args.position < 2000; ++args.position) {
        const float first = logits[0] + gumbel_noise(2, args.position, 0);
        const float second = logits[1] + gumbel_noise(2, args.position, 1);
        if (first != second) continue;
        ++num_ties;
        ASSERT_EQ(sample(args), 0);
    }
    EXPECT_GT(num_ties, 0);
}

TEST(Sampling, SamplesOnlyKeptIds) {
    const std::vector<float> logits = draw_values(200, 3);
    const std::vector<int32_t> kept = kept_ids(logits, {5, 1.0F});
    std::vector<int> counts(200);
    SamplingArgs args = args_of(logits, {.temperature = 1.0F, .top_k = 5, .seed = 4});
    for (args.position = 0; args.position < 2000; ++args.position) ++counts[sample(args)];
    for (const int32_t id : kept) {
        EXPECT_GT(counts[id], 0);
        counts[id] = 0;
    }
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 0);
}

TEST(SamplingDeathTest, RefusesLogitsThatAreNotFinite) {
    const std::vector<float> logits = {0.0F, std::numeric_limits<float>::infinity()};
    EXPECT_DEATH(sample(args_of(logits)), "logit 1 is not finite");
}

}  // namespace
}  // namespace verbatim::reference
