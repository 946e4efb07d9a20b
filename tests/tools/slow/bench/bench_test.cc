// `verbatim bench` as people and scripts use it, and the counting behind its limits. No time is compared with anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "files/repository_path.h"
#include "kernels/cpu/cpu_executor.h"
#include "kernels/machine.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "tests/tools/program/run_program.h"
#include "tools/bench/cost.h"
#include "tools/bench/expert_watch.h"
#include "tools/bench/report.h"
#include "tools/bench/sequences.h"
#include "tools/program/cli.h"
#include "tools/program/isa_option.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using reference::WalkOp;
using reference::WalkSequence;
using testing::HasSubstr;

Outcome bench(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "bench");
    return run_verbatim(std::move(arguments));
}

Outcome tiny_bench(std::vector<std::string> more, const char* preset = "tiny-granite") {
    std::vector<std::string> arguments = {"--preset",   preset,  "--threads",      "2",    "--repeats", "1",
                                          "--contexts", "40,70", "--batches",      "1,3",  "--heads",   "48,53",
                                          "--suffix",   "5",     "--stream-bytes", "4MiB", "--behind",  "160,333"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return bench(std::move(arguments));
}

TEST(BenchCommand, JsonHasTheKeysThatOthersScriptAgainst) {
    const Outcome ran = tiny_bench({"--format", "json"});
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    const json result = json::parse(ran.out);
    for (const char* key : {"stream_read_gbps", "fma_gflops", "dpbf16_gflops"}) {
        EXPECT_TRUE(result["machine"].contains(key)) << key;
    }
    EXPECT_GT(result["machine"]["stream_read_gbps"], 0);
    EXPECT_GT(result["machine"]["fma_gflops"], 0);
    ASSERT_FALSE(result["rows"].empty());
    for (const json& row : result["rows"]) {
        for (const char* key : {"phase", "profile", "batch", "context", "tokens_per_s", "gbps", "gflops", "of_limit",
                                "of_limit_by_processor"}) {
            EXPECT_TRUE(row.contains(key)) << key;
        }
    }
}

TEST(BenchCommand, DeferredStateWritesComputeTheSame) {
    const Outcome ran = tiny_bench({"--row-lag", "3,1", "--format", "json"});
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    const json result = json::parse(ran.out);
    ASSERT_EQ(result["rows"].size(), 6u);  // batches of 1 and 3, lags 0, 1 and 3
    for (size_t i = 0; i < 6; ++i) {
        const json& row = result["rows"][i];
        EXPECT_EQ(row["batch"], i < 3 ? 1 : 3);
        EXPECT_EQ(row["lag"], (std::vector{0, 1, 3}[i % 3]));
        EXPECT_EQ(row["identical"], true);
        EXPECT_GT(row["step_ms"], 0);
        EXPECT_GT(row["of_lag_0"], 0);
    }
    const Outcome refused = tiny_bench({"--row-lag", "1"}, "tiny-llama");
    EXPECT_EQ(refused.exit_code, kExitBadInput) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("no Mamba layers"));
    const Outcome too_long = bench({"--preset", "tiny-granite", "--row-lag", "100", "--repeats", "10000"});
    EXPECT_THAT(too_long.err, HasSubstr("positions"));
}

TEST(BenchCommand, EveryRowThatWasAskedForIsThereAndCorrect) {
    for (const char* preset : {"tiny-granite", "tiny-llama", "tiny-mamba2"}) {
        const Outcome ran = tiny_bench({"--phases", "prefill,decode,ttft,behind,load", "--format", "json"}, preset);
        ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
        const json result = json::parse(ran.out);
        std::vector<std::string> names;
        for (const json& row : result["rows"]) {
            names.push_back(fmt::format("{} {} {}", row["phase"].get<std::string>(), row["batch"].get<int>(),
                                        row["context"].get<int>()));
            EXPECT_GT(row["of_limit"], 0) << names.back();
            EXPECT_EQ(row["correct"], true) << names.back();
        }
        EXPECT_THAT(
            names, testing::UnorderedElementsAre("load 1 0", "load_cold 1 0", "load_packed 1 0", "load_packed_cold 1 0",
                                                 "prefill 1 40", "decode 1 40", "prefill 3 40", "decode 3 40",
                                                 "prefill 1 70", "decode 1 70", "prefill 3 70", "decode 3 70",
                                                 "ttft_cached 1 48", "ttft_cached 1 53", "prefill_behind 1 160",
                                                 "decode_behind 1 160", "prefill_behind 1 333", "decode_behind 1 333"));
        EXPECT_GT(result["reference_tokens"], 1);
        EXPECT_EQ(result["correct"], true);
    }
}

