// engine/cache/reuse_model.h: owns how often heads of a class were reused at which age. Learned from the run, integers
// only.
//
// The *age* of a head is the number of admissions since its last use, counted in half octaves (buckets). A class is the
// kind of a head and its number of uses; for heads without a use, their generation, too: a conversation that has gone
// on often goes on again. The hit density of a head is the chance of a use per admission, over the
// horizon for which that is highest (Beckmann, Chen, Cidon: LHD, NSDI 2018):
//
//     density(c, b) = max over e > b of  p(c, b, e) / (begin(e) - begin(b))
//     p(c, b, e) = (reached(c, b) u(c, b, e) + kPrior q) / (reached(c, b) + kPrior)
//     u(c, b, e) = 1 - product over i in b .. e - 1 of (1 - used(c, i) / reached(c, i))
//
// where q = (reached(b) u(b, e) + 1) / (reached(b) + 4) over all generations together: a class of which little was seen
// counts as these do. u is the estimate of Kaplan and Meier: heads that are younger than e now, and those that came
// before counts were halved, count at the ages that they have come to, and at no others.
//
//   R1  uses and reached are halved together when they are many, so that the model follows a load that changes
#pragma once

#include <array>
#include <bitset>
#include <cstdint>

#include "engine/cache/head.h"

namespace verbatim {

struct HeadClass {
    HeadKind kind = HeadKind::kTurn;
    int64_t num_uses = 0;
    int32_t generation = 0;  // Head::generation
    friend bool operator==(const HeadClass&, const HeadClass&) = default;
};

class ReuseModel {
public:
    static constexpr int32_t kNumBuckets = 64;
    static constexpr int32_t kMaxUses = 3;         // more uses are one class
    static constexpr int32_t kNumGenerations = 8;  // 0, 1, 2, 3 to 4, 5 to 8, ... and more than 32
    static constexpr int32_t kClassesPerKind = kNumGenerations + kMaxUses;
    static constexpr int32_t kNumClasses = static_cast<int32_t>(HeadKind::kCount) * kClassesPerKind;

    [[nodiscard]] static int32_t class_of(const HeadClass& of);
    // floor(2 log2(age)), 0 for ages 0 and 1.
    [[nodiscard]] static int32_t bucket_of(int64_t age);
    [[nodiscard]] static int64_t begin_of(int32_t bucket);  // the lowest age of the bucket

    // A head of the class has come to this age without a use.
    void note_reached(int32_t head_class, int32_t bucket);
    // And was used then.
    void note_used(int32_t head_class, int32_t bucket);
    // log2 of the density in units of 2^-16.
    [[nodiscard]] int64_t log_density(int32_t head_class, int32_t bucket);

private:
    static constexpr int64_t kPrior = 8;
    static constexpr int64_t kMostReached = 1 << 15;  // of a class at age 0, before counts are halved
    struct Counts {
        std::array<int64_t, kNumBuckets> reached{};
        std::array<int64_t, kNumBuckets> used{};
    };
    struct Class {
        Counts counts;
        int64_t num_noted = 0;  // since the run began, and since the densities were computed
        int64_t num_new = 0;
        // Densities are of the counts at one time, and computed for the ages that are asked for.
        bool is_current = false;
        Counts counted;
        Counts all_counted;  // of all generations
        std::array<int64_t, kNumBuckets> log_density{};
        std::bitset<kNumBuckets> is_computed;
    };
    static void note(Class& noted);
    static void count(Counts& counts, int32_t bucket);  // one more head has reached the bucket
    // What is left of heads unused, in units of 2^-32, behind a bucket.
    [[nodiscard]] static uint64_t left_behind(const Counts& counted, int32_t bucket, uint64_t left);
    static void update(Class& changed, const Counts& all);
    [[nodiscard]] static int64_t computed_log_density(const Class& of, int32_t bucket);
    [[nodiscard]] static size_t without_generation(int32_t head_class);

    std::array<Class, kNumClasses> classes_{};
    std::array<Counts, static_cast<size_t>(HeadKind::kCount) * (kMaxUses + 1)> all_generations_{};
};

// log2(x) in units of 2^-16, rounded down. REQUIRES: x > 0.
[[nodiscard]] int64_t log2_fixed(uint64_t x);

}  // namespace verbatim
