#include "engine/cache/reuse_model.h"

#include <algorithm>
#include <bit>

#include "engine/base/check.h"

namespace verbatim {

int64_t log2_fixed(uint64_t x) {
    CHECK_GT(x, 0u);
    const int32_t whole = 63 - std::countl_zero(x);
    // The mantissa in [1, 2) as 1.31 fixed point; squaring it gives one more bit of the logarithm.
    uint64_t mantissa = whole >= 31 ? x >> (whole - 31) : x << (31 - whole);
    int64_t fraction = 0;
    for (int32_t bit = 15; bit >= 0; --bit) {
        mantissa = (mantissa * mantissa) >> 31;
        if (mantissa < (uint64_t{1} << 32)) continue;
        mantissa >>= 1;
        fraction |= int64_t{1} << bit;
    }
    return (int64_t{whole} << 16) | fraction;
}

int32_t ReuseModel::class_of(HeadKind kind, int64_t num_uses) {
    CHECK(kind < HeadKind::kCount && num_uses >= 0, "a head of kind {} with {} uses", static_cast<int>(kind), num_uses);
    return static_cast<int32_t>(kind) * (kMaxUses + 1) + static_cast<int32_t>(std::min<int64_t>(num_uses, kMaxUses));
}

int32_t ReuseModel::bucket_of(int64_t age) {
    CHECK_GE(age, 0);
    if (age < 2) return 0;
    const auto bucket = static_cast<int32_t>((2 * log2_fixed(static_cast<uint64_t>(age))) >> 16);
    return std::min(bucket, kNumBuckets - 1);
}

int64_t ReuseModel::begin_of(int32_t bucket) {
    CHECK(bucket >= 0 && bucket <= kNumBuckets, "bucket {}", bucket);
    if (bucket == 0) return 0;
    if (bucket % 2 == 0) return int64_t{1} << (bucket / 2);
    // The lowest age a with a^2 >= 2^bucket.
    const uint64_t square = bucket < 63 ? uint64_t{1} << bucket : ~uint64_t{0};
    uint64_t low = uint64_t{1} << (bucket / 2);
    uint64_t high = low << 1;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (middle * middle >= square) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return static_cast<int64_t>(low);
}

void ReuseModel::note_reached(int32_t head_class, int32_t bucket) {
    CHECK(head_class >= 0 && head_class < kNumClasses && bucket >= 0 && bucket < kNumBuckets, "class {}, bucket {}",
          head_class, bucket);
    Class& noted = classes_.at(static_cast<size_t>(head_class));
    note(noted);
    if (++noted.reached.at(static_cast<size_t>(bucket)) < kMostReached) return;
    for (int64_t& count : noted.reached) count /= 2;
    for (int64_t& count : noted.used) count /= 2;
}

void ReuseModel::note_used(int32_t head_class, int32_t bucket) {
    CHECK(head_class >= 0 && head_class < kNumClasses && bucket >= 0 && bucket < kNumBuckets, "class {}, bucket {}",
          head_class, bucket);
    Class& noted = classes_.at(static_cast<size_t>(head_class));
    note(noted);
    ++noted.used.at(static_cast<size_t>(bucket));
}

int64_t ReuseModel::log_density(int32_t head_class, int32_t bucket) {
    Class& asked = classes_.at(static_cast<size_t>(head_class));
    if (!asked.is_computed) update(asked);
    CHECK(asked.is_computed, "the densities of class {} are not known", head_class);
    return asked.log_density.at(static_cast<size_t>(bucket));
}

// Densities are computed anew when a sixteenth of what they are made of is new, or 64 notes.
void ReuseModel::note(Class& noted) {
    ++noted.num_noted;
    CHECK_LT(noted.num_new, noted.num_noted);
    if (++noted.num_new > std::min<int64_t>(64, noted.num_noted / 16)) noted.is_computed = false;
}

void ReuseModel::update(Class& changed) {
    constexpr int32_t kUnit = 32;  // densities in units of 2^-32
    changed.is_computed = true;
    changed.num_new = 0;
    for (int32_t bucket = 0; bucket < kNumBuckets; ++bucket) {
        const auto reached = static_cast<uint64_t>(changed.reached[bucket] + kPrior);
        uint64_t uses = 1;
        uint64_t best = 0;
        for (int32_t end = bucket + 1; end < kNumBuckets; ++end) {
            uses += static_cast<uint64_t>(changed.used[end - 1]);
            const auto horizon = static_cast<uint64_t>(std::max<int64_t>(1, begin_of(end) - begin_of(bucket)));
            if (horizon > (uint64_t{1} << 28)) break;
            best = std::max(best, ((uses << kUnit) / reached) / horizon);
        }
        changed.log_density[bucket] = log2_fixed(std::max<uint64_t>(best, 1));
        CHECK_GE(changed.log_density[bucket], 0);
    }
}

}  // namespace verbatim