TEST(BenchCommand, AGgufFileIsLoadedAndPackedForTheProfile) {
    const std::string file = VERBATIM_SOURCE_DIR "/tests/data/gguf/granite-hybrid-mixed.gguf";
    const Outcome ran = bench({"--model", file, "--phases", "load", "--profile", "exact.int8", "--repeats", "1",
                               "--threads", "1", "--format", "json"});
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    const json result = json::parse(ran.out);
    ASSERT_EQ(result["rows"].size(), 4u);
    for (const json& row : result["rows"])
        EXPECT_EQ(row["file_bytes"], std::filesystem::file_size(file)) << row["phase"];
}

TEST(BenchCommand, TheExactProfileIsComparedWithTheFastOne) {
    const Outcome ran =
        tiny_bench({"--phases", "decode,ttft", "--profile", "fast_int8,exact,fast", "--format", "json"});
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    std::map<std::string, int> rows;
    const json result = json::parse(ran.out);
    for (const json& row : result["rows"]) {
        const std::string profile = row["profile"];
        ++rows[profile];
        EXPECT_EQ(row["of_fast"].is_null(), profile != "exact");
        EXPECT_EQ(row["check"] == "finite", profile != "exact");
    }
    EXPECT_THAT(rows, testing::ElementsAre(std::pair("exact", 6), std::pair("fast", 6), std::pair("fast_int8", 6)));
    EXPECT_EQ(tiny_bench({"--profile", "quick"}).exit_code, kExitBadUsage);
}

TEST(BenchCommand, StepsOfAnySizeMeasureTheSameWork) {
    const json whole = json::parse(tiny_bench({"--phases", "prefill", "--format", "json"}).out);
    const json steps = json::parse(tiny_bench({"--phases", "prefill", "--step-tokens", "7", "--format", "json"}).out);
    ASSERT_EQ(whole["rows"].size(), steps["rows"].size());
    for (size_t i = 0; i < steps["rows"].size(); ++i) {
        EXPECT_EQ(whole["rows"][i]["tokens"], steps["rows"][i]["tokens"]);
        EXPECT_EQ(steps["rows"][i]["correct"], true);
    }
}

TEST(BenchCommand, TheTableShowsOperationsAndThePictureIsWritten) {
    const tests::ScratchFolder scratch;
    const std::string plot = scratch.path("bench.svg");
    const Outcome ran = tiny_bench({"--operations", "--plot", plot});
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    EXPECT_THAT(ran.out, HasSubstr("of limit"));
    EXPECT_THAT(ran.out, HasSubstr("scan"));
    EXPECT_THAT(file_bytes(plot),
                testing::AllOf(testing::StartsWith("<svg"), HasSubstr("decode, exact, batch 3, 70 tokens"),
                               testing::EndsWith("</svg>\n")));
    EXPECT_EQ(tiny_bench({"--phases", "decode", "--plot", "/proc/nothing/x.svg"}).exit_code, kExitMachine);
}

