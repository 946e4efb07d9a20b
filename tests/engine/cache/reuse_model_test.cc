#include "engine/cache/reuse_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "engine/base/prng.h"

namespace verbatim {
namespace {

TEST(Log2Fixed, IsTheLogarithmRoundedDownToItsLastBit) {
    for (uint64_t x = 1; x < (uint64_t{1} << 62); x += 1 + x / 7) {
        const double exact = std::log2(static_cast<double>(x));
        const double fixed = static_cast<double>(log2_fixed(x)) / 65536;
        ASSERT_LE(fixed, exact + 1e-9) << x;
        ASSERT_GE(fixed, exact - 2e-5) << x;
    }
    EXPECT_EQ(log2_fixed(1), 0);
    EXPECT_EQ(log2_fixed(3'037'000'500), int64_t{63} << 15);  // the first above 2^31.5
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
    EXPECT_EQ(ReuseModel::bucket_of(INT64_MAX), ReuseModel::kNumBuckets - 1);
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

TEST(ReuseModel, EveryClassIsOfSomeHead) {
    std::set<int32_t> classes;
    for (int kind = 0; kind < static_cast<int>(HeadKind::kCount); ++kind) {
        for (const int32_t generation : {0, 1, 2, 3, 5, 9, 17, 33})
            classes.insert(ReuseModel::class_of({static_cast<HeadKind>(kind), 0, generation}));
        for (const int64_t num_uses : {1, 2, 3})
            classes.insert(ReuseModel::class_of({static_cast<HeadKind>(kind), num_uses}));
    }
    EXPECT_EQ(classes.size(), static_cast<size_t>(ReuseModel::kNumClasses));
    EXPECT_EQ(*classes.begin(), 0);
    EXPECT_EQ(*classes.rbegin(), ReuseModel::kNumClasses - 1);
}

// What nothing is known of doubles its density as its count is halved, and the share of all generations as well.
TEST(ReuseModel, CountsAreHalvedAt32768) {
    const auto density_of = [](int64_t num_reached) {
        ReuseModel model;
        for (int64_t i = 0; i < num_reached; ++i) model.note_reached(0, 0);
        return static_cast<double>(model.log_density(0, 0)) / 65536;
    };
    EXPECT_NEAR(density_of(32'768), density_of(16'384), 0.001);
    EXPECT_NEAR(density_of(32'767), density_of(16'384) - 2, 0.1);
}

// The formula of the header in floating point, over all ages, and when a density is computed anew.
class PlainModel {
public:
    void note(int32_t head_class, int32_t bucket, bool used) {
        Class& noted = classes_[head_class];
        ++noted.num_noted;
        ++noted.num_new;
        if (noted.num_new > std::min<int64_t>(64, noted.num_noted / 16)) noted.is_current = false;
        for (Counts* counts : {&noted.counts, &all_[group_of(head_class)]})
            ++(used ? counts->used : counts->reached)[bucket];
    }
    // The lowest and the highest value that rounding may give.
    std::pair<int64_t, int64_t> log_density(int32_t head_class, int32_t bucket) {
        Class& asked = classes_[head_class];
        if (!asked.is_current) {
            asked.is_current = true;
            asked.num_new = 0;
            asked.counted = asked.counts;
            asked.all_counted = all_[group_of(head_class)];
        }
        double best = 0;
        double best_horizon = 1;
        for (int32_t end = bucket + 1; end < ReuseModel::kNumBuckets; ++end) {
            const int64_t ages = ReuseModel::begin_of(end) - ReuseModel::begin_of(bucket);
            if (ages > int64_t{1} << 28) continue;  // too far away to count
            const double horizon = static_cast<double>(std::max<int64_t>(1, ages));
            const double all_reached = asked.all_counted.reached[bucket];
            const double reached = asked.counted.reached[bucket];
            const double share = (all_reached * used_before(asked.all_counted, bucket, end) + 1) / (all_reached + 4);
            const double p = (reached * used_before(asked.counted, bucket, end) + 8 * share) / (reached + 8);
            if (p / horizon <= best) continue;
            best = p / horizon;
            best_horizon = horizon;
        }
        const double units = best * 4294967296.0;
        const double error = 1 + 80 / best_horizon;  // of integers
        const auto log = [](double x) { return log2_fixed(static_cast<uint64_t>(std::max(x, 1.0))); };
        return {log(units - error), log(units + error)};
    }

private:
    struct Counts {
        std::array<double, ReuseModel::kNumBuckets> reached{};
        std::array<double, ReuseModel::kNumBuckets> used{};
    };
    struct Class {
        Counts counts, counted, all_counted;
        int64_t num_noted = 0, num_new = 0;
        bool is_current = false;
    };
    // The kind and the uses of the class.
    static std::pair<int32_t, int32_t> group_of(int32_t head_class) {
        const int32_t place = head_class % ReuseModel::kClassesPerKind;
        return {head_class / ReuseModel::kClassesPerKind, place < ReuseModel::kNumGenerations ? -1 : place};
    }
    static double used_before(const Counts& counts, int32_t bucket, int32_t end) {
        double left = 1;
        for (int32_t i = bucket; i < end; ++i) {
            if (counts.used[i] > 0) left *= 1 - counts.used[i] / std::max(counts.reached[i], counts.used[i]);
        }
        return 1 - left;
    }
    std::map<int32_t, Class> classes_;
    std::map<std::pair<int32_t, int32_t>, Counts> all_;
};

TEST(ReuseModel, DensitiesAreThoseOfTheFormula) {
    Prng prng(1);
    ReuseModel model;
    PlainModel plain;
    std::set<int64_t> values;
    for (int step = 0; step < 40'000; ++step) {
        const auto below = [&](int32_t n) { return static_cast<int32_t>(prng.below(static_cast<uint64_t>(n))); };
        const auto draw_class = [&] {
            const int32_t kind = below(2);
            return kind * ReuseModel::kClassesPerKind + below(ReuseModel::kClassesPerKind);
        };
        const int32_t noted = draw_class();
        const int32_t bucket = below(3) == 0 ? below(ReuseModel::kNumBuckets) : below(12);
        // Of some heads more uses than were reached: they came before counts were halved.
        if (bucket % 5 == noted % 5 && below(4) == 0) {
            model.note_used(noted, bucket);
            plain.note(noted, bucket, true);
        } else {
            model.note_reached(noted, bucket);
            plain.note(noted, bucket, false);
        }
        if (below(4) != 0) continue;
        const int32_t asked = draw_class();
        const int32_t age = below(ReuseModel::kNumBuckets);
        const int64_t density = model.log_density(asked, age);
        const auto [low, high] = plain.log_density(asked, age);
        ASSERT_GE(density, low) << "class " << asked << ", bucket " << age << ", step " << step;
        ASSERT_LE(density, high) << "class " << asked << ", bucket " << age << ", step " << step;
        values.insert(density);
    }
    EXPECT_GT(values.size(), 1000u);
    EXPECT_EQ(*values.begin(), 0);  // of ages after which nothing is near
}

TEST(ReuseModel, UsesBeyondTheThirdAreOneClass) {
    EXPECT_EQ(ReuseModel::class_of({HeadKind::kTurn, 3}), ReuseModel::class_of({HeadKind::kTurn, 1000}));
    EXPECT_NE(ReuseModel::class_of({HeadKind::kTurn, 2}), ReuseModel::class_of({HeadKind::kTurn, 3}));
    EXPECT_LT(ReuseModel::class_of({HeadKind::kBranch, 1000}), ReuseModel::kNumClasses);
}

}  // namespace
}  // namespace verbatim
