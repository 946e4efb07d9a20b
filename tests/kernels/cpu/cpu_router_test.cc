// The CPU's router and choice against those of reference/ops: logits full of ties, NaN and infinities, every kind of
// router, groups.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/ops/router.h"
#include "reference/ops/router.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cpu {
namespace {

using reference::MoeConfig;
using reference::RouterKind;

std::vector<float> logits_with_ties(int32_t n_experts, std::mt19937_64& random) {
    std::vector<float> logits;
    const bool odd_values = random() % 3 == 0;
    for (int32_t e = 0; e < n_experts; ++e) {
        const uint64_t draw = random() % 40;
        float value = static_cast<float>(random() % 5) - 2.0F;
        if (odd_values && draw == 0) value = std::numeric_limits<float>::quiet_NaN();
        if (odd_values && draw == 1) value = std::numeric_limits<float>::infinity();
        if (odd_values && draw == 2) value = -std::numeric_limits<float>::infinity();
        if (odd_values && draw == 3) value = -0.0F;
        logits.push_back(value);
    }
    return logits;
}

MoeConfig drawn_moe(RouterKind router, std::mt19937_64& random) {
    MoeConfig moe;
    moe.router = router;
    moe.n_groups = router == RouterKind::kSigmoidBias ? 1 + static_cast<int32_t>(random() % 4) : 1;
    moe.n_chosen_groups = 1 + static_cast<int32_t>(random() % static_cast<uint64_t>(moe.n_groups));
    const int32_t per_group = 2 + static_cast<int32_t>(random() % 40);
    moe.n_experts = per_group * moe.n_groups;
    moe.n_chosen = 1 + static_cast<int32_t>(random() % static_cast<uint64_t>(per_group * moe.n_chosen_groups));
    moe.normalize = router != RouterKind::kSoftmaxChosen && random() % 2 == 0;
    moe.sum_epsilon = moe.normalize ? 1e-20 : 0.0;
    moe.scale = random() % 2 == 0 ? 1.0 : 2.5;
    return moe;
}

// Bits, but that one NaN is as good as another.
bool are_same(const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
        const bool both_nan = a[i] != a[i] && b[i] != b[i];
        if (!both_nan && reference::bits_from_float(a[i]) != reference::bits_from_float(b[i])) return false;
    }
    return a.size() == b.size();
}

TEST(CpuRouter, ChoosesAndWeighsAsTheReferenceAmongTiesAndNaNs) {
    std::mt19937_64 random(1);
    ChoiceScratch scratch;
    for (const RouterKind router : {RouterKind::kSigmoidBias, RouterKind::kSoftmaxAll, RouterKind::kSoftmaxChosen}) {
        for (int i = 0; i < 1000; ++i) {
            const MoeConfig moe = drawn_moe(router, random);
            const std::vector<float> logits = logits_with_ties(moe.n_experts, random);
            const std::vector<float> bias = logits_with_ties(moe.n_experts, random);
            std::vector<float> wanted(static_cast<size_t>(2 * moe.n_chosen)), got(wanted.size());
            reference::choose({.moe = &moe,
                               .logits = reference::dense_rows(logits.data(), 1, moe.n_experts),
                               .choice_bias = bias.data(),
                               .out = reference::dense_rows(wanted.data(), 1, 2 * int64_t{moe.n_chosen})});
            choose_row(moe, logits.data(), bias.data(), scratch, got.data());
            ASSERT_TRUE(are_same(got, wanted))
                << static_cast<int>(router) << ", " << i << ": " << moe.n_experts << " experts in " << moe.n_groups;
        }
    }
}

TEST(CpuRouter, EveryInstructionSetGivesTheReferencesLogits) {
    for (const int64_t hidden : {1, 2, 47, 256, 257, 600}) {
        for (const int64_t n_experts : {1, 10, 64, 65, 130}) {
            const std::vector<float> x = reference::draw_values(hidden, 3);
            const std::vector<float> weight = reference::draw_values(n_experts * hidden, 4);  // binary32, not bf16
            std::vector<float> wanted(static_cast<size_t>(n_experts));
            reference::router({.x = reference::dense_rows(x.data(), 1, hidden),
                               .weight = weight.data(),
                               .out = reference::dense_rows(wanted.data(), 1, n_experts)});
            AlignedArray<float> packed;
            pack_router(weight, n_experts, hidden, packed);
            for (const Isa isa : supported_isas()) {
                const RowOps& ops = *cpu_ops(isa).rows;
                std::vector<float> rounded(static_cast<size_t>(2 * num_pairs(hidden)));
                ops.round_to_floats(x.data(), hidden, 1.0F, rounded.data());
                std::vector<float> got;
                for (int64_t first = 0; first < n_experts; first += kRouterLanes) {
                    alignas(64) float lanes[kRouterLanes];
                    ops.route({.x = rounded.data(),
                               .weight = packed.data() + first * 2 * num_pairs(hidden),
                               .num_k = 2 * num_pairs(hidden),
                               .out = lanes});
                    got.insert(got.end(), lanes, lanes + std::min(kRouterLanes, n_experts - first));
                }
                EXPECT_EQ(tests::first_different_bit(got, wanted), -1)
                    << isa_name(isa) << ", " << hidden << " by " << n_experts;
            }
        }
    }
}

}  // namespace
}  // namespace verbatim::cpu