TEST(BenchCommand, WrongFlagsEndWithExitCode2) {
    EXPECT_EQ(bench({}).exit_code, kExitBadUsage);
    EXPECT_EQ(bench({"--preset", "tiny-granite", "--model", "/tmp"}).exit_code, kExitBadUsage);
    EXPECT_EQ(tiny_bench({"--threads", "0"}).exit_code, kExitBadUsage);
    EXPECT_EQ(tiny_bench({"--contexts", "many"}).exit_code, kExitBadUsage);
    EXPECT_EQ(tiny_bench({"--batches", "0"}).exit_code, kExitBadUsage);
    EXPECT_EQ(tiny_bench({"--heads", "1"}).exit_code, kExitBadUsage);
    EXPECT_EQ(tiny_bench({"--phases", "lunch"}).exit_code, kExitBadUsage);
    EXPECT_EQ(tiny_bench({"--dvr", "--verify-share", "nan"}).exit_code, kExitBadUsage);
    EXPECT_EQ(tiny_bench({"--speculate", "--mismatch", "0.1,nan"}).exit_code, kExitBadUsage);
    const Outcome no_isa = tiny_bench({"--isa", "sse"});
    EXPECT_EQ(no_isa.exit_code, kExitBadUsage);
    EXPECT_THAT(no_isa.err, HasSubstr("portable"));
    const Outcome no_preset = tiny_bench({}, "gpt-17");
    EXPECT_EQ(no_preset.exit_code, kExitBadUsage);
    EXPECT_THAT(no_preset.err, HasSubstr("tiny-granite"));
}

TEST(BenchCommand, ThePresetsFirstLayersAreAModelOfItsShape) {
    const Outcome ran =
        tiny_bench({"--layers", "2", "--phases", "prefill,decode", "--format", "json"}, "tiny-granite-moe");
    ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
    const json result = json::parse(ran.out);
    EXPECT_EQ(result["layers"], 2);
    reference::ModelConfig shapes = reference::preset("tiny-granite-moe").value();
    shapes.layers.resize(2);
    EXPECT_EQ(result["parameters"], reference::geometry(shapes).num_parameters);
    EXPECT_THAT(tiny_bench({"--layers", "2", "--phases", "decode"}).out, HasSubstr(", its first 2 layers"));
    const Outcome too_many = tiny_bench({"--layers", "5"});
    EXPECT_EQ(too_many.exit_code, kExitBadUsage);
    EXPECT_THAT(too_many.err, HasSubstr("tiny-granite has 4"));
    EXPECT_EQ(tiny_bench({"--layers", "0"}).exit_code, kExitBadUsage);
    EXPECT_EQ(bench({"--model", "/tmp", "--layers", "2"}).exit_code, kExitBadUsage);
    const Outcome engine = tiny_bench({"--layers", "2", "--row-lag", "3"});
    EXPECT_EQ(engine.exit_code, kExitBadUsage);
    EXPECT_THAT(engine.err, HasSubstr("--row-lag"));
}

TEST(BenchCommand, ImpossibleOptionsAreReportedAtOnce) {
    const Outcome no_room = tiny_bench({"--contexts", "16000000", "--batches", "4096"}, "llama-3.2-1b");
    EXPECT_EQ(no_room.exit_code, kExitBadInput);
    EXPECT_THAT(no_room.err, HasSubstr("are free: ask for smaller --contexts"));
    const Outcome no_model = bench({"--model", "/no/such/folder"});
    EXPECT_EQ(no_model.exit_code, kExitBadInput);
    EXPECT_THAT(no_model.err, HasSubstr("/no/such/folder"));
    const Outcome no_scratch = tiny_bench({"--phases", "load", "--scratch", "/no/such/folder"});
    EXPECT_EQ(no_scratch.exit_code, kExitBadInput);
    EXPECT_THAT(no_scratch.err, HasSubstr("name one with --scratch"));
    EXPECT_FALSE(std::filesystem::exists("/no"));
    // The golden checkpoint's own number of positions holds, a preset's is stretched.
    const Outcome too_long =
        bench({"--model", VERBATIM_SOURCE_DIR "/tests/data/golden/llama", "--contexts", "1000000"});
    EXPECT_EQ(too_long.exit_code, kExitBadInput);
    EXPECT_THAT(too_long.err, HasSubstr("positions"));
}

