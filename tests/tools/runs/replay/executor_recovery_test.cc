// A device error ends the executor and not the conversations: the engine goes on with a fresh one from the committed
// tokens, and every answer is that of a run that nothing disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "files/repository_path.h"
#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "reference/loader/model_choice.h"
#include "simulator/trace_driver.h"
#include "tests/support/sanitized.h"
#include "tests/tools/program/run_program.h"
#include "tools/program/cli.h"
#include "traces/read.h"
#include "traces/requests.h"

namespace verbatim::tools {
namespace {

using ::testing::HasSubstr;
using Committed = std::map<std::string, std::vector<TokenId>>;  // by conversation

constexpr PoolSizes kPools = {.block_size = 16, .num_blocks = 40, .num_state_rows = 16};

// Three conversations, drawing greedily, with a seed of the trace and with one of the engine.
constexpr const char* kTrace =
    "# verbatim-trace 1\n"
    "event,conversation,start,tokens,max_tokens,temperature,seed\n"
    "history,a,arrival,1:0+21,6,,\n"
    "history,b,arrival,2:0+16,5,1,7\n"
    "history,c,arrival,3:0+9,8,0.9,\n"
    "suffix,a,answer,4:0+5,4,,\n"
    "suffix,b,answer,5:0+9,5,1,8\n"
    "suffix,a,answer,6:0+3,5,,\n";

// A CUDA executor on a separate emulated device.
struct Emulated {
    Emulated(const reference::Model& model, const cuda::EmulatedDeviceConfig& failure)
        : device(cuda::make_emulated_device(emulator, failure)),
          executor(model.config, model.weights, *device, {.pools = kPools}) {}
    simt::Emulator emulator;
    std::unique_ptr<cuda::Device> device;
    cuda::CudaExecutor executor;
};

class TraceRun {
public:
    explicit TraceRun(const cuda::EmulatedDeviceConfig& failure)
        : model_(*reference::choose_model("tiny-granite", 3)),
          executor_(std::make_unique<Emulated>(model_, failure)),
          store_(model_.config.vocab_size),
          engine_(config(), executor_->executor, policy_, store_, recorder_) {
        const Result<traces::ReadTrace> read = traces::read_trace_text("three.csv", kTrace);
        EXPECT_TRUE(read.has_value()) << read.error().message;
        trace_ = read->trace;
        requests_.emplace(*traces::RequestMaker::create(trace_, store_));
        TraceDriver driver({.verify_every_step = true}, trace_, *requests_, engine_, store_);
        const auto done = driver.run({}, [&](const Error& failure) { return recover(failure); });
        EXPECT_TRUE(done.has_value()) << done.error().message;
        report_ = *done;
        EXPECT_TRUE(report_.unexpected.empty()) << report_.unexpected.front();
        EXPECT_TRUE(executor_->emulator.findings().empty()) << executor_->emulator.findings().front().text;
    }
    [[nodiscard]] Committed committed() const {
        Committed all;
        for (const char* id : {"a", "b", "c"}) {
            const auto* conversation = engine_.ledger().find({{}, id});
            if (conversation != nullptr) all[id] = conversation->committed.to_vector();
        }
        return all;
    }
    [[nodiscard]] int64_t num_launches() const { return executor_->emulator.num_launches(); }
    [[nodiscard]] int64_t num_allocations() const { return executor_->device->counts().allocations; }
    [[nodiscard]] const DriverReport& report() const { return report_; }
    [[nodiscard]] const std::vector<std::string>& failures() const { return failures_; }
    [[nodiscard]] bool used_graphs() const { return executor_->device->counts().graph_launches > 0; }

private:
    static EngineConfig config() {
        EngineConfig engine;
        engine.cache.pools = kPools;
        engine.max_model_len = 256;
        engine.digest_heads = true;
        return engine;
    }
    Status recover(const Error& failure) {
        failures_.push_back(failure.message);
        const Committed before = committed();
        executor_ = std::make_unique<Emulated>(model_, cuda::EmulatedDeviceConfig{});
        engine_.replace_executor(executor_->executor);
        EXPECT_EQ(committed(), before);
        return {};
    }

    reference::Model model_;
    std::unique_ptr<Emulated> executor_;
    TokenStore store_;
    LruEviction policy_;
    DigestRecorder recorder_;
    Engine engine_;
    traces::Trace trace_;
    std::optional<traces::RequestMaker> requests_;
    DriverReport report_;
    std::vector<std::string> failures_;
};

TEST(ExecutorRecovery, AfterADeviceErrorEveryAnswerIsThatOfAnUndisturbedRun) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer does not know the emulator's fibers";
#endif
    const TraceRun undisturbed({});
    ASSERT_EQ(undisturbed.report().served, 6);
    ASSERT_TRUE(undisturbed.used_graphs());
    for (const int64_t percent : {0, 15, 50, 75, 90}) {  // what comes last digests heads, and no step sees it
        if (tests::kSanitized && percent % 90 != 0) continue;
        const int64_t launch = 1 + undisturbed.num_launches() * percent / 100;
        SCOPED_TRACE(launch);
        const TraceRun run({.fail_at_launch = launch});
        ASSERT_EQ(run.failures().size(), 1u);
        EXPECT_THAT(run.failures().front(), HasSubstr(fmt::format("blocks: told to fail at launch {}", launch)));
        EXPECT_EQ(run.report().served, 6);
        EXPECT_GT(run.report().resent, 0);
        EXPECT_EQ(run.committed(), undisturbed.committed());
    }
    // The device's memory runs out in the middle of the run.
    const TraceRun run({.fail_at_allocation = undisturbed.num_allocations()});
    ASSERT_EQ(run.failures().size(), 1u);
    EXPECT_THAT(run.failures().front(), HasSubstr("told to find no memory"));
    EXPECT_GT(run.report().resent, 0);
    EXPECT_EQ(run.committed(), undisturbed.committed());
}

// The layer hears of the hidden rows of the fresh executor.
TEST(ExecutorRecovery, ADrafterOfHiddenRowsFollowsTheFreshExecutor) {
    std::vector<std::string> arguments = {"replay",
                                          "--trace",
                                          repository_path("traces/scenario.csv"),
                                          "--model",
                                          "tiny-qwen3.5",
                                          "--draft",
                                          "mtp",
                                          "--window",
                                          "4",
                                          "--details",
                                          "--fail-executor-at",
                                          "9"};
    const Outcome ran = run_verbatim(arguments);
    EXPECT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
    EXPECT_THAT(ran.out, ::testing::ContainsRegex("executors replaced +1\n"));
    EXPECT_THAT(ran.out, ::testing::ContainsRegex("first difference +identical\n"));
}

TEST(ExecutorRecovery, ReplayContinuesWithAFreshExecutorOnRequest) {
    const std::vector<std::string> arguments = {
        "replay",    "--trace",           repository_path("traces/scenario.csv"), "--model", "tiny-llama",
        "--details", "--fail-executor-at"};
    auto failing = arguments;
    failing.emplace_back("30");
    const Outcome ran = run_verbatim(failing);
    EXPECT_EQ(ran.exit_code, kExitOk) << ran.err << ran.out;
    EXPECT_THAT(ran.out, ::testing::ContainsRegex("executors replaced +1\n"));
    EXPECT_THAT(ran.out, ::testing::ContainsRegex("first difference +identical\n"));
    auto never = arguments;
    never.emplace_back("1000000");
    EXPECT_EQ(run_verbatim(never).exit_code, kExitDifference);
}

}  // namespace
}  // namespace verbatim::tools
