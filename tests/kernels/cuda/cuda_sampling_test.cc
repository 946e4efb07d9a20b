// The draw on a device: the token of reference::sample, whatever the parameters and the order of threads.
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/draw_on.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {
namespace {

using simt::Schedule;
using tests::SamplingCase;

class DrawingDevice {
public:
    explicit DrawingDevice(Schedule schedule) : emulator_(schedule, 17), device_(make_emulated_device(emulator_)) {}
    std::vector<int32_t> draw(const std::vector<SamplingCase>& cases) {
        const std::vector<int32_t> tokens = draw_on(*device_, cases);
        EXPECT_TRUE(emulator_.findings().empty()) << emulator_.findings().front().text;
        return tokens;
    }

private:
    simt::Emulator emulator_;
    std::unique_ptr<Device> device_;
};

TEST(CudaSampling, DrawsTheDefinitionsTokenInAnyOrderOfThreads) {
    for (const Schedule schedule : schedules()) {
        DrawingDevice device(schedule);
        Prng prng(5);
        for (int round = 0; round < 24; ++round) {
            const size_t vocab_size = 1 + prng.below(round % 6 == 0 ? 2500 : 200);
            std::vector<SamplingCase> cases;
            for (int row = 0; row < 4; ++row) cases.emplace_back(prng, vocab_size, row);
            const std::vector<int32_t> tokens = device.draw(cases);
            for (size_t row = 0; row < cases.size(); ++row) {
                ASSERT_EQ(tokens[row], reference::sample(cases[row].args())) << "round " << round << ", row " << row;
            }
        }
    }
}

TEST(CudaSampling, ATinyTemperatureMakesTheGreatestEqual) {
    Prng prng(6);
    std::vector<SamplingCase> cases;
    for (int row = 0; row < 4; ++row) {
        SamplingCase& one = cases.emplace_back(prng, 300, 1);
        one.params.temperature = 1e-38F;  // every positive logit becomes infinite
        one.params.top_p = row < 2 ? 0.4F : 1.0F;
        one.params.top_k = row % 2 == 0 ? 0 : 40;
    }
    const std::vector<int32_t> tokens = DrawingDevice(Schedule::kRandom).draw(cases);
    for (size_t row = 0; row < cases.size(); ++row) ASSERT_EQ(tokens[row], reference::sample(cases[row].args()));
}

TEST(CudaSampling, ARowThatIsNotFiniteEndsAlone) {
    Prng prng(7);
    std::vector<SamplingCase> cases;
    for (int row = 0; row < 4; ++row) cases.emplace_back(prng, 500, 0).params.top_p = 0.9F;
    const int32_t wanted = reference::sample(cases[1].args());
    for (float& logit : cases[0].logits) logit = std::numeric_limits<float>::quiet_NaN();
    cases[2].logits[77] = std::numeric_limits<float>::infinity();
    cases[3].logits[78] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(DrawingDevice(Schedule::kReverse).draw(cases)[1], wanted);
}

// The executor's own way: what a sequence knows of its prefix, and a graph whose draws change from step to step.
TEST(CudaSampling, TheExecutorSamplesWithPrefixPositionAndSeed) {
    const tests::SceneModel model(reference::draw_small_config(reference::Architecture::kMamba2, 9), 9);
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator);
    CudaExecutor executor(model.model.config, model.model.weights, *device, {.pools = {.num_state_rows = 2}});
    tests::Scene scene(model, executor, 16);
    const SamplingParams params[] = {{.temperature = 1.5F,
                                      .repetition_penalty = 1.4F,
                                      .presence_penalty = 0.3F,
                                      .frequency_penalty = 0.2F,
                                      .seed = 3},
                                     {.temperature = 0.9F, .top_k = 20, .top_p = 0.8F, .seed = 4}};
    std::vector<std::vector<TokenId>> tokens = {model.tokens(12, 1), model.tokens(7, 2)};
    scene.next();
    for (int32_t slot = 0; slot < 2; ++slot) {
        scene.start({.slot = slot, .tokens = tokens[slot], .sampling = params[slot], .num_prompt_tokens = 5});
        scene.compute({.slot = slot,
                       .num_new_tokens = static_cast<int32_t>(tokens[slot].size()),
                       .num_sampled_positions = 1,
                       .state_dst = slot});
    }
    for (int step = 0; step < 8; ++step) {
        scene.step();
        scene.next();
        for (int32_t slot = 0; slot < 2; ++slot) {
            std::vector<TokenId>& known = tokens[slot];
            const TokenId token = token_of(scene.result, slot);
            const std::span<const TokenId> prefix(known);
            EXPECT_EQ(token, reference::sample({executor.logits(SequenceSlot{slot}, 0),
                                                params[slot],
                                                {prefix.first(5), prefix.subspan(5)},
                                                known.size()}))
                << "slot " << slot << ", step " << step;
            known.push_back(token);
            scene.compute({.slot = slot,
                           .num_computed_tokens = static_cast<int64_t>(known.size()) - 1,
                           .num_new_tokens = 1,
                           .num_sampled_positions = 1,
                           .state_src = slot,
                           .state_dst = slot,
                           .appended = {token}});
        }
    }
    EXPECT_GT(device->counts().graph_launches, 4);
    EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
}

}  // namespace
}  // namespace verbatim::cuda
