#include "engine/cache/reuse_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace verbatim {
namespace {

TEST(Log2Fixed, IsTheLogarithmToATwoHundredthOfAnOctave) {
    for (uint64_t x = 1; x < (uint64_t{1} << 62); x += 1 + x / 7) {
        const double exact = std::log2(static_cast<double>(x));
        const double fixed = static_cast<double>(log2_fixed(x)) / 65536;
        ASSERT_LE(fixed, exact + 1e-9) << x;
        ASSERT_GE(fixed, exact - 0.005) << x;
    }
    EXPECT_EQ(log2_fixed(1), 0);
    EXPECT_EQ(log2_fixed(uint64_t{1} << 63), int64_t{63} << 16);
}

TEST(ReuseModel, BucketsAreHalfOctavesThatMeet) {
    EXPECT_EQ(ReuseModel::bucket_of(0), 0);
    EXPECT_EQ(ReuseModel::bucket_of(1), 0);
    EXPECT_EQ(ReuseModel::bucket_of(2), 2);
    for (int32_t bucket = 4; bucket < 40; ++bucket) {
        const int64_t begin = ReuseModel::begin_of(bucket);
        EXPECT_EQ(ReuseModel::bucket_of(begin), bucket);
        EXPECT_EQ(ReuseModel::bucket_of(begin - 1), bucket - 1);
    }
}

TEST(ReuseModel, AClassThatIsUsedMoreOftenIsDenser) {
    ReuseModel model;
    const int32_t often = ReuseModel::class_of({HeadKind::kBranch, 1});
    const int32_t rarely = ReuseModel::class_of({HeadKind::kTurn, 0});
    ASSERT_NE(often, rarely);
    for (int i = 0; i < 400; ++i) {
        for (const int32_t head_class : {often, rarely}) {
            for (int32_t bucket = 0; bucket <= 10; ++bucket) model.note_reached(head_class, bucket);
            if (head_class == often || i % 10 == 0) model.note_used(head_class, 10);
        }
    }
    for (int32_t bucket = 0; bucket <= 10; ++bucket)
        EXPECT_GT(model.log_density(often, bucket), model.log_density(rarely, bucket) + (int64_t{2} << 16));
}

// Heads that are used at one age only are worth most just before it, and least after it.
TEST(ReuseModel, TheDensityRisesTowardsTheAgeOfUseAndFallsBehindIt) {
    ReuseModel model;
    const int32_t head_class = ReuseModel::class_of({HeadKind::kTurn, 0});
    for (int i = 0; i < 1000; ++i) {
        const bool used = i % 2 == 0;
        for (int32_t bucket = 0; bucket <= (used ? 14 : 20); ++bucket) model.note_reached(head_class, bucket);
        if (used) model.note_used(head_class, 14);
    }
    for (int32_t bucket = 4; bucket < 14; ++bucket)
        EXPECT_LT(model.log_density(head_class, bucket), model.log_density(head_class, bucket + 1)) << bucket;
    EXPECT_GT(model.log_density(head_class, 14), model.log_density(head_class, 15) + (int64_t{4} << 16));
}

// Half of the heads are used at ages of bucket 10. Those that are younger than that say nothing of it yet.
TEST(ReuseModel, HeadsThatAreYoungLowerNoDensity) {
    ReuseModel model;
    const int32_t head_class = ReuseModel::class_of({HeadKind::kTurn, 0});
    const auto come_to = [&](int64_t num_heads, int32_t first, int32_t last) {
        for (int64_t i = 0; i < num_heads; ++i) {
            for (int32_t bucket = first; bucket <= last; ++bucket) model.note_reached(head_class, bucket);
        }
    };
    come_to(1000, 0, 10);
    for (int i = 0; i < 500; ++i) model.note_used(head_class, 10);
    const int64_t before = model.log_density(head_class, 0);
    come_to(10'000, 0, 8);
    EXPECT_NEAR(static_cast<double>(model.log_density(head_class, 0)), static_cast<double>(before), 0.05 * 65536);
}

// Counts are halved when they are many: heads that come to later ages after that do not count twice.
TEST(ReuseModel, HalvedCountsAreHalvedAtEveryAge) {
    constexpr int64_t kHeads = 60'000;
    ReuseModel model;
    const int32_t head_class = ReuseModel::class_of({HeadKind::kTurn, 0});
    for (int64_t i = 0; i < kHeads; ++i) {
        for (int32_t bucket = 0; bucket < 8; ++bucket) model.note_reached(head_class, bucket);
    }
    for (int64_t i = 0; i < kHeads / 8; ++i) {
        model.note_reached(head_class, 8);
        if (i % 2 == 0) model.note_used(head_class, 8);
    }
    // Half of them are used within the half octave from 16 on; at age 2 that is 21 admissions away, not 7.
    const double share = std::exp2(static_cast<double>(model.log_density(head_class, 2)) / 65536 - 32) * 21;
    EXPECT_NEAR(share, 0.5, 0.02);
}

TEST(ReuseModel, FollowsALoadThatChanges) {
    ReuseModel model;
    const int32_t head_class = ReuseModel::class_of({HeadKind::kPrompt, 0});
    const auto see = [&](int times, bool used) {
        for (int i = 0; i < times; ++i) {
            model.note_reached(head_class, 0);
            if (used) model.note_used(head_class, 0);
        }
    };
    see(100'000, true);
    const int64_t before = model.log_density(head_class, 0);
    see(200'000, false);
    EXPECT_LT(model.log_density(head_class, 0), before - (int64_t{2} << 16));
}

TEST(ReuseModel, HeadsWithoutAUseAreToldApartByTheirGeneration) {
    const auto unused = [](int32_t generation) {
        return ReuseModel::class_of({.kind = HeadKind::kTurn, .generation = generation});
    };
    for (const auto& [low, high] : {std::pair{3, 4}, {5, 8}, {9, 16}, {17, 32}, {33, 1'000'000}}) {
        EXPECT_EQ(unused(low), unused(high));
        EXPECT_NE(unused(low), unused(low - 1));
    }
    EXPECT_NE(unused(1), unused(0));
    EXPECT_EQ(ReuseModel::class_of({HeadKind::kTurn, 1, 0}), ReuseModel::class_of({HeadKind::kTurn, 1, 7}));
    EXPECT_NE(unused(33), ReuseModel::class_of({HeadKind::kTurn, 1}));
    EXPECT_NE(ReuseModel::class_of({HeadKind::kTurn, 1000}), ReuseModel::class_of({HeadKind::kPrompt, 0}));
}

TEST(ReuseModel, UsesBeyondTheThirdAreOneClass) {
    EXPECT_EQ(ReuseModel::class_of({HeadKind::kTurn, 3}), ReuseModel::class_of({HeadKind::kTurn, 1000}));
    EXPECT_NE(ReuseModel::class_of({HeadKind::kTurn, 2}), ReuseModel::class_of({HeadKind::kTurn, 3}));
    EXPECT_LT(ReuseModel::class_of({HeadKind::kBranch, 1000}), ReuseModel::kNumClasses);
}

}  // namespace
}  // namespace verbatim
