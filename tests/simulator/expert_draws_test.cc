#include "simulator/expert_draws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

namespace verbatim::tests {
namespace {

constexpr int64_t kNumWalks = ExpertDraws::kNumWalks;

struct Sample {
    double mean = 0;
    double standard_error = 0;
};

// Of the walks of so many seeds.
Sample sample_of(int32_t n_experts, int32_t n_chosen, double skew, int64_t num_tokens, uint64_t num_seeds) {
    double sum = 0;
    double squares = 0;
    for (uint64_t seed = 0; seed < num_seeds; ++seed) {
        ExpertDraws draws(n_experts, n_chosen, {skew, seed});
        for (int64_t walk = 0; walk < kNumWalks; ++walk) {
            const auto distinct = static_cast<double>(draws.distinct_of_walk(walk, num_tokens));
            sum += distinct;
            squares += distinct * distinct;
        }
    }
    const auto count = static_cast<double>(num_seeds) * static_cast<double>(kNumWalks);
    const double mean = sum / count;
    return {mean, std::sqrt(std::max(0.0, squares / count - mean * mean) / (count - 1))};
}

TEST(ExpertDraws, TheirMeanIsWhatTheFormulaExpects) {
    double sum_of_squares = 0;
    int num_compared = 0;
    for (const auto& [n_experts, n_chosen] : {std::pair{8, 3}, {64, 6}, {128, 6}, {512, 10}}) {
        for (const int64_t num_tokens : {1, 2, 3, 8, 32, 100}) {
            const Sample sample = sample_of(n_experts, n_chosen, 0, num_tokens, 8);
            const double off = sample.mean - expected_distinct(n_experts, n_chosen, num_tokens);
            SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << n_chosen << " of " << n_experts);
            EXPECT_LE(std::abs(off), 3.5 * sample.standard_error + 1e-3) << "1e-3: nearly always all";
            if (sample.standard_error < 1e-3) continue;
            sum_of_squares += off * off / (sample.standard_error * sample.standard_error);
            ++num_compared;
        }
    }
    ASSERT_GE(num_compared, 15);
    EXPECT_LT(std::sqrt(sum_of_squares / num_compared), 1.5) << "off by a standard error, on the whole";
}

// One token: as often as its weight says. Two of three by 1, 1/2 and 1/3: the sum over which comes first.
TEST(ExpertDraws, SkewedWeightsAreThoseOfZipf) {
    const double sum = 1 + 1.0 / 2 + 1.0 / 3;
    const double w[] = {1 / sum, 1 / (2 * sum), 1 / (3 * sum)};
    double same = 0;  // two tokens that choose one expert each
    for (const double p : w) same += p * p;
    const Sample one = sample_of(3, 1, 1, 2, 32);
    EXPECT_NEAR(one.mean, 2 - same, 4 * one.standard_error);
    double left_out[3] = {};
    for (int a = 0; a < 3; ++a) {
        for (int b = 0; b < 3; ++b) {
            if (a != b) left_out[3 - a - b] += w[a] * w[b] / (1 - w[a]);
        }
    }
    double same_pair = 0;
    for (const double p : left_out) same_pair += p * p;
    const Sample two = sample_of(3, 2, 1, 2, 32);
    EXPECT_NEAR(two.mean, 3 - same_pair, 4 * two.standard_error);
}

TEST(ExpertDraws, FewerAreDistinctWhereSomeAreFavourites) {
    double before = 1e9;
    for (const double skew : {0.0, 0.5, 1.0, 2.0, 8.0}) {
        const double mean = sample_of(64, 6, skew, 16, 1).mean;
        EXPECT_LT(mean, before) << skew;
        EXPECT_GE(mean, 6) << "a token's experts differ";
        before = mean;
    }
    EXPECT_LT(before, 10) << "the sixth place is hardly contested";
}

TEST(ExpertDraws, MoreTokensNeverChooseFewer) {
    ExpertDraws draws(40, 5, {.skew = 0.7, .seed = 3});
    for (int64_t walk = 0; walk < kNumWalks; walk += 17) {
        int64_t before = 0;
        for (int64_t tokens = 1; tokens < 300; ++tokens) {
            const int64_t distinct = draws.distinct_of_walk(walk, tokens);
            EXPECT_GE(distinct, std::max<int64_t>(before, 5));
            EXPECT_LE(distinct, std::min<int64_t>(40, 5 * tokens));
            before = distinct;
        }
    }
    EXPECT_EQ(draws.distinct_of_walk(0, 1), 5);
    EXPECT_EQ(ExpertDraws(7, 7, {}).distinct(0, 0, 1), 7);
}

TEST(ExpertDraws, DependOnStepLayerAndSeedAloneNotOnWhatWasAskedBefore) {
    const ExpertChance chance{.skew = 0.3, .seed = 11};
    ExpertDraws upwards(128, 6, chance);
    ExpertDraws downwards(128, 6, chance);
    ExpertDraws other(128, 6, {.skew = 0.3, .seed = 12});
    std::vector<int64_t> up;
    std::vector<int64_t> down;
    std::vector<int64_t> others;
    constexpr int64_t kSteps = 60;
    for (int64_t step = 0; step < kSteps; ++step) up.push_back(upwards.distinct(step, step % 5, 1 + step));
    for (int64_t step = kSteps; step-- > 0;) down.push_back(downwards.distinct(step, step % 5, 1 + step));
    std::ranges::reverse(down);
    EXPECT_EQ(up, down);
    for (int64_t step = 0; step < kSteps; ++step) others.push_back(other.distinct(step, step % 5, 1 + step));
    EXPECT_NE(up, others);
}

TEST(ExpertDraws, StepsAndLayersTakeWalksOfTheirOwn) {
    ExpertDraws draws(128, 6, {});
    std::set<int64_t> by_step;
    std::set<int64_t> by_layer;
    for (int64_t i = 0; i < 200; ++i) {
        by_step.insert(draws.distinct(i, 0, 16));
        by_layer.insert(draws.distinct(0, i, 16));
    }
    EXPECT_GT(by_step.size(), 10U);
    EXPECT_GT(by_layer.size(), 10U);
}

}  // namespace
}  // namespace verbatim::tests
