// How many replicas a load wants, by arithmetic.
#include "simulator/autoscaler.h"

#include <gtest/gtest.h>

namespace verbatim::tests {
namespace {

TEST(Autoscaler, WantsTheLoadOverTheTargetWithinTheBounds) {
    Autoscaler scaler({.least = 2, .most = 8, .target = 10, .cooldown_ns = 0});
    EXPECT_EQ(scaler.wanted(0, 2, 41), 5);
    EXPECT_EQ(scaler.wanted(1, 5, 54), 5) << "within a tenth: 54 / 50";
    EXPECT_EQ(scaler.wanted(2, 5, 56), 6);
    EXPECT_EQ(scaler.wanted(3, 6, 500), 8);
    EXPECT_EQ(scaler.wanted(4, 8, 0), 2);
}

TEST(Autoscaler, WantsFewerOnlyAfterTheCoolDown) {
    Autoscaler scaler({.least = 1, .most = 8, .target = 10, .cooldown_ns = 100});
    EXPECT_EQ(scaler.wanted(0, 1, 60), 6);
    EXPECT_EQ(scaler.wanted(50, 6, 30), 6);
    EXPECT_EQ(scaler.wanted(100, 6, 10), 6) << "six were wanted at 0";
    EXPECT_EQ(scaler.wanted(101, 6, 10), 3) << "the most since: three at 50";
    EXPECT_EQ(scaler.wanted(151, 3, 10), 1);
    EXPECT_EQ(scaler.wanted(152, 1, 70), 7) << "more at once";
}

TEST(Autoscaler, FlagsAreReadStrictly) {
    EXPECT_EQ(*parse_scale_range("1..8"), std::pair(1, 8));
    for (const char* wrong : {"", "8", "0..3", "4..3", "1..", "1..2000", "1...4"})
        EXPECT_FALSE(parse_scale_range(wrong).has_value()) << wrong;
    EXPECT_EQ(*parse_scale_target("busy=0.8"), std::pair(ScaleMetric::kBusy, 0.8));
    EXPECT_EQ(*parse_scale_target("waiting=4"), std::pair(ScaleMetric::kWaiting, 4.0));
    for (const char* wrong : {"", "requests", "requests=0", "busy=1.5", "queue=4", "waiting=-1", "waiting=x"})
        EXPECT_FALSE(parse_scale_target(wrong).has_value()) << wrong;
}

}  // namespace
}  // namespace verbatim::tests
