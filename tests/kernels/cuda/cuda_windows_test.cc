// Windows on the CUDA kernels in the emulator: what is drafted changes nothing but how many tokens a step gives, in any
// order of threads; a fault is a row's, and a device may fail in the middle.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/schedules.h"
#include "tests/kernels/poisoned_model.h"
#include "tests/kernels/window_run.h"
#include "tests/reference/families.h"

namespace verbatim::tests {
namespace {

using reference::Architecture;
using reference::Profile;
using simt::Schedule;

constexpr int32_t kMaxLog = 12;

struct EmulatedWindows {
    EmulatedWindows(const SceneModel& model, Schedule schedule, const cuda::EmulatedDeviceConfig& config = {})
        : emulator(schedule, 7),
          device(make_emulated_device(emulator, config)),
          executor(model.model.config, model.model.weights, *device,
                   {.pools = {.block_size = 5, .num_blocks = 60, .num_state_rows = 4}, .max_log_tokens = kMaxLog},
                   model.reference.profile()) {}

    simt::Emulator emulator;
    std::unique_ptr<cuda::Device> device;
    cuda::CudaExecutor executor;
};

WindowCounts run_emulated(const SceneModel& model, Schedule schedule, uint64_t seed) {
    EmulatedWindows cuda(model, schedule);
    const WindowCounts counts = run_windows(model, cuda.executor, 5, 15, 8, kMaxLog, seed);
    EXPECT_TRUE(cuda.emulator.findings().empty()) << cuda.emulator.findings().front().text;
    return counts;
}

class CudaWindowsOf : public testing::TestWithParam<size_t> {};

TEST_P(CudaWindowsOf, TokensLogitsAndStatesAreThoseOfPlainDecoding) {
    const uint64_t number = GetParam() + 1;
    const SceneModel model(kAllFamilies[GetParam()].draw(number), number);
    const Schedule schedule = cuda::schedules()[GetParam() % cuda::schedules().size()];
    const WindowCounts counts = run_emulated(model, schedule, number);
    EXPECT_GT(counts.accepted_drafts, 10);
    EXPECT_GT(counts.rolled_back, 5);
    EXPECT_GT(counts.unwritten_rows, 0);
    if (!model.has_state) return;
    EXPECT_GT(counts.replayed, 0);
    EXPECT_GT(counts.moves, 0);
}

INSTANTIATE_TEST_SUITE_P(InEveryFamily, CudaWindowsOf, testing::Range<size_t>(0, std::size(kAllFamilies)),
                         [](const auto& info) { return kAllFamilies[info.param].name(); });

TEST(CudaWindows, OnTensorCoresTheyEqualPlainDecoding) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 4), 4, Profile::kTensorSm90);
    EXPECT_GT(run_emulated(model, Schedule::kRandom, 4).accepted_drafts, 0);
}

// Steps of one row each, whether a row is written or left behind its log, are launches of graphs.
TEST(CudaWindows, AStepWithoutDraftsIsAGraphLaunch) {
    const SceneModel model(reference::draw_small_config(Architecture::kBamba, 6), 6);
    EmulatedWindows cuda(model, Schedule::kOneWarpAhead);
    const WindowCounts counts = run_windows(model, cuda.executor, 5, 15, 1, kMaxLog, 6);
    EXPECT_TRUE(cuda.emulator.findings().empty()) << cuda.emulator.findings().front().text;
    EXPECT_GT(counts.unwritten_rows, 10);
    EXPECT_GT(counts.replayed, 20);
    EXPECT_GT(cuda.device->counts().graph_launches, 15);
}

// One sequence of a model with blocks and rows, whose drafts are chosen by hand.
class ByHand {
public:
    // Borrows both. `right`: of the sequence without drafts.
    ByHand(cuda::CudaExecutor& executor, const PlainRun& right, int32_t vocab_size)
        : executor_(executor), right_(right), plans_(vocab_size), known_(right.num_prompt) {}