// Models of every family have a row for each of their operations.
TEST(BenchCommand, ExpertsAndDeltaNetsHaveTheirOperations) {
    const std::map<const char*, std::vector<std::string>> want = {
        {"tiny-granite-moe", {"route", "choose", "experts", "add_routed"}},
        {"tiny-nemotron-moe", {"route", "choose", "experts", "add_routed"}},
        {"tiny-qwen3.5", {"delta_gates", "l2_norm", "delta_update", "head_norm", "output_gate"}}};
    for (const auto& [preset, names] : want) {
        const Outcome ran = tiny_bench({"--phases", "prefill,decode", "--format", "json"}, preset);
        ASSERT_EQ(ran.exit_code, kExitOk) << preset << ran.err;
        for (const json& row : json::parse(ran.out)["rows"]) {
            std::map<std::string, double> limits;
            double sum = 0;
            for (const json& one : row["operations"]) sum += limits[one["op"]] = one["limit_ms"];
            for (const std::string& name : names) EXPECT_GT(limits[name], 0) << preset << ", " << name;
            EXPECT_NEAR(sum, row["limit_ms"], 1e-9 * sum) << preset;
        }
    }
}

TEST(BenchCommand, EveryInstructionSetOfThisMachineCanBeForced) {
    for (const cpu::Isa isa : cpu::supported_isas()) {
        const std::string name(cpu::isa_name(isa));
        const Outcome ran = tiny_bench({"--phases", "decode", "--isa", name, "--format", "json"});
        ASSERT_EQ(ran.exit_code, kExitOk) << ran.err;
        EXPECT_THAT(json::parse(ran.out)["isa"].get<std::string>(), testing::StartsWith(name));
    }
}

TEST(ReplayCommand, EveryInstructionSetReplaysTheSameDigest) {
    const auto replay = [](std::string_view isa) {
        return run_verbatim({"replay", "--trace", repository_path("traces/scenario.csv"), "--limit", "12", "--isa",
                             std::string(isa), "--format", "json"});
    };
    const json best = json::parse(replay("auto").out);
    EXPECT_EQ(best["identical"], true);
    for (const cpu::Isa isa : cpu::supported_isas()) {
        const json forced = json::parse(replay(cpu::isa_name(isa)).out);
        EXPECT_EQ(forced["identical"], true) << cpu::isa_name(isa);
        EXPECT_EQ(forced["digest"], best["digest"]) << cpu::isa_name(isa);
    }
    EXPECT_EQ(replay("mmx").exit_code, kExitBadUsage);
}

TEST(IsaOption, Avx512IsTheFasterOfTheTwo) {
    EXPECT_EQ(parse_isa("auto").value(), std::nullopt);
    EXPECT_EQ(parse_isa("portable").value(), cpu::Isa::kPortable);
    const bool has_avx512 = std::ranges::count(cpu::supported_isas(), cpu::Isa::kAvx512) > 0;
    const auto avx512 = parse_isa("avx512");
    ASSERT_EQ(avx512.has_value(), has_avx512);
    if (has_avx512) EXPECT_THAT(**avx512, testing::AnyOf(cpu::Isa::kAvx512, cpu::Isa::kAvx512Bf16));
    if (!has_avx512) EXPECT_THAT(avx512.error().message, HasSubstr("portable"));
    EXPECT_FALSE(parse_isa(""));
    EXPECT_FALSE(parse_isa("AVX2"));
}

reference::ModelConfig config_of(const char* preset) { return reference::preset(preset).value(); }

double bytes_of(const WalkCost& cost, WalkOp op) {
    double sum = 0;
    for (const OpCost& one : cost.ops()) sum += one.op == op ? one.bytes : 0;
    return sum;
}
double operations_of(const WalkCost& cost, WalkOp op) {
    double sum = 0;
    for (const OpCost& one : cost.ops()) sum += one.op == op ? one.operations : 0;
    return sum;
}

TEST(WalkCost, AStepReadsEveryMatrixOnceAndComputesEveryRow) {
    for (const char* preset : {"tiny-granite", "tiny-nemotron-h", "tiny-falcon-h1", "granite-4.0-h-350m"}) {
        reference::ModelConfig config = config_of(preset);
        double elements = 0;
        reference::ModelWeights weights;
        for (const auto& tensor : reference::checkpoint_tensors(config, weights)) {
            if (tensor.role == reference::TensorRole::kMatrix) elements += static_cast<double>(tensor.num_elements());
        }
        // The embedding is a matrix of the checkpoint: the lm_head when it is tied, an extra one otherwise.
        if (!config.tie_word_embeddings) elements -= static_cast<double>(config.vocab_size) * config.hidden_size;
        const double head = static_cast<double>(config.vocab_size) * config.hidden_size;
        WalkCost cost;
        const std::vector<WalkSequence> parts = {{0, 7, 0}, {0, 5, 20}};
        cost.add_step(config, parts, 1);
        EXPECT_DOUBLE_EQ(bytes_of(cost, WalkOp::kMatmul), 2 * elements) << preset;
        EXPECT_DOUBLE_EQ(operations_of(cost, WalkOp::kMatmul), 2 * (12 * (elements - head) + head)) << preset;
    }
}

