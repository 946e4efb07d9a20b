// `verbatim bench` as people and scripts use it. No time is compared with anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "kernels/bench/cost.h"
#include "kernels/machine.h"
#include "reference/model/presets.h"
#include "tests/tools/program/run_program.h"
#include "tools/bench/report.h"
#include "tools/program/cli.h"
#include "tools/program/isa_option.h"

namespace verbatim::tools {

using namespace bench;
namespace {

using nlohmann::json;
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

// 12 seconds on the clock, of which each of the threads had a processor for 5 in the median.
TEST(RowFigures, SharesOfTheLimitGoByTheClockAndByTheProcessor) {
    BenchRow row;
    row.num_tokens = 1;
    const WalkSequence part{0, 1, 5};
    row.cost.add_step(reference::preset("tiny-granite").value(), {&part, 1}, 1);
    row.times_s = {12, 9, 15};
    row.processor_times_s = {5, 6, 4};
    const MachineLimits machine{.stream_bytes_per_s = 1000, .fma_flops = 1e12};
    const double limit_s = row.cost.bytes() / 1000;
    EXPECT_NEAR(figures_of(row, machine).of_limit, limit_s / 12, 1e-6 * limit_s);
    EXPECT_NEAR(figures_of(row, machine).of_limit_by_processor, limit_s / 5, 1e-6 * limit_s);
    row.processor_times_s.clear();
    EXPECT_EQ(figures_of(row, machine).of_limit_by_processor, 0);
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
    row.cost.add_step(reference::preset("tiny-granite").value(), {&part, 1}, 1);
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
