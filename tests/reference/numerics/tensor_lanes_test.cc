// tensor_group side by side against tensor_group one by one: the same bits, whatever the values.
#include "reference/numerics/tensor_lanes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "engine/base/prng.h"
#include "tests/reference/numerics/tensor_cases.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

constexpr int kLanes = 8;

uint32_t comparable(float x) { return is_nan(x) ? kQuietNanBits : bits_from_float(x); }

struct LanedGroups {
    uint16_t a[kTensorGroup] = {};
    uint16_t b[kLanes][kTensorGroup] = {};
    float acc[kLanes] = {};

    void expect_same(const std::string& where) const {
        TensorOperand<1> inputs;
        TensorOperand<kLanes> weights;
        for (int k = 0; k < kTensorGroup; ++k) {
            inputs.set(k, 0, a[k]);
            for (int lane = 0; lane < kLanes; ++lane) weights.set(k, lane, b[lane][k]);
        }
        float got[kLanes];
        std::copy_n(acc, kLanes, got);
        tensor_group_lanes(inputs, weights, got);
        for (int lane = 0; lane < kLanes; ++lane) {
            EXPECT_EQ(comparable(got[lane]), comparable(tensor_group(a, b[lane], acc[lane]))) << where << ", " << lane;
        }
    }
};

// Accumulators are what earlier groups leave: three in a row, then the fourth is compared.
LanedGroups drawn(uint64_t seed, Values kind) {
    LanedGroups groups;
    for (uint64_t round = 0; round < 4; ++round) {
        const auto a = draw_bf16(kTensorGroup, 10 * seed + round, kind);
        std::copy_n(a.begin(), kTensorGroup, groups.a);
        for (uint64_t lane = 0; lane < kLanes; ++lane) {
            const auto b = draw_bf16(kTensorGroup, 1000 * (seed + lane) + round, kind);
            std::copy_n(b.begin(), kTensorGroup, groups.b[lane]);
            if (round < 3) groups.acc[lane] = tensor_group(groups.a, groups.b[lane], groups.acc[lane]);
        }
    }
    return groups;
}

TEST(TensorLanes, HaveTheBitsOfOneByOne) {
    for (const Values kind : kAllValues) {
        for (uint64_t seed = 1; seed < 300; ++seed) {
            drawn(seed, kind).expect_same(fmt::format("values {}, seed {}", static_cast<int>(kind), seed));
        }
    }
}

// Any bits that storage may hold, zeros among them, of every exponent; and what is not finite.
RC_GTEST_PROP(TensorLanes, HaveTheBitsOfOneByOneOverAllExponents, (uint64_t seed, bool finite)) {
    Prng prng(seed);
    // From 2^-56 on; every fourth case at one of the two ends.
    const uint64_t spread = 1 + prng.below(40);
    const uint64_t first = prng.below(8) == 0 ? 71 : prng.below(7) == 0 ? 256 - spread : 71 + prng.below(184);
    const auto draw = [&] {
        const uint64_t exponent = std::min<uint64_t>(first + prng.below(spread), finite ? 254 : 255);
        const auto bits = static_cast<uint16_t>(prng.below(2) << 15 | exponent << 7 | prng.below(128));
        if (prng.below(8) == 0) return uint16_t{0};
        return prng.below(finite ? 1'000'000 : 20) == 0 ? uint16_t{0x7F80} : bits;
    };
    LanedGroups groups;
    for (int round = 0; round < 4; ++round) {
        for (uint16_t& x : groups.a) x = draw();
        for (int lane = 0; lane < kLanes; ++lane) {
            for (uint16_t& x : groups.b[lane]) x = draw();
            if (round < 3) groups.acc[lane] = tensor_group(groups.a, groups.b[lane], groups.acc[lane]);
        }
    }
    groups.expect_same(fmt::format("seed {}", seed));
}

// Zero products next to the greatest, products beyond the range that cancel, some infinities; a different accumulator
// per lane.
TEST(TensorLanes, HaveTheBitsOfOneByOneWhereRulesMeet) {
    for (const Groups kind : kStoredGroups) {
        Prng prng(29 + static_cast<uint64_t>(kind));
        for (int round = 0; round < 3000; ++round) {
            const GroupCase group = draw_group(prng, kind);
            LanedGroups groups;
            std::copy_n(group.a, kTensorGroup, groups.a);
            for (int lane = 0; lane < kLanes; ++lane) {
                std::copy_n(group.b, kTensorGroup, groups.b[lane]);
                groups.acc[lane] = lane == 0 ? group.acc : draw_group(prng, kind).acc;
            }
            groups.expect_same(fmt::format("kind {}, round {}", static_cast<int>(kind), round));
        }
    }
}

// Sixteen greatest significands and an accumulator of their exponent: 33 bits of sum.
TEST(TensorLanes, SumsBeyond32BitsAreExact) {
    for (const uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
        LanedGroups groups;
        std::fill_n(groups.a, kTensorGroup, uint16_t{0x3FFF});
        for (int lane = 0; lane < kLanes; ++lane) {
            std::fill_n(groups.b[lane], kTensorGroup, static_cast<uint16_t>(sign | 0x3FFF));
            groups.acc[lane] = lane % 2 == 0 ? 1.9999999F : -1.9999999F;
        }
        groups.expect_same("greatest");
    }
}

// 1.9921875^2 · 2^126 fits binary32 and is not the end: eight of them are beyond it.
TEST(TensorLanes, TheGreatestExponentOverflowsToInfinity) {
    LanedGroups groups;
    for (int k = 0; k < kTensorGroup; ++k) {
        groups.a[k] = 0x5EFF;
        for (int lane = 0; lane < kLanes; ++lane) groups.b[lane][k] = k < lane ? 0x5EFF : 0;
    }
    groups.expect_same("overflow");
    EXPECT_EQ(tensor_group(groups.a, groups.b[7], 0.0F), std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace verbatim::reference
