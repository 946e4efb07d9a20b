// tests/reference/numerics/tensor_cases.h: an independent definition of a tensor.sm90 group in long double, and random
// groups that cover each of its rules.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/base/prng.h"
#include "reference/numerics/tensor_sm90.h"

namespace verbatim::reference {

// 64 bits of significand and exponents to 2^16383 hold every term, every cut and every sum of 17 exactly.
static_assert(std::numeric_limits<long double>::digits >= 64 && std::numeric_limits<long double>::max_exponent > 1000);

struct GroupCase {
    uint16_t a[kTensorGroup] = {};
    uint16_t b[kTensorGroup] = {};
    float acc = 0;
};

// The exponent of a significand in [1, 2), or of a subnormal.
inline int extended_exponent(long double x) {
    return std::isfinite(x) ? static_cast<int>(std::max(-126.0L, std::logb(x))) : 0;
}

// In extended precision: truncations of quotients, no integers.
inline float group_in_long_double(const GroupCase& group) {
    long double terms[kTensorGroup + 1];
    int exponents[kTensorGroup + 1];
    long double whole = group.acc;  // used only for results that are not finite
    terms[kTensorGroup] = group.acc;
    exponents[kTensorGroup] = extended_exponent(group.acc);
    for (int i = 0; i < kTensorGroup; ++i) {
        const long double x = bf16_to_float(group.a[i]);
        const long double y = bf16_to_float(group.b[i]);
        terms[i] = x * y;
        whole += terms[i];
        exponents[i] = extended_exponent(x) + extended_exponent(y);
    }
    if (!std::isfinite(whole)) return static_cast<float>(whole);
    int largest = std::numeric_limits<int>::min();
    for (int i = 0; i <= kTensorGroup; ++i) {
        if (terms[i] != 0) largest = std::max(largest, exponents[i]);
    }
    long double sum = 0;
    for (const long double term : terms) {
        if (term != 0) sum += std::trunc(std::scalbln(term, kTensorFractionBits - largest));
    }
    if (sum == 0) return 0.0F;
    sum = std::scalbln(sum, largest - kTensorFractionBits);
    const int last_bit = extended_exponent(sum) - 23;
    return static_cast<float>(std::scalbln(std::trunc(std::scalbln(sum, -last_bit)), last_bit));
}

// Any bits; any stored values (NUMERICS N2); a zero product next to an accumulator far below; products beyond binary32
// that cancel; subnormal factors and accumulators; infinities and NaN among few values.
enum class Groups : uint8_t { kAnyBits, kStored, kZeroNextToHuge, kOverflowCancels, kSubnormal, kSpecial };
inline constexpr Groups kAllGroups[] = {Groups::kAnyBits,         Groups::kStored,    Groups::kZeroNextToHuge,
                                        Groups::kOverflowCancels, Groups::kSubnormal, Groups::kSpecial};
inline constexpr Groups kStoredGroups[] = {Groups::kStored, Groups::kZeroNextToHuge, Groups::kOverflowCancels,
                                           Groups::kSpecial};

// sign · 1.xxxxxxx · 2^exponent
inline uint16_t draw_normal(Prng& prng, int exponent) {
    return static_cast<uint16_t>(prng.below(2) << 15 | static_cast<uint64_t>(exponent + 127) << 7 | prng.below(128));
}
// Multiples of 2^-126, as accumulators are in tensor.sm90.
inline float draw_accumulator(Prng& prng, int least, int most) {
    const auto exponent = least + static_cast<int>(prng.below(static_cast<uint64_t>(most - least + 1)));
    return float_from_bits(uint32_t{draw_normal(prng, exponent)} << 16 | static_cast<uint32_t>(prng.below(1 << 16)));
}

inline GroupCase draw_group(Prng& prng, Groups kind) {
    GroupCase group;
    const auto between = [&](int least, int most) {
        return draw_normal(prng, least + static_cast<int>(prng.below(static_cast<uint64_t>(most - least + 1))));
    };
    // Close to one another, so that most terms contribute.
    const int a_center = static_cast<int>(prng.below(100)) - 40;
    const int b_center = static_cast<int>(prng.below(100)) - 40;
    for (int i = 0; i < kTensorGroup; ++i) {
        group.a[i] = prng.below(8) == 0 ? uint16_t{0} : between(a_center - 12, a_center + 12);
        group.b[i] = between(b_center - 12, b_center + 12);
    }
    group.acc = draw_accumulator(prng, std::max(-103, a_center + b_center - 30), std::min(127, a_center + b_center));
    switch (kind) {
        case Groups::kStored: break;
        case Groups::kAnyBits:
            for (uint16_t& x : group.a) x = static_cast<uint16_t>(prng.next());
            for (uint16_t& x : group.b) x = static_cast<uint16_t>(prng.next());
            group.acc = float_from_bits(static_cast<uint32_t>(prng.next()));
            break;
        case Groups::kZeroNextToHuge:
            for (int i = 0; i < kTensorGroup; ++i) {
                group.a[i] = i % 3 == 0 ? between(-56, -50) : uint16_t{0};
                group.b[i] = i % 3 == 0 ? between(-56, -50) : between(60, 127);
            }
            group.acc = draw_accumulator(prng, -103, -60);
            break;
        case Groups::kOverflowCancels:
            for (int i = 0; i < kTensorGroup; i += 2) {
                group.a[i] = between(60, 127);
                group.b[i] = between(60, 127);
                group.a[i + 1] = group.a[i] ^ 0x8000U;
                group.b[i + 1] = prng.below(6) == 0 ? group.b[i] ^ 1U : group.b[i];
            }
            group.acc = draw_accumulator(prng, 60, 127);
            break;
        case Groups::kSubnormal:
            for (int i = 0; i < kTensorGroup; ++i) {
                group.a[i] = prng.below(2) == 0 ? static_cast<uint16_t>(prng.below(128)) : between(-126, -120);
                group.b[i] = prng.below(4) == 0 ? static_cast<uint16_t>(prng.below(128)) : between(-26, 10);
            }
            group.acc = float_from_bits(static_cast<uint32_t>(prng.below(1 << 24)));
            break;
        case Groups::kSpecial:
            constexpr uint16_t kSpecials[] = {0x7F80, 0xFF80, 0x7FC0, 0x0000, 0x3F80};
            group.a[prng.below(16)] = kSpecials[prng.below(5)];
            group.b[prng.below(16)] = kSpecials[prng.below(5)];
            if (prng.below(2) == 0) group.acc = bf16_to_float(kSpecials[prng.below(5)]);
            break;
    }
    return group;
}

// Maps all NaNs to one.
inline uint32_t group_bits(float sum) { return is_nan(sum) ? kQuietNanBits : bits_from_float(sum); }

}  // namespace verbatim::reference