    // The next `num_drafts` tokens, and then the others, are drafted.
    Status window(int64_t num_drafts, bool is_written, const std::vector<TokenId>& others = {}) {
        const auto next = right_.tokens.begin() + known_;
        std::vector<TokenId> drafts(next, next + num_drafts);
        drafts.insert(drafts.end(), others.begin(), others.end());
        plans_.next();
        SequenceSpec spec = spec_with(is_written ? 0 : -1);
        spec.num_new_tokens = static_cast<int32_t>(known_ - length_ + std::ssize(drafts));
        spec.num_sampled_positions = 1 + static_cast<int32_t>(drafts.size());
        spec.appended.insert(spec.appended.end(), drafts.begin(), drafts.end());
        if (length_ == 0) {
            const auto prompt = right_.tokens.begin() + known_;
            plans_.start({.slot = 0, .tokens = {right_.tokens.begin(), prompt}});
            spec.new_blocks = iota(0, 15);
        }
        plans_.compute(spec);
        RETURN_IF_ERROR(executor_.execute(plans_.plan(), result));
        if (is_written) state_length_ = known_;
        not_sent_ = result.tokens;
        length_ = known_ + std::ssize(result.tokens) - 1;
        known_ += std::ssize(result.tokens);
        return {};
    }
    // The row takes in all that was accepted.
    Status move() {
        plans_.next().compute(spec_with(0));
        state_length_ = length_;
        return executor_.execute(plans_.plan(), result);
    }
    // What was drawn last was drawn from the right logits.
    void expect_right(int64_t num_drawn) {
        ASSERT_EQ(std::ssize(result.tokens), num_drawn);
        for (int32_t i = 0; i < num_drawn; ++i) {
            const auto& want = right_.logits[static_cast<size_t>(known_ - num_drawn - right_.num_prompt + i)];
            EXPECT_EQ(first_different_bit(executor_.logits(SequenceSlot{0}, i), want), -1) << i;
        }
    }

    StepResult result;

private:
    SequenceSpec spec_with(int32_t state_dst) {
        return {.slot = 0,
                .num_computed_tokens = length_,
                .state_src = state_length_ > 0 ? 0 : -1,
                .state_dst = state_dst,
                .num_state_tokens = state_length_,
                .appended = std::exchange(not_sent_, {})};
    }

    cuda::CudaExecutor& executor_;
    const PlainRun& right_;
    PlanBuilder plans_;
    int64_t known_;
    int64_t length_ = 0;
    int64_t state_length_ = 0;
    std::vector<TokenId> not_sent_;
};

// The second window of as many rows is a graph's launch.
TEST(CudaWindows, AWindowLaunchesAsAPrefillAndACatchUpTwicePerLayer) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 8), 8);
    const PlainRun right(model, model.tokens(9, 1), {}, 20);
    EmulatedWindows cuda(model, Schedule::kForward);
    ByHand run(cuda.executor, right, model.model.config.vocab_size);
    int64_t before = 0;
    const auto launched = [&] {
        const int64_t now = cuda.device->counts().launches;
        return now - std::exchange(before, now);
    };
    ASSERT_TRUE(run.window(0, true));
    const int64_t of_a_prefill = launched();
    ASSERT_TRUE(run.window(5, false));  // more rows than few_rows_test.cc is about
    EXPECT_EQ(launched(), of_a_prefill);
    const cuda::DeviceCounts asked = cuda.device->counts();
    ASSERT_TRUE(run.window(5, true));
    EXPECT_EQ(launched(), 0);
    EXPECT_EQ(cuda.device->counts().graph_launches - asked.graph_launches, 1);
    EXPECT_EQ(cuda.device->counts().uploads - asked.uploads, 1);
    EXPECT_EQ(cuda.device->counts().waits - asked.waits, 1);
    run.expect_right(6);
    ASSERT_TRUE(run.move());
    EXPECT_EQ(launched(), 2 * std::ranges::count_if(model.model.config.layers,
                                                    [](const auto& layer) { return layer.mamba.has_value(); }));
}