TEST(WalkCost, AttentionReadsWhatIsVisibleAndTheScanItsState) {
    const reference::ModelConfig config = config_of("granite-4.0-h-350m");
    const auto geometry = reference::geometry(config);
    WalkCost decode;
    const std::vector<WalkSequence> parts = {{0, 1, 99}, {0, 1, 9}};
    decode.add_step(config, parts, 2);
    // 100 and 10 positions read, two written.
    EXPECT_DOUBLE_EQ(bytes_of(decode, WalkOp::kAttention), static_cast<double>(geometry.kv_bytes_per_token * 112));
    // 4 layers, 12 heads of 64: a product with q and one with p for each position.
    EXPECT_DOUBLE_EQ(operations_of(decode, WalkOp::kAttention), 4 * 12 * 110 * (4 * 64 + 4.0));
    const double state = 28.0 * 48 * 32 * 128 * 4;  // 28 layers
    EXPECT_DOUBLE_EQ(bytes_of(decode, WalkOp::kScan), 2 * 2 * state);
    WalkCost fresh;  // nothing is read at position 0
    const WalkSequence first{0, 3, 0};
    fresh.add_step(config, {&first, 1}, 0);
    EXPECT_DOUBLE_EQ(bytes_of(fresh, WalkOp::kScan), state);
    EXPECT_DOUBLE_EQ(operations_of(fresh, WalkOp::kScan), 5 * 3 * state / 4);
    EXPECT_DOUBLE_EQ(operations_of(fresh, WalkOp::kAttention), 4 * 12 * (1 + 2 + 3) * (4 * 64 + 4.0));
}

TEST(WalkCost, ExpertsAreThoseThatTheStepChose) {
    const reference::ModelConfig config = config_of("tiny-granite-moe");  // 3 layers, 3 of 8 experts, 3 x [48, 14]
    const double expert = 3.0 * 48 * 14;
    const std::vector<WalkSequence> parts = {{0, 2, 0}, {0, 3, 20}};
    const std::vector<int64_t> distinct = {8, 3, 5};
    WalkCost counted, int8(1), expected;
    counted.add_step(config, parts, 2, distinct);
    EXPECT_DOUBLE_EQ(bytes_of(counted, WalkOp::kExperts), 2 * expert * (8 + 3 + 5));
    EXPECT_DOUBLE_EQ(operations_of(counted, WalkOp::kExperts), 3 * 2 * expert * 3 * 5);  // whichever they are
    int8.add_step(config, parts, 2, distinct);
    EXPECT_DOUBLE_EQ(bytes_of(int8, WalkOp::kExperts), (expert + 4 * (14 + 14 + 48)) * (8 + 3 + 5));
    // For a single row its chosen experts, with and without a watch.
    const WalkSequence one{0, 1, 7};
    expected.add_step(config, {&one, 1}, 1);
    EXPECT_DOUBLE_EQ(bytes_of(expected, WalkOp::kExperts), 3 * 2 * expert * 3);
    // Up has no gate next to it where the activation has none.
    const reference::ModelConfig nemotron = config_of("tiny-nemotron-moe");
    const auto has_experts = [](const reference::LayerConfig& layer) { return layer.moe.has_value(); };
    const reference::MoeConfig moe = *std::ranges::find_if(nemotron.layers, has_experts)->moe;
    const auto num_layers = static_cast<double>(std::ranges::count_if(nemotron.layers, has_experts));
    WalkCost no_gate;
    no_gate.add_step(nemotron, {&one, 1}, 1);
    EXPECT_DOUBLE_EQ(bytes_of(no_gate, WalkOp::kExperts),
                     num_layers * 2 * 2 * moe.n_chosen * moe.d_ff * moe.row_width(nemotron.hidden_size));
}

