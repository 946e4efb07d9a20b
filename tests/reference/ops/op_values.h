// tests/reference/ops/op_values.h: input values for ops, by seed.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/ops/rows.h"

namespace verbatim::reference {

// Values that hide differences in the order of sums, and values that show them.
enum class Values : uint8_t { kNormal, kTiny, kHuge, kCancelling };
inline constexpr Values kAllValues[] = {Values::kNormal, Values::kTiny, Values::kHuge, Values::kCancelling};

inline std::vector<float> draw_values(int64_t count, uint64_t seed, Values kind = Values::kNormal) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) {
        value = normal(random);
        switch (kind) {
            case Values::kNormal: break;
            case Values::kTiny: value = std::ldexp(value, -static_cast<int>(random() % 60)); break;
            case Values::kHuge: value = std::ldexp(value, static_cast<int>(random() % 50)); break;
            case Values::kCancelling:
                value = (random() % 2 == 0 ? 1.0F : -1.0F) * (1024.0F + std::floor(value * 8));
                break;
        }
    }
    return values;
}

inline std::vector<uint16_t> draw_bf16(int64_t count, uint64_t seed, Values kind = Values::kNormal) {
    std::vector<uint16_t> bits;
    for (const float value : draw_values(count, seed, kind)) bits.push_back(round_to_bf16(value));
    return bits;
}

inline std::vector<uint32_t> bits_of(const std::vector<float>& values) {
    std::vector<uint32_t> bits;
    for (const float value : values) bits.push_back(bits_from_float(value));
    return bits;
}

}  // namespace verbatim::reference