// Two sequences with windows of so many rows each, step by step. heads: of a KV head.
void expect_one_graph(int32_t heads, const std::vector<std::array<int32_t, 2>>& rows_of_steps) {
    reference::ModelConfig config = reference::draw_small_config(Architecture::kGraniteHybrid, 8);
    for (reference::LayerConfig& layer : config.layers) {
        if (layer.attention) layer.attention->n_heads = heads * layer.attention->n_kv_heads;
    }
    const SceneModel model(config, 6);
    ASSERT_TRUE(model.has_kv && model.has_state);
    std::vector<PlainRun> right;
    for (const int64_t num_prompt : {3, 17})
        right.emplace_back(model, model.tokens(num_prompt, 4), SamplingParams{}, 45);
    EmulatedWindows cuda(model, Schedule::kReverse);
    Scene scene(model, cuda.executor, 5);
    std::vector<int64_t> length, state_length;  // the executor knows as many tokens as the row has taken in
    scene.next();
    for (const int32_t slot : {0, 1}) {
        length.push_back(right[slot].num_prompt);
        scene.start({.slot = slot, .tokens = {right[slot].tokens.begin(), right[slot].tokens.begin() + length[slot]}});
        scene.compute({.slot = slot,
                       .num_new_tokens = static_cast<int32_t>(length[slot]),
                       .num_sampled_positions = 1,
                       .state_dst = slot,
                       .new_blocks = iota(slot * 15, 15)});
    }
    scene.step();
    state_length = length;
    for (size_t step = 0; step < rows_of_steps.size(); ++step) {
        scene.next();
        for (const int32_t slot : {0, 1}) {
            const int32_t rows = rows_of_steps[step][slot];
            const auto first = right[slot].tokens.begin();
            scene.compute({.slot = slot,
                           .num_computed_tokens = length[slot],
                           .num_new_tokens = rows,
                           .num_sampled_positions = rows,
                           .state_src = slot,
                           .state_dst = slot,
                           .num_state_tokens = state_length[slot],
                           .appended = {first + state_length[slot], first + length[slot] + rows}});
            state_length[slot] = length[slot] + 1;
            length[slot] += rows;
        }
        const int64_t before = cuda.device->counts().graph_launches;
        scene.step();
        EXPECT_EQ(cuda.device->counts().graph_launches - before, step == 0 ? 0 : 1) << step;
        for (const int32_t slot : {0, 1}) {
            const int32_t rows = rows_of_steps[step][slot];
            ASSERT_EQ(scene.result.drawn.at(slot).tokens.count, rows) << "step " << step << ", slot " << slot;
            for (int32_t draw = 0; draw < rows; ++draw) {
                const int64_t output = length[slot] - rows + draw + 1 - right[slot].num_prompt;
                EXPECT_EQ(first_different_bit(cuda.executor.logits(SequenceSlot{slot}, draw),
                                              right[slot].logits[static_cast<size_t>(output)]),
                          -1)
                    << "step " << step << ", slot " << slot << ", draw " << draw;
            }
        }
    }
    EXPECT_TRUE(cuda.emulator.findings().empty()) << cuda.emulator.findings().front().text;
}

// A graph is made for a number of sequences and rows: it holds for any way to divide them, and at any length. 13 and 14
// rows of two sequences are filled up to 16 of three.
TEST(CudaWindows, OneGraphServesEveryDivisionOfRows) {
    expect_one_graph(2, {{6, 7}, {7, 6}, {5, 9}});          // four rows attend together
    expect_one_graph(2, {{8, 8}, {8, 8}, {7, 9}, {9, 7}});  // as four groups, and as five
    expect_one_graph(1, {{3, 3}, {3, 3}, {1, 5}, {2, 4}});  // eight, if there are as many
}

// A draft that is embedded as NaN, and is not the token drawn: neither the rows before it notice, nor the next window.
TEST(CudaWindows, ARejectedDraftLeavesNoTrace) {
    const PoisonedModel model;
    for (const bool is_written : {true, false}) {
        const PlainRun right(model.scene, model.sound_tokens(7, 3), {}, 16);
        ASSERT_EQ(std::ranges::count(right.tokens, 0), 0);
        EmulatedWindows cuda(model.scene, Schedule::kRandom);
        ByHand run(cuda.executor, right, model.scene.model.config.vocab_size);
        ASSERT_TRUE(run.window(1, true, {0, 0}));
        run.expect_right(2);
        ASSERT_TRUE(run.window(2, is_written, {0, 3}));
        EXPECT_EQ(run.result.drawn.at(0).fault_layer, -1);
        run.expect_right(3);
        ASSERT_TRUE(run.window(2, true));
        run.expect_right(3);
        EXPECT_TRUE(cuda.emulator.findings().empty()) << cuda.emulator.findings().front().text;
    }
}