// Against the sets that a second pass over the same steps finds.
TEST(ExpertWatch, CountsTheDistinctExpertsOfAStep) {
    const reference::Model model = reference::make_random_model(config_of("tiny-granite-moe"), 1);
    cpu::CpuExecutor executor(model.config, model.weights, {.pools = {.num_blocks = 30, .num_state_rows = 5}});
    BenchSequences sequences(executor, 1);
    sequences.divide({.num_slots = 3, .tokens_per_slot = 60});
    for (int32_t slot = 0; slot < 3; ++slot) sequences.start(slot, sequences.fresh_tokens(9), 9);
    std::map<int32_t, std::set<float>> seen;
    const auto see = [&](const reference::Observation& observation) {
        if (observation.point.op != WalkOp::kChoose) return;
        for (int64_t r = 0; r < observation.rows.num_rows; ++r)
            seen[observation.point.layer].insert(observation.rows.row(r), observation.rows.row(r) + 3);
    };
    executor.set_observer(see, reference::NumericExecutor::ObservedFor::kRecord);
    ExpertWatch watch(executor);
    for (const int32_t num_slots : {1, 2, 3}) {
        seen.clear();
        for (int32_t slot = 0; slot < num_slots; ++slot) sequences.compute(slot, 1, false);
        sequences.step();
        std::vector<int64_t> want;
        for (const auto& [layer, experts] : seen) want.push_back(std::ssize(experts));
        EXPECT_EQ(want.size(), 3U);
        EXPECT_EQ(watch.take_step(), want) << num_slots;
    }
}

TEST(WalkCost, WeightsOfOneByteHaveAScalePerOutput) {
    const reference::ModelConfig config = config_of("tiny-granite");
    const WalkSequence part{0, 1, 5};
    WalkCost bf16, int8(1);
    bf16.add_step(config, {&part, 1}, 1);
    int8.add_step(config, {&part, 1}, 1);
    double outputs = config.vocab_size;
    for (const reference::LayerConfig& layer : config.layers) {
        outputs += 2.0 * layer.mlp->d_ff + config.hidden_size;  // gate, up, down
        outputs += config.hidden_size;                          // out_proj or o
        if (layer.mamba) outputs += static_cast<double>(layer.mamba->in_rows());
        if (layer.attention) outputs += static_cast<double>(layer.attention->q_rows() + 2 * layer.attention->kv_rows());
    }
    EXPECT_DOUBLE_EQ(bytes_of(int8, WalkOp::kMatmul), bytes_of(bf16, WalkOp::kMatmul) / 2 + 4 * outputs);
    EXPECT_DOUBLE_EQ(int8.operations(), bf16.operations());
}

TEST(WalkCost, TheLimitIsTheSumOfTheLargerPart) {
    const MachineLimits machine{.stream_bytes_per_s = 10, .fma_flops = 50, .dpbf16_flops = 100};
    EXPECT_DOUBLE_EQ((OpCost{WalkOp::kMatmul, 100, 100}).limit_s(machine), 10);
    EXPECT_DOUBLE_EQ((OpCost{WalkOp::kMatmul, 100, 2000}).limit_s(machine), 20);
    WalkCost cost;
    const WalkSequence part{0, 2, 5};
    cost.add_step(config_of("tiny-granite"), {&part, 1}, 1);
    double sum = 0;
    for (const OpCost& op : cost.ops()) sum += std::max(op.bytes / 10, op.operations / 100);
    EXPECT_DOUBLE_EQ(cost.limit_s(machine), sum);
    double by_op = 0;
    for (const double limit : cost.limit_by_op_s(machine)) by_op += limit;
    EXPECT_NEAR(by_op, sum, 1e-9 * sum);
}

