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

namespace {

constexpr uint64_t kOne = uint64_t{1} << 32;  // of densities and shares

}  // namespace

int32_t ReuseModel::class_of(const HeadClass& of) {
    CHECK(of.kind < HeadKind::kCount && of.num_uses >= 0 && of.generation >= 0,
          "a head of kind {} with {} uses in generation {}", static_cast<int>(of.kind), of.num_uses, of.generation);
    const auto octave = of.generation == 0 ? 0 : std::bit_width(static_cast<uint32_t>(of.generation) - 1) + 1;
    const auto place = of.num_uses == 0 ? std::min<int64_t>(octave, kNumGenerations - 1)
                                        : kNumGenerations + std::min<int64_t>(of.num_uses, kMaxUses) - 1;
    return static_cast<int32_t>(of.kind) * kClassesPerKind + static_cast<int32_t>(place);
}

int32_t ReuseModel::bucket_of(int64_t age) {
    CHECK_GE(age, 0);
    if (age == 0) return 0;
    const auto bucket = static_cast<int32_t>((2 * log2_fixed(static_cast<uint64_t>(age))) >> 16);
    return std::min(bucket, kNumBuckets - 1);
}

namespace {

// The lowest age a with a^2 >= 2^bucket.
constexpr int64_t computed_begin(int32_t bucket) {
    if (bucket == 0) return 0;
    if (bucket % 2 == 0) return int64_t{1} << (bucket / 2);
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

constexpr std::array<int64_t, ReuseModel::kNumBuckets + 1> kBegins = [] {
    std::array<int64_t, ReuseModel::kNumBuckets + 1> begins{};
    for (int32_t bucket = 0; bucket <= ReuseModel::kNumBuckets; ++bucket) begins[bucket] = computed_begin(bucket);
    return begins;
}();

}  // namespace

int64_t ReuseModel::begin_of(int32_t bucket) {
    CHECK(bucket >= 0 && bucket <= kNumBuckets, "bucket {}", bucket);
    return kBegins[static_cast<size_t>(bucket)];
}

void ReuseModel::note_reached(int32_t head_class, int32_t bucket) {
    CHECK(head_class >= 0 && head_class < kNumClasses && bucket >= 0 && bucket < kNumBuckets, "class {}, bucket {}",
          head_class, bucket);
    Class& noted = classes_.at(static_cast<size_t>(head_class));
    note(noted);
    count(noted.counts, bucket);
    count(all_generations_.at(without_generation(head_class)), bucket);
}

void ReuseModel::count(Counts& counts, int32_t bucket) {
    if (++counts.reached.at(static_cast<size_t>(bucket)) < kMostReached) return;
    for (int64_t& reached : counts.reached) reached /= 2;
    for (int64_t& used : counts.used) used /= 2;
    CHECK_LT(counts.reached.at(static_cast<size_t>(bucket)), kMostReached);
}

size_t ReuseModel::without_generation(int32_t head_class) {
    CHECK(head_class >= 0 && head_class < kNumClasses, "class {}", head_class);
    const int32_t place = head_class % kClassesPerKind;
    const int32_t uses = std::max(0, place - kNumGenerations + 1);
    const int32_t kind = head_class / kClassesPerKind;
    return static_cast<size_t>(kind) * (kMaxUses + 1) + static_cast<size_t>(uses);
}

void ReuseModel::note_used(int32_t head_class, int32_t bucket) {
    CHECK(head_class >= 0 && head_class < kNumClasses && bucket >= 0 && bucket < kNumBuckets, "class {}, bucket {}",
          head_class, bucket);
    Class& noted = classes_.at(static_cast<size_t>(head_class));
    note(noted);
    ++noted.counts.used.at(static_cast<size_t>(bucket));
    CHECK_GT(noted.counts.used.at(static_cast<size_t>(bucket)), 0);
    ++all_generations_.at(without_generation(head_class)).used.at(static_cast<size_t>(bucket));
}

int64_t ReuseModel::log_density(int32_t head_class, int32_t bucket) {
    CHECK(bucket >= 0 && bucket < kNumBuckets, "bucket {}", bucket);
    Class& asked = classes_.at(static_cast<size_t>(head_class));
    const auto place = static_cast<size_t>(bucket);
    if (!asked.is_current) update(asked, all_generations_.at(without_generation(head_class)));
    if (!asked.is_computed.test(place)) {
        asked.log_density.at(place) = computed_log_density(asked, bucket);
        asked.is_computed.set(place);
    }
    CHECK_GE(asked.log_density.at(place), 0);
    return asked.log_density.at(place);
}

// Densities are computed anew when a sixteenth of what they are made of is new, or 64 notes.
void ReuseModel::note(Class& noted) {
    ++noted.num_noted;
    CHECK_LT(noted.num_new, noted.num_noted);
    if (++noted.num_new > std::min<int64_t>(64, noted.num_noted / 16)) noted.is_current = false;
}

uint64_t ReuseModel::left_behind(const Counts& counted, int32_t bucket, uint64_t left) {
    const auto used = static_cast<uint64_t>(counted.used[bucket]);
    const auto reached = std::max(static_cast<uint64_t>(counted.reached[bucket]), used);
    CHECK_LE(left, kOne);
    return used == 0 ? left : left - left * used / reached;
}

void ReuseModel::update(Class& changed, const Counts& all) {
    changed.is_current = true;
    changed.num_new = 0;
    changed.counted = changed.counts;
    changed.all_counted = all;
    changed.is_computed.reset();
    CHECK_LE(changed.num_new, changed.num_noted);
}

int64_t ReuseModel::computed_log_density(const Class& of, int32_t bucket) {
    const Counts& counted = of.counted;
    const Counts& all = of.all_counted;
    const auto reached = static_cast<uint64_t>(counted.reached[bucket]);
    const auto all_reached = static_cast<uint64_t>(all.reached[bucket]);
    uint64_t left = kOne;
    uint64_t all_left = kOne;
    uint64_t best = 1;  // what is never used has a logarithm, too
    for (int32_t end = bucket + 1; end < kNumBuckets; ++end) {
        // The same uses over a longer horizon are less.
        if (counted.used[end - 1] == 0 && all.used[end - 1] == 0 && end > bucket + 1) continue;
        left = left_behind(counted, end - 1, left);
        all_left = left_behind(all, end - 1, all_left);
        const auto horizon = static_cast<uint64_t>(std::max<int64_t>(1, begin_of(end) - begin_of(bucket)));
        if (horizon > (uint64_t{1} << 28)) break;
        const uint64_t all_share = ((kOne - all_left) * all_reached + kOne) / (all_reached + 4);
        const uint64_t share = ((kOne - left) * reached + kPrior * all_share) / (reached + kPrior);
        best = std::max(best, share / horizon);
    }
    CHECK_LE(best, kOne);
    return log2_fixed(best);
}

}  // namespace verbatim
