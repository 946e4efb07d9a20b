// The fast profile against the exact one: close results, and another name.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_executor.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/families.h"

namespace verbatim::cpu {
namespace {

using reference::Architecture;
using tests::Family;
using tests::iota;
using tests::kAllFamilies;
using tests::SceneModel;

constexpr int32_t kLength = 150;

CpuExecutorConfig config_of(Profile profile, WeightFormat weights, std::optional<Isa> isa = {}) {
    return {.pools = {.block_size = 16, .num_blocks = 16, .num_state_rows = 2},
            .num_threads = 2,
            .isa = isa,
            .profile = profile,
            .weights = weights};
}

// The logits after kLength tokens, the last of which is decoded.
std::vector<float> logits_of(const SceneModel& model, const CpuExecutorConfig& config) {
    CpuExecutor executor(model.model.config, model.model.weights, config);
    tests::PlanBuilder plans(model.model.config.vocab_size);
    const int32_t row = model.has_state ? 0 : -1;
    StepResult result;
    plans.next().start({.slot = 0, .tokens = model.tokens(kLength, 1)});
    plans.compute({.slot = 0,
                   .num_new_tokens = kLength - 1,
                   .state_dst = row,
                   .new_blocks = model.has_kv ? iota(0, 10) : iota(0, 0)});
    EXPECT_TRUE(executor.execute(plans.plan(), result));
    plans.next().compute({.slot = 0,
                          .num_computed_tokens = kLength - 1,
                          .num_new_tokens = 1,
                          .num_sampled_positions = 1,
                          .state_src = row,
                          .state_dst = row});
    EXPECT_TRUE(executor.execute(plans.plan(), result));
    const auto logits = executor.logits(SequenceSlot{0}, 0);
    return {logits.begin(), logits.end()};
}

// |a - b| / |b|
double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
    double difference = 0.0;
    double length = 0.0;
    for (size_t i = 0; i < b.size(); ++i) {
        difference += std::pow(double{a[i]} - double{b[i]}, 2);
        length += std::pow(double{b[i]}, 2);
    }
    return std::sqrt(difference / length);
}

// One rounding to bf16 that falls on the other side moves a value by 2^-8; layers of them stay below a few percent.
TEST(FastProfile, LogitsAreNearTheExactOnes) {
    for (const Family& family : kAllFamilies) {
        const SceneModel model(family.draw(41), 41);
        const auto exact = logits_of(model, config_of(Profile::kExact, WeightFormat::kBf16));
        for (const Isa isa : supported_isas()) {
            const auto fast = logits_of(model, config_of(Profile::kFast, WeightFormat::kBf16, isa));
            EXPECT_LT(relative_distance(fast, exact), 0.02) << family.name() << ", " << isa_name(isa);
        }
    }
}

// 127 steps per output's greatest weight: about one percent of a typical weight, and the errors add up at random.
TEST(FastProfile, Int8WeightsStayNear) {
    for (const Family& family : kAllFamilies) {
        const SceneModel model(family.draw(42), 42);
        const auto exact = logits_of(model, config_of(Profile::kExact, WeightFormat::kBf16));
        const auto int8 = logits_of(model, config_of(Profile::kFast, WeightFormat::kInt8));
        const double distance = relative_distance(int8, exact);
        EXPECT_GT(distance, 1e-4) << family.name();
        EXPECT_LT(distance, 0.1) << family.name();
    }
}

TEST(FastProfile, ProfileNamesAreDistinct) {
    const SceneModel model(reference::draw_small_config(Architecture::kLlama, 43), 43);
    const auto name = [&](Profile profile, WeightFormat weights) {
        return CpuExecutor(model.model.config, model.model.weights, config_of(profile, weights)).numerics_id();
    };
    EXPECT_EQ(name(Profile::kExact, WeightFormat::kBf16), "exact/1");
    EXPECT_EQ(name(Profile::kTensorSm90, WeightFormat::kBf16), "tensor.sm90/1");
    EXPECT_EQ(name(Profile::kFast, WeightFormat::kBf16), "fast/1");
    EXPECT_EQ(name(Profile::kFast, WeightFormat::kInt8), "fast/1 int8");
}

TEST(FastProfileDeath, ExactWithInt8WeightsStopsTheProgram) {
    const SceneModel model(reference::draw_small_config(Architecture::kLlama, 44), 44);
    EXPECT_DEATH(CpuExecutor(model.model.config, model.model.weights, config_of(Profile::kExact, WeightFormat::kInt8)),
                 "the exact profile has bf16 weights");
}

}  // namespace
}  // namespace verbatim::cpu