// 12 seconds on the clock, of which each of the threads had a processor for 5 in the median.
TEST(RowFigures, SharesOfTheLimitGoByTheClockAndByTheProcessor) {
    BenchRow row;
    row.num_tokens = 1;
    const WalkSequence part{0, 1, 5};
    row.cost.add_step(config_of("tiny-granite"), {&part, 1}, 1);
    row.times_s = {12, 9, 15};
    row.processor_times_s = {5, 6, 4};
    const MachineLimits machine{.stream_bytes_per_s = 1000, .fma_flops = 1e12};
    const double limit_s = row.cost.bytes() / 1000;
    EXPECT_NEAR(figures_of(row, machine).of_limit, limit_s / 12, 1e-6 * limit_s);
    EXPECT_NEAR(figures_of(row, machine).of_limit_by_processor, limit_s / 5, 1e-6 * limit_s);
    row.processor_times_s.clear();
    EXPECT_EQ(figures_of(row, machine).of_limit_by_processor, 0);
}

TEST(SpreadOf, IsTheMedianBetweenLeastAndMost) {
    const Spread odd = spread_of({3, 1, 7});
    EXPECT_EQ(odd.median, 3);
    EXPECT_EQ(odd.min, 1);
    EXPECT_EQ(odd.max, 7);
    EXPECT_EQ(spread_of({4, 1, 2, 8}).median, 3);
}

TEST(MachineProbe, ReadsABufferOfFourCaches) {
    EXPECT_GE(last_level_cache_bytes(), int64_t{32} << 20);
    EXPECT_GT(resident_bytes(), 0);
    MachineProbe probe(2, 1 << 20);
    EXPECT_EQ(probe.buffer_bytes(), 1 << 20);
    const MachineLimits limits = probe.measure(1);
    EXPECT_GT(limits.stream_bytes_per_s, 0);
    EXPECT_GT(limits.fma_flops, 0);
}

// What the turns are timed with must really attach.
TEST(BenchSequences, ATurnComputesItsSuffixAloneAndDrawsFromTheSameBits) {
    const reference::Model model = reference::make_random_model(config_of("tiny-granite"), 1);
    cpu::CpuExecutor executor(model.config, model.weights, {.pools = {.num_blocks = 30, .num_state_rows = 5}});
    BenchSequences sequences(executor, 1);
    sequences.divide({.num_slots = 3, .tokens_per_slot = 60, .num_head_rows = 2});
    const TokenSeq tokens = sequences.fresh_tokens(60);
    sequences.start(1, tokens, 60, sequences.compute_head(0, tokens, 37));
    sequences.start(2, tokens, 60);
    sequences.compute(1, 23, true);
    sequences.compute(2, 60, true);
    EXPECT_GT(sequences.step(), 0);
    EXPECT_EQ(executor.tables().at(SequenceSlot{1}).num_attached_tokens, 37);
    EXPECT_EQ(executor.tables().at(SequenceSlot{2}).num_attached_tokens, 0);
    EXPECT_EQ(sequences.logits_digest(1), sequences.logits_digest(2));
    EXPECT_TRUE(sequences.logits_are_finite(1));
}

// Timing after a long context must find its pages: each a copy in a separate block.
TEST(BenchSequences, ALengthenedHeadRepeatsItsKv) {
    const reference::Model model = reference::make_random_model(config_of("tiny-granite"), 1);
    cpu::CpuExecutor executor(model.config, model.weights, {.pools = {.num_blocks = 30, .num_state_rows = 5}});
    BenchSequences sequences(executor, 1);
    sequences.divide({.num_slots = 2, .tokens_per_slot = 100, .num_head_rows = 1});
    const BenchHead head = sequences.lengthen(sequences.compute_head(0, sequences.fresh_tokens(32), 32), 75);
    EXPECT_EQ(head.length, 75);
    EXPECT_EQ(head.tokens.size(), 75);
    const BlockRun run{BlockId{0}, 5};
    std::map<std::pair<int, reference::StateKind>, std::vector<uint16_t>> kv;  // by layer and tensor
    ASSERT_TRUE(executor.read_head({.length = 75, .blocks = {&run, 1}, .state = StateIndex{2}},
                                   [&](const reference::HeadPiece& piece) {
                                       if (piece.tensor.per != reference::StatePer::kToken) return;
                                       auto& all = kv[{piece.tensor.layer, piece.tensor.kind}];
                                       const size_t before = all.size();
                                       all.resize(before + piece.bytes.size() / sizeof(uint16_t));
                                       std::memcpy(&all[before], piece.bytes.data(), piece.bytes.size());
                                   }));
    int64_t num_tensors = 0;
    for (const auto& [place, values] : kv) {
        if (values.empty()) continue;
        ++num_tensors;
        const size_t period = values.size() / 75 * 32;
        EXPECT_TRUE(std::equal(values.begin() + static_cast<std::ptrdiff_t>(period), values.end(), values.begin()));
        EXPECT_FALSE(std::equal(values.begin() + 1, values.end(), values.begin()));
    }
    EXPECT_GT(num_tensors, 0);
    TokenSeq longer = head.tokens;
    longer.append(sequences.fresh_tokens(5));
    sequences.start(1, longer, 80, head);
    sequences.compute(1, 5, true);
    sequences.step();
    EXPECT_EQ(executor.tables().at(SequenceSlot{1}).num_attached_tokens, 75);
}