// The token drawn at some place makes what follows it NaN: a window that holds it ends there, wherever it begins; the
// window before it in the step does not.
TEST(CudaWindows, AFaultIsReportedForItsRow) {
    constexpr int64_t kPromptTokens = 6;
    constexpr int64_t kFaultAt = 4;  // of the output
    constexpr int32_t kDraws = 7;
    const SamplingParams sampling{.temperature = 1, .seed = 5};
    const SceneModel sound(reference::draw_small_config(Architecture::kGraniteHybrid, 8), 8);
    const PlainRun right(sound, sound.tokens(kPromptTokens, 3), sampling, 12);
    const TokenId poison = right.tokens[kPromptTokens + kFaultAt];
    ASSERT_EQ(std::ranges::count(std::span(right.tokens).first(kPromptTokens + kFaultAt), poison), 0);
    const PoisonedModel model(Architecture::kGraniteHybrid, Profile::kExact, poison);
    for (int64_t begin = 0; begin <= kFaultAt; ++begin) {  // tokens of the output that are known before the window
        EmulatedWindows cuda(model.scene, Schedule::kReverse);
        Scene scene(model.scene, cuda.executor, 5);
        scene.next();
        for (const int32_t slot : {0, 1}) {
            const int64_t num_known = kPromptTokens + (slot == 1 ? begin : 0);
            const int32_t num_sampled_positions = slot == 1 ? kDraws : 3;
            const auto first = right.tokens.begin();
            const bool is_written = slot == 1 && begin % 2 == 0;
            scene.start({.slot = slot,
                         .tokens = {first, first + num_known},
                         .sampling = sampling,
                         .num_prompt_tokens = kPromptTokens});
            scene.compute({.slot = slot,
                           .num_new_tokens = static_cast<int32_t>(num_known) + num_sampled_positions - 1,
                           .num_sampled_positions = num_sampled_positions,
                           .state_dst = is_written || num_known + num_sampled_positions - 1 > kMaxLog ? slot : -1,
                           .appended = {first + num_known, first + num_known + num_sampled_positions - 1},
                           .new_blocks = iota(slot * 5, 5)});
        }
        scene.step();
        EXPECT_EQ(scene.result.drawn.at(0).tokens.count, 3U);
        EXPECT_EQ(scene.result.drawn.at(0).fault_layer, -1);
        EXPECT_EQ(scene.result.drawn.at(1).tokens.count, kFaultAt + 1 - begin);
        EXPECT_EQ(scene.result.drawn.at(1).fault_layer, model.fault_layer());
        EXPECT_TRUE(cuda.emulator.findings().empty()) << cuda.emulator.findings().front().text;
    }
}

// Whichever launch or allocation fails, in a window or in a move: an error that says so, and nothing is left.
TEST(CudaWindows, ADeviceThatFailsInAWindowFailsTheStep) {
    const SceneModel model(reference::draw_small_config(Architecture::kGraniteHybrid, 8), 8);
    const PlainRun right(model, model.tokens(9, 1), {}, 20);
    const auto run = [&](const cuda::EmulatedDeviceConfig& config, cuda::DeviceCounts& counts) -> Status {
        EmulatedWindows cuda(model, Schedule::kForward, config);
        ByHand by_hand(cuda.executor, right, model.model.config.vocab_size);
        const auto steps = [&]() -> Status {
            RETURN_IF_ERROR(by_hand.window(2, true));
            RETURN_IF_ERROR(by_hand.window(3, false));
            RETURN_IF_ERROR(by_hand.window(3, true));
            return by_hand.move();
        };
        const Status done = steps();
        EXPECT_EQ(cuda.executor.tables().is_live(SequenceSlot{0}), done.has_value());
        counts = cuda.device->counts();
        counts.launches = cuda.emulator.num_launches();  // those of graphs, too
        return done;
    };
    cuda::DeviceCounts all;
    ASSERT_TRUE(run({}, all));
    ASSERT_GT(all.graph_launches, 0);
    const auto expect_failure = [&](const cuda::EmulatedDeviceConfig& config, const std::string& what) {
        cuda::DeviceCounts counts;
        const Status failed = run(config, counts);
        ASSERT_FALSE(failed) << what;
        EXPECT_EQ(failed.error().kind, ErrorKind::kMachine);
        EXPECT_NE(failed.error().message.find(what), std::string::npos) << failed.error().message;
    };
    const int64_t stride = kSanitized ? 23 : 5;
    for (int64_t k = 1; k <= all.launches; k += stride)
        expect_failure({.fail_at_launch = k}, fmt::format("told to fail at launch {}", k));
    expect_failure({.fail_at_launch = all.launches}, fmt::format("told to fail at launch {}", all.launches));
    for (int64_t k = 1; k <= all.allocations; k += stride)
        expect_failure({.fail_at_allocation = k}, fmt::format("allocation {}, of ", k));
}

}  // namespace
}  // namespace verbatim::tests
