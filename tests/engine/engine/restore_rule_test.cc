#include "engine/restore_rule.h"

#include <gtest/gtest.h>

namespace verbatim {
namespace {

RestoreRule::StepTokens step_of(int64_t chunk, int num_decodes) {
    RestoreRule::StepTokens tokens;
    if (chunk > 0) tokens.add(chunk);
    for (int i = 0; i < num_decodes; ++i) tokens.add(1);
    return tokens;
}

TEST(RestoreRule, AHeadIsReadIfThatIsNoSlowerThanTheStepsSoFar) {
    RestoreRule rule(RestorePolicy::kAuto);
    EXPECT_TRUE(rule.pays(1, 1'000'000'000)) << "nothing is known of computing";
    rule.note_step(step_of(100, 0), 50'000);  // 500 ns a token
    EXPECT_TRUE(rule.pays(10, 5'000));
    EXPECT_FALSE(rule.pays(10, 5'010));
    rule.note_step(step_of(300, 0), 30'000);  // 80'000 ns for 400
    EXPECT_TRUE(rule.pays(10, 2'000));
    EXPECT_FALSE(rule.pays(10, 2'010));
}

// A step of decodes takes long for each token and says nothing of a prompt's.
TEST(RestoreRule, StepsThatMostlyDecodeDoNotCount) {
    RestoreRule rule(RestorePolicy::kAuto);
    rule.note_step(step_of(100, 0), 10'000);
    rule.note_step(step_of(0, 40), 1'000'000'000);
    rule.note_step(step_of(20, 30), 1'000'000'000);
    rule.note_step(step_of(15, 0), 1'000'000'000);
    EXPECT_TRUE(rule.pays(10, 1'000));
    EXPECT_FALSE(rule.pays(10, 1'010));
    rule.note_step(step_of(40, 20), 110'000);  // 120'000 ns for 160
    EXPECT_TRUE(rule.pays(10, 7'500));
    EXPECT_FALSE(rule.pays(10, 7'510));
}

TEST(RestoreRule, AlwaysAndNeverAreWhatTheySay) {
    RestoreRule always(RestorePolicy::kAlways);
    RestoreRule never(RestorePolicy::kNever);
    for (RestoreRule* rule : {&always, &never}) rule->note_step(step_of(100, 0), 100);
    EXPECT_TRUE(always.pays(1, 1'000'000));
    EXPECT_FALSE(never.pays(1'000'000, 1));
}

TEST(RestoreRule, NoReadIsWaitedForWithoutEnd) {
    constexpr int64_t kExpectedNs = 1'000'000;
    constexpr int64_t kLongest = RestoreRule::kLateTimes * kExpectedNs + RestoreRule::kLateNs;
    for (const RestorePolicy policy : {RestorePolicy::kAuto, RestorePolicy::kAlways}) {
        const RestoreRule rule(policy);  // nothing is known of computing
        EXPECT_FALSE(rule.has_lost(10, kExpectedNs, kLongest));
        EXPECT_TRUE(rule.has_lost(10, kExpectedNs, kLongest + RestoreRule::kLateTimes));
    }
    RestoreRule rule(RestorePolicy::kAuto);
    rule.note_step(step_of(100, 0), 50'000);  // 500 ns a token
    EXPECT_FALSE(rule.has_lost(10, kExpectedNs, 5'000));
    EXPECT_TRUE(rule.has_lost(10, kExpectedNs, 5'010));
}

}  // namespace
}  // namespace verbatim