TEST(BenchSequences, NoTwoSequencesHaveTheSameTokens) {
    const reference::Model model = reference::make_random_model(config_of("tiny-granite"), 1);
    cpu::CpuExecutor executor(model.config, model.weights, {.pools = {.num_blocks = 4, .num_state_rows = 2}});
    BenchSequences sequences(executor, 1);
    const TokenSeq first = sequences.fresh_tokens(64);
    EXPECT_LT(first.common_prefix(sequences.fresh_tokens(64)), 4);
    BenchSequences other_seed(executor, 2);
    EXPECT_LT(first.common_prefix(other_seed.fresh_tokens(64)), 4);
}

TEST(BenchReport, AWrongRowIsReportedAndFails) {
    BenchReport report;
    report.config.model = "m";
    report.machine = {1e9, 1e9, 0};
    EXPECT_FALSE(report.wrong());
    BenchRow row;
    row.phase = "decode";
    row.num_tokens = 2;
    row.times_s = {0.5, 0.25, 1.0};
    row.check = "recomputed";
    const WalkSequence part{0, 1, 5};
    row.cost.add_step(config_of("tiny-granite"), {&part, 1}, 1);
    row.wrong = true;
    row.nearby = {5e8, 1e9, 0};
    row.streams_before = {8e8, 2e8, 4e8};
    report.rows.push_back(row);
    EXPECT_TRUE(report.wrong());
    EXPECT_THAT(bench_table(report, false), HasSubstr("WRONG"));
    const auto result = bench_json(report);
    EXPECT_EQ(result["correct"], false);
    EXPECT_EQ(result["rows"][0]["correct"], false);
    EXPECT_DOUBLE_EQ(result["rows"][0]["tokens_per_s"], 4);
    EXPECT_DOUBLE_EQ(result["rows"][0]["of_limit"], row.cost.limit_s(report.machine) / 0.5);
    EXPECT_DOUBLE_EQ(result["rows"][0]["of_limit_at_best"], row.cost.limit_s(report.machine) / 0.25);
    EXPECT_DOUBLE_EQ(result["rows"][0]["of_limit_nearby"], row.cost.limit_s(row.nearby) / 0.5);
    // The shares of 0.5 s, 0.25 s and 1 s, of which the last is the least and the second, with the slowest memory, the
    // greatest.
    EXPECT_DOUBLE_EQ(result["rows"][0]["of_limit_paired"], row.cost.limit_s({8e8, 1e9, 0}) / 0.5);
    EXPECT_TRUE(result["rows"][0]["matmuls_of_limit"].is_null());
    report.rows[0].suffix_times_s = {1.0, 0.25, 1.0};
    EXPECT_DOUBLE_EQ(bench_json(report)["rows"][0]["of_suffix"], 1.0);  // of 0.5, 1 and 1
    report.rows[0].wrong = false;
    EXPECT_FALSE(report.wrong());
    report.reference_wrong = true;
    EXPECT_TRUE(report.wrong());
    EXPECT_THAT(bench_table(report, false), HasSubstr("DIFFERENT"));
}

}  // namespace
}  // namespace verbatim::tools
