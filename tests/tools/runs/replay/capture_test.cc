// `verbatim replay --capture OP`: the calls that are kept are those of the run, and the sandbox's kernels take them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "kernels/executors/executor_choice.h"
#include "kernels/sandbox/capture.h"
#include "kernels/sandbox/judge.h"
#include "reference/loader/model_choice.h"
#include "simulator/trace_driver.h"
#include "tests/tools/replay/arguments.h"
#include "traces/read.h"
#include "traces/requests.h"

namespace verbatim::tools {

using namespace executors;

using namespace sandbox;

namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;
using Floats = std::vector<float>;

// What an executor wrote in every step, sequence after sequence.
class WrittenLog {
public:
    void begin(const StepPlan& plan) {
        slots_.clear();
        for (const ScheduledSequence& sequence : plan.sequences) {
            if (sequence.num_new_tokens > 0) slots_.push_back(sequence.slot);
        }
        seen_.clear();
        step_ = plan.step;
    }
    void see(const reference::Observation& seen) {
        const std::lock_guard lock(mutex_);
        Floats values;
        for (int64_t r = 0; r < seen.rows.num_rows; ++r) {
            values.insert(values.end(), seen.rows.row(r), seen.rows.row(r) + seen.rows.width);
        }
        seen_[seen.slot].emplace_back(seen.point, std::move(values));
    }
    // Every operation's rows of all sequences.
    void end() {
        for (size_t op = 0; op < longest(); ++op) {
            Floats all;
            for (const SequenceSlot slot : slots_) {
                if (op < seen_[slot].size()) {
                    const Floats& rows = seen_[slot][op].second;
                    all.insert(all.end(), rows.begin(), rows.end());
                }
            }
            if (!slots_.empty()) written[step_].push_back(std::move(all));
        }
    }
    std::map<int64_t, std::vector<Floats>> written;

private:
    size_t longest() {
        size_t most = 0;
        for (const auto& [slot, ops] : seen_) most = std::max(most, ops.size());
        return most;
    }
    std::mutex mutex_;
    int64_t step_ = 0;
    std::vector<SequenceSlot> slots_;
    std::map<SequenceSlot, std::vector<std::pair<reference::WalkPoint, Floats>>> seen_;
};

class LoggingExecutor final : public Executor {
public:
    LoggingExecutor(Executor& inner, WrittenLog& log) : inner_(inner), log_(log) {}
    Status execute(const StepPlan& plan, StepResult& result) override {
        log_.begin(plan);
        RETURN_IF_ERROR(inner_.execute(plan, result));
        log_.end();
        tokens[plan.step] = result.tokens;
        return {};
    }
    std::optional<Digest> head_digest(const HeadImage& image) override { return inner_.head_digest(image); }
    void take_freed(const FreedUnits& freed) override { inner_.take_freed(freed); }
    std::string numerics_id() const override { return inner_.numerics_id(); }
    std::map<int64_t, std::vector<TokenId>> tokens;

private:
    Executor& inner_;
    WrittenLog& log_;
};

// The scenario on the CPU with an observer: the captured calls, and the rows that were written.
struct CapturedRun {
    Workload workload;
    std::map<int64_t, std::vector<Floats>> written;
    std::map<int64_t, std::vector<TokenId>> tokens;
};
CapturedRun captured_run(const std::string& operation, const std::string& model_name) {
    const reference::Model model = *reference::choose_model(model_name, 3, {});
    const PoolSizes pools{.block_size = 16, .num_blocks = 400, .num_state_rows = 60};
    EngineConfig config;
    config.cache.pools = pools;
    config.cache.has_state = geometry(model.config).state_bytes_per_row > 0;
    config.cache.has_kv = geometry(model.config).num_attention_layers > 0;
    config.max_model_len = model.config.max_position_embeddings;
    config.digest_heads = true;
    const ChosenExecutor chosen = *choose_executor("cpu", {.pools = pools, .num_threads = 2}, model);
    WrittenLog log;
    chosen.executor->set_observer([&](const reference::Observation& seen) { log.see(seen); });
    CallSample sample;
    CapturingExecutor capturing(*chosen.executor, *chosen.executor, model, operation, sample);
    LoggingExecutor logging(capturing, log);
    TokenStore store(model.config.vocab_size);
    LruEviction policy;
    DigestRecorder recorder;
    Engine engine(config, logging, policy, store, recorder);
    const traces::Trace trace = traces::read_trace(scenario(), {})->trace;
    auto requests = traces::RequestMaker::create(trace, store);
    TraceDriver driver({.step_ns = 20'000'000}, trace, *requests, engine, store);
    EXPECT_TRUE(driver.run());
    return {sample.workload(operation, "test"), std::move(log.written), std::move(logging.tokens)};
}

Floats output_of(const Arguments& done) {
    for (const Tensor& tensor : done.tensors) {
        const bool is_state = tensor.spec.axis == Axis::kItem;  // what is left for the next call
        if (tensor.spec.role == Role::kIn || is_state) continue;
        const auto values = tensor.as<float>();
        return {values.begin(), values.end()};
    }
    return {};
}

// Queries and keys are normed by two calls, and written side by side.
bool is_half_of(const Floats& half, int64_t num_rows, const std::vector<Floats>& written) {
    const int64_t width = std::ssize(half) / num_rows;
    return std::ranges::any_of(written, [&](const Floats& rows) {
        if (std::ssize(rows) != 2 * std::ssize(half)) return false;
        for (const int64_t first : {int64_t{0}, width}) {
            bool same = true;
            for (int64_t r = 0; r < num_rows; ++r) {
                same = same && std::equal(half.begin() + r * width, half.begin() + (r + 1) * width,
                                          rows.begin() + r * 2 * width + first);
            }
            if (same) return true;
        }
        return false;
    });
}

struct Kind {
    std::string operation;
    std::string model = "tiny-granite";
};
class CapturedCalls : public testing::TestWithParam<Kind> {};

// The definition, given what was captured, writes what the executor wrote in that step: arguments are the run's.
TEST_P(CapturedCalls, HaveTheComputedArguments) {
    const auto& [name, model] = GetParam();
    const CapturedRun run = captured_run(name, model);
    const Operation& operation = *find_operation(name);
    EXPECT_GT(run.workload.num_calls, 100);
    ASSERT_GT(run.workload.calls.size(), 20u);
    int64_t complete = 0;
    for (const CapturedCall& call : run.workload.calls) {
        const Status valid = check_captured(operation, call.one.sizes, *call.one.captured);
        ASSERT_TRUE(valid) << valid.error().message;
        const Arguments made = make_arguments(operation, call.one);
        if (captured_of(made).tensors.size() != call.one.captured->tensors.size()) continue;  // some are made
        ++complete;
        const Arguments done = defined(made, "exact");
        if (name == "sampling") {
            const auto tokens = done.tensor("tokens").as<int32_t>();
            EXPECT_EQ(std::vector<TokenId>(tokens.begin(), tokens.end()), run.tokens.at(call.step));
            continue;
        }
        if (name == "l2_norm") {
            EXPECT_TRUE(is_half_of(output_of(done), done.num_rows(), run.written.at(call.step))) << call.step;
            continue;
        }
        EXPECT_THAT(run.written.at(call.step), Contains(output_of(done))) << call.step << " " << call.layer;
    }
    EXPECT_GT(complete, 20) << "of " << run.workload.calls.size();
}

INSTANTIATE_TEST_SUITE_P(Walked, CapturedCalls,
                         testing::Values(Kind{"matmul"}, Kind{"rms_norm"}, Kind{"gated_norm"}, Kind{"conv"},
                                         Kind{"scan"}, Kind{"rope", "tiny-llama"}, Kind{"attention"},
                                         Kind{"activation"}, Kind{"sampling"}, Kind{"scan", "tiny-falcon-h1"},
                                         Kind{"delta_update", "tiny-qwen3.5"}, Kind{"delta_gates", "tiny-qwen3.5"},
                                         Kind{"l2_norm", "tiny-qwen3.5"}, Kind{"conv", "tiny-qwen3.5"},
                                         Kind{"gated_norm", "tiny-qwen3.5"}, Kind{"router", "tiny-granite-moe"},
                                         Kind{"choose", "tiny-granite-moe"}, Kind{"choose", "tiny-nemotron-moe"},
                                         Kind{"experts", "tiny-granite-moe"}, Kind{"experts", "tiny-nemotron-moe"},
                                         Kind{"add_routed", "tiny-granite-moe"}, Kind{"choose", "tiny-qwen3.5-moe"},
                                         Kind{"experts", "tiny-qwen3.5-moe"}, Kind{"add_routed", "tiny-qwen3.5-moe"}),
                         [](const auto& info) { return fmt::format("{}{}", info.param.operation, info.index); });

// --- which calls are kept

CallSample::Shape shape_of(int64_t rows) { return {{rows, 4}, std::vector<int64_t>(static_cast<size_t>(rows), 1), {}}; }

// Whatever the order, the same shapes; each counted in full.
TEST(CallSample, KeepsTheSameShapesInEveryOrder) {
    const auto sampled = [](bool reversed) {
        CallSample sample(8);
        for (int64_t i = 0; i < 300; ++i) {
            const int64_t at = reversed ? 299 - i : i;
            sample.add(0, 0, shape_of(1 + at % 50), [] { return Captured{}; });
        }
        std::map<int64_t, int64_t> times;
        const Workload workload = sample.workload("rms_norm", "");
        EXPECT_EQ(workload.num_calls, 300);
        EXPECT_EQ(workload.num_shapes, 50);
        for (const CapturedCall& call : workload.calls) times[call.one.sizes[0]] = call.times;
        return times;
    };
    EXPECT_EQ(sampled(false).size(), 8u);
    EXPECT_EQ(sampled(false), sampled(true));
    for (const auto& [rows, times] : sampled(false)) EXPECT_EQ(times, 6) << rows;
}

// Values go, places stay, and no file is larger than it may be.
TEST(CallSample, AWorkloadHasNoMoreValuesThanAFileMayHave) {
    CallSample sample;
    for (int64_t rows = 1; rows <= 200; ++rows) {
        sample.add(0, 0, shape_of(rows), [&] {
            Captured captured{std::vector<int64_t>(static_cast<size_t>(rows), 1), {}, {}};
            captured.tensors.push_back({"x", std::vector<std::byte>(300'000), false});
            captured.tensors.push_back({"places", std::vector<std::byte>(8), true});
            return captured;
        });
    }
    const Workload workload = sample.workload("rms_norm", "");
    EXPECT_EQ(workload.calls.size(), kMostCalls);
    size_t bytes = 0;
    for (const CapturedCall& call : workload.calls) {
        ASSERT_FALSE(call.one.captured->tensors.empty());
        EXPECT_EQ(call.one.captured->tensors.back().tensor, "places");
        for (const auto& values : call.one.captured->tensors) bytes += values.bytes.size();
    }
    EXPECT_LE(bytes, kMostValueBytes);
    EXPECT_GT(bytes, kMostValueBytes / 2);
}

// --- from replay to kernel check

TEST(ReplayCapture, CapturedCallsAreTriedInAdditionToGeneratedOnes) {
    const tests::ScratchFolder scratch;
    for (const std::string draft : {"none", "ngram"}) {
        const std::string file = scratch.path(draft + ".json");
        const Outcome ran = run_replay({"--trace", scenario(), "--limit", "6", "--beside", "none", "--draft", draft,
                                        "--capture", "scan", "--capture-out", file});
        ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
        const json workload = json::parse(file_bytes(file));
        EXPECT_EQ(workload["workload"], "scan");
        EXPECT_GT(workload["calls"], workload["shapes"]);
        const Outcome made = run_verbatim({"kernel", "check", "scan", "--effort", "short", "--format", "json"});
        const Outcome both =
            run_verbatim({"kernel", "check", "scan", "--effort", "short", "--format", "json", "--workload", file});
        ASSERT_EQ(both.exit_code, kExitOk) << both.err << both.out;
        EXPECT_EQ(json::parse(both.out)["cases"].get<size_t>(),
                  json::parse(made.out)["cases"].get<size_t>() + workload["kept"].size());
        EXPECT_THAT(both.out, HasSubstr("calls of scenario.csv"));
    }
}

// The emulated GPU computes the same batches in separate memory: values that are read back are the same, byte for byte.
TEST(ReplayCapture, TheSameRunOnAnotherMachineIsTheSameFile) {
    const tests::ScratchFolder scratch;
    for (const std::string operation : {"scan", "attention"}) {
        std::vector<std::string> files;
        for (const std::string executor : {"cpu", "cuda-emulated"}) {
            files.push_back(scratch.path(executor + ".json"));
            const Outcome ran = run_replay({"--trace", scenario(), "--executor", executor, "--beside", "none",
                                            "--capture", operation, "--capture-out", files.back(), "--limit", "4"});
            ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
        }
        EXPECT_EQ(file_bytes(files[0]), file_bytes(files[1])) << operation;
    }
}

TEST(ReplayCapture, WrongFlagsAreSaid) {
    const auto expect = [&](std::vector<std::string> flags, const std::string& what) {
        const Outcome ran = run_replay(std::move(flags));
        EXPECT_EQ(ran.exit_code, kExitBadUsage) << what;
        EXPECT_THAT(ran.err, HasSubstr(what));
    };
    expect({"--trace", scenario(), "--capture", "scan"}, "--capture-out");
    expect({"--trace", scenario(), "--capture", "skan", "--capture-out", "x"}, "gated_norm");
    expect({"--capture", "scan", "--capture-out", "x"}, "--trace");
    expect({"--trace", scenario(), "--executor", "reference", "--capture", "scan", "--capture-out", "x"}, "batches");
    expect({"--trace", scenario(), "--capture", "scan", "--capture-out", "x", "--record", "y"}, "--record");
    expect({"--trace", scenario(), "--capture", "scan", "--capture-out", "x", "--policy", "exact"}, "--policy");
    const Outcome nowhere = run_replay({"--trace", scenario(), "--capture", "scan", "--capture-out", "/nowhere/x"});
    EXPECT_NE(nowhere.exit_code, kExitOk);
    EXPECT_THAT(nowhere.err, HasSubstr("/nowhere/x"));
}

}  // namespace
}  // namespace verbatim::tools
