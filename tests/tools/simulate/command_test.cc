// `verbatim simulate` as a shell sees it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "simulator/device_file.h"
#include "tests/tools/program/run_program.h"
#include "traces/text_input.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char* kMooncake = VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz";

std::vector<std::string> simulate_arguments(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"simulate", "--trace", kMooncake, "--limit", "300", "--memory", "60GB"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

json simulate(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--format", "json"});
    const Outcome outcome = run_verbatim(simulate_arguments(more));
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    return json::parse(outcome.out);
}

TEST(SimulateCommand, JsonHasTheKeysThatWerePromised) {
    const json result = simulate();
    for (const char* key :
         {"requests", "rejected", "hit_rate", "ttft_s", "tpot_s", "e2e_s", "client_wait_s", "throughput_tokens_per_s",
          "preemptions", "evictions", "memory", "price_sources", "wall_s", "peak_rss_bytes", "digest"}) {
        EXPECT_TRUE(result.contains(key)) << key;
    }
    for (const char* key : {"block", "token", "request"}) EXPECT_TRUE(result["hit_rate"].contains(key)) << key;
    for (const char* key : {"mean", "p50", "p95", "p99"}) EXPECT_GT(result["ttft_s"][key].get<double>(), 0) << key;
    EXPECT_EQ(result["requests"], 300);
    double shares = 0;
    for (const auto& share : result["price_sources"]) shares += share.get<double>();
    EXPECT_NEAR(shares, 1, 1e-9);
    const json& memory = result["memory"];
    const auto bytes = [&](const char* key) { return memory[key].get<int64_t>(); };
    EXPECT_EQ(bytes("weights_bytes") + bytes("workspace_bytes") + bytes("cache_bytes"), 60'000'000'000);
    for (const char* most : {"kv_bytes", "state_bytes"}) {
        EXPECT_LE(bytes(most), bytes("cache_bytes")) << most;
        EXPECT_GT(bytes(most), bytes("cache_bytes") - 100'000'000) << most << ": either may have the whole budget";
    }
    const json split = simulate({"--cache-mode", "exact"})["memory"];
    const int64_t both = split["kv_bytes"].get<int64_t>() + split["state_bytes"].get<int64_t>();
    EXPECT_GT(both, bytes("cache_bytes") - 100'000'000) << "half for each where heads go by their last use";
    EXPECT_LE(both, bytes("cache_bytes"));
}

TEST(SimulateCommand, AnotherOrderOfAdmissionIsAnotherRun) {
    const json arrival = simulate({"--step-tokens", "2048"});
    const json fewest = simulate({"--step-tokens", "2048", "--admission", "fewest-tokens"});
    EXPECT_NE(fewest["digest"], arrival["digest"]);
    EXPECT_LT(fewest["ttft_s"]["p50"].get<double>(), arrival["ttft_s"]["p50"].get<double>());
    EXPECT_FALSE(arrival["details"].contains("admission"));
    EXPECT_EQ(fewest["details"]["admission"], "fewest-tokens");
    EXPECT_EQ(fewest["details"]["max_wait_steps"], 100);
    const json none = simulate({"--step-tokens", "2048", "--admission", "fewest-tokens", "--max-wait-steps", "0"});
    EXPECT_EQ(none["digest"], arrival["digest"]) << "nobody may be overtaken";
    EXPECT_EQ(run_verbatim(simulate_arguments({"--admission", "random"})).exit_code, kExitBadUsage);
    EXPECT_EQ(run_verbatim(simulate_arguments({"--max-wait-steps", "-1"})).exit_code, kExitBadUsage);
}

TEST(SimulateCommand, SaysTheSameEveryTime) {
    json once = simulate();
    json again = simulate();
    for (json* one : {&once, &again}) {
        one->erase("wall_s");
        one->erase("peak_rss_bytes");
    }
    EXPECT_EQ(once, again);
    EXPECT_NE(simulate({"--step-overhead", "2000"})["digest"], once["digest"]);
}

// Lines of Mooncake's format, one request each, all at once.
std::string equal_requests(int count, int64_t input, int64_t output) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
        lines +=
            fmt::format("{{\"timestamp\":0,\"input_length\":{},\"output_length\":{},\"hash_ids\":[", input, output);
        for (int64_t block = 0; block < (input + 511) / 512; ++block)
            lines += fmt::format("{}{}", block == 0 ? "" : ",", i * 1000 + block);
        lines += "]}\n";
    }
    return lines;
}

json simulate_lines(const std::string& lines, std::vector<std::string> more) {
    const tests::ScratchFolder files;
    std::vector<std::string> arguments = {"simulate", "--trace", files.write("trace.jsonl", lines),
                                          "--format", "json",    "--no-bounds"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_verbatim(arguments);
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    return json::parse(outcome.out);
}

// Each draft made a chunk of two tokens, which was priced as its share of a whole prompt: 5.09 -> 3.58 ms a token.
TEST(SimulateCommand, DraftsThatAreNeverRightMakeNothingFaster) {
    const std::string lines = equal_requests(8, 16'000, 50);
    const std::vector<std::string> plain = {"--model", "llama-3.2-1b"};
    std::vector<std::string> drafting = plain;
    drafting.insert(drafting.end(), {"--max-window", "2", "--draft-acceptance", "0"});
    const double without = simulate_lines(lines, plain)["tpot_s"]["p50"];
    const double with = simulate_lines(lines, drafting)["tpot_s"]["p50"];
    EXPECT_GE(with, without);
    EXPECT_LT(with, 1.1 * without) << "the second token of a window reads nothing more";
}

TEST(SimulateCommand, StatesOfHalfTheBytesTakeHalfTheMemoryAndLessTime) {
    const std::vector<std::string> exact = {"--cache-mode", "exact"};
    std::vector<std::string> half = exact;
    half.insert(half.end(), {"--state-dtype", "bfloat16"});
    const std::string lines = equal_requests(64, 512, 50);
    const json floats = simulate_lines(lines, exact);
    const json halves = simulate_lines(lines, half);
    EXPECT_LT(halves["tpot_s"]["p50"].get<double>(), 0.9 * floats["tpot_s"]["p50"].get<double>());
    const auto peak = [](const json& run) { return run["memory"]["state_peak_bytes"].get<double>(); };
    EXPECT_NEAR(peak(halves) / peak(floats), 0.51, 0.02) << "windows stay binary32";
}

TEST(SimulateCommand, PercentilesOfNothingAreNullAndADash) {
    const std::string lines = equal_requests(3, 512, 1);
    const json result = simulate_lines(lines, {});
    for (const char* key : {"mean", "p50", "p95", "p99"}) {
        EXPECT_TRUE(result["tpot_s"][key].is_null()) << key;
        EXPECT_TRUE(result["ttft_s"][key].is_number()) << key;
    }
    const tests::ScratchFolder files;
    const Outcome table = run_verbatim({"simulate", "--trace", files.write("trace.jsonl", lines)});
    EXPECT_TRUE(std::regex_search(table.out, std::regex("time per token, s +- +- +- +-\n"))) << table.out;
}

TEST(SimulateCommand, WorkspaceGrowsWithTheTokensOfAStep) {
    const auto workspace = [](const char* step_tokens) {
        return simulate({"--step-tokens", step_tokens})["memory"]["workspace_bytes"].get<int64_t>();
    };
    EXPECT_EQ(workspace("2048"), workspace("8192")) << "which the device's workspace covers";
    // granite-4.0-h-micro: 2 bytes of the residual and its normed row (2048 each), and of the widest matmul's input and
    // output, gate and up: 2048 + 2 * 8192.
    EXPECT_EQ(workspace("20000") - workspace("8192"), (20'000 - 8192) * 2 * (2 * 2048 + 2048 + 2 * 8192));
}

TEST(SimulateCommand, RooflinesAloneGiveAnIntervalOfEveryFigure) {
    const json result = simulate();
    const json& bounds = result["bounds"];
    EXPECT_EQ(bounds["roofline_factors"], json({0.88, 2.08}));
    for (const char* times : {"ttft_s", "tpot_s"}) {
        for (const char* key : {"mean", "p50", "p95", "p99"}) {
            const double value = result[times][key];
            EXPECT_LE(bounds[times][key][0].get<double>(), value) << times << " " << key;
            EXPECT_GE(bounds[times][key][1].get<double>(), value) << times << " " << key;
        }
        EXPECT_LT(bounds[times]["mean"][0].get<double>(), bounds[times]["mean"][1].get<double>());
    }
    EXPECT_LE(bounds["throughput_tokens_per_s"][0].get<double>(), result["throughput_tokens_per_s"].get<double>());
    EXPECT_THAT(run_verbatim(simulate_arguments()).out, HasSubstr("rooflines x 0.88 ... 2.08"));
    EXPECT_FALSE(bounds.contains("other_factors"));
    const json without = simulate({"--no-bounds"});
    EXPECT_TRUE(without["bounds"].is_null());
    EXPECT_EQ(without["digest"], result["digest"]);
}

// What the device files say is what --check-tables finds.
TEST(SimulateCommand, TheDevicesRooflineFactorsAreThoseOfTheirTables) {
    for (const std::string& name : device_names()) {
        SCOPED_TRACE(name);
        const Outcome outcome = run_verbatim({"simulate", "--check-tables", "--device", name, "--format", "json"});
        ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        const json tables = json::parse(outcome.out)["tables"];
        const json& decode = tables.at(2);
        ASSERT_EQ(decode["table"], "decode attention");
        const auto device = read_device(name);
        ASSERT_TRUE(device.has_value());
        EXPECT_NEAR(device->roofline_fast, std::min(1.0, decode["of_roofline"][0].get<double>()), 0.006);
        EXPECT_NEAR(device->roofline_slow, decode["of_roofline"][2].get<double>(), 0.006);
    }
}

TEST(SimulateCommand, WritesALineForEveryRequestAndStep) {
    const tests::ScratchFolder files;
    const json result = simulate({"--requests-csv", files.path("r.csv"), "--steps-csv", files.path("s.csv")});
    const std::string requests = file_bytes(files.path("r.csv"));
    EXPECT_EQ(std::ranges::count(requests, '\n'), 1 + 300);
    EXPECT_THAT(requests, HasSubstr("\n0,served,0.000000000,0.000000000,0."));
    EXPECT_TRUE(std::regex_search(requests, std::regex("\n299,served,[^\n]*,history,0,0\n$")));
    simulate({"--requests-csv", files.path("two.csv"), "--replicas", "2", "--no-bounds"});
    const std::string two = file_bytes(files.path("two.csv"));
    EXPECT_TRUE(std::regex_search(two, std::regex(",history,0,0\n")));
    EXPECT_TRUE(std::regex_search(two, std::regex(",history,1,0\n")));
    const std::string steps = file_bytes(files.path("s.csv"));
    EXPECT_GT(std::ranges::count(steps, '\n'), 100);
    EXPECT_LE(std::ranges::count(steps, '\n'), 1 + result["details"]["steps"].get<int64_t>());
}

// Of a file that may be compressed.
std::string lines_of(const std::string& path) {
    auto input = traces::TextInput::open(path);
    EXPECT_TRUE(input.has_value()) << input.error().message;
    std::string text;
    for (auto line = input->next_line(); line && *line; line = input->next_line()) text += std::string(**line) + "\n";
    return text;
}

TEST(SimulateCommand, WritesATraceOfStepsAndAPage) {
    const tests::ScratchFolder files;
    simulate({"--perfetto", files.path("p.json"), "--html", files.path("p.html"), "--steps-csv", files.path("s.csv")});
    const json trace = json::parse(file_bytes(files.path("p.json")));
    const std::string steps = file_bytes(files.path("s.csv"));
    int64_t num_slices = 0;
    double end = 0;
    for (const json& event : trace["traceEvents"]) {
        if (event["ph"] != "X") continue;
        ++num_slices;
        EXPECT_GE(event["ts"].get<double>(), end - 1e-3) << "steps do not overlap";
        end = event["ts"].get<double>() + event["dur"].get<double>();
    }
    EXPECT_EQ(num_slices, std::ranges::count(steps, '\n') - 1);
    simulate({"--perfetto", files.path("p.json.gz")});
    EXPECT_EQ(json::parse(lines_of(files.path("p.json.gz"))), trace);
    EXPECT_LT(file_bytes(files.path("p.json.gz")).size(), file_bytes(files.path("p.json")).size() / 4);
    const std::string page = file_bytes(files.path("p.html"));
    for (const char* text : {"latency by percentile", "memory in use by group", "waiting", "preemptions so far",
                             "new_tokens", "time to first token", "</html>"}) {
        EXPECT_THAT(page, HasSubstr(text));
    }
    for (const char* network : {"http:", "https:", "src=", "@import", "<link"}) {
        const std::string without_namespace = std::regex_replace(page, std::regex("xmlns=\"[^\"]*\""), "");
        EXPECT_THAT(without_namespace, testing::Not(HasSubstr(network)));
    }
}

TEST(SimulateCommand, CountsWhatKeepsTheObjectives) {
    const json all = simulate({"--slo", "ttft=1000s,tpot=1000s"});
    EXPECT_EQ(all["details"]["goodput"]["requests"], 300);
    const json some = simulate({"--slo", fmt::format("ttft={}s", all["ttft_s"]["p50"].get<double>())});
    EXPECT_GE(some["details"]["goodput"]["requests"], 150);
    EXPECT_LT(some["details"]["goodput"]["requests"], 160);
    EXPECT_FALSE(simulate()["details"].contains("goodput"));
}

TEST(SimulateCommand, TheTableSaysWhatIsKnownAndHow) {
    const Outcome outcome = run_verbatim(simulate_arguments({"--slo", "ttft=2s"}));
    EXPECT_EQ(outcome.exit_code, kExitOk);
    for (const char* text : {"time to first token", "hit rate", "steady state", "weights", "assumed", "digest",
                             "requests within the SLO"}) {
        EXPECT_THAT(outcome.out, HasSubstr(text));
    }
}

TEST(SimulateCommand, WithoutFlagsPrefixesAreFoundAndTheLeastValueGoes) {
    const json usual = simulate();
    EXPECT_EQ(simulate({"--cache-mode", "prefix", "--evict", "value"})["digest"], usual["digest"]);
    EXPECT_NE(simulate({"--cache-mode", "prefix", "--evict", "lru"})["digest"], usual["digest"]);
    EXPECT_EQ(simulate({"--cache-mode", "exact"})["digest"],
              simulate({"--cache-mode", "exact", "--evict", "lru"})["digest"]);
    const json cache_only = simulate({"--cache-only"});
    EXPECT_EQ(simulate({"--cache-only", "--cache-mode", "prefix", "--evict", "value"})["digest"], cache_only["digest"]);
}

// Reused tokens per request, of lines in Mooncake's format.
std::vector<int64_t> reused_of(const std::string& lines, std::vector<std::string> more = {}) {
    const tests::ScratchFolder files;
    std::vector<std::string> arguments = {"simulate", "--trace", files.write("trace.jsonl", lines), "--requests-csv",
                                          files.path("requests.csv")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_verbatim(arguments);
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    std::istringstream csv(file_bytes(files.path("requests.csv")));
    std::string line;
    std::getline(csv, line);
    std::vector<int64_t> reused;
    const auto columns = [](const std::string& row) {
        std::vector<std::string> cells;
        std::istringstream cut(row);
        for (std::string cell; std::getline(cut, cell, ',');) cells.push_back(cell);
        return cells;
    };
    const auto header = columns(line);
    const auto place = std::ranges::find(header, "reused_tokens") - header.begin();
    while (std::getline(csv, line)) reused.push_back(std::stoll(columns(line).at(static_cast<size_t>(place))));
    return reused;
}

// Once the heads of turns had every row, no state of a prompt got one.
TEST(SimulateCommand, APromptThatComesAgainIsReusedWhateverCameBefore) {
    std::string lines;
    int second = 0;
    for (int i = 0; i < 4; ++i, ++second) {
        lines += fmt::format("{{\"timestamp\":{},\"input_length\":512,\"output_length\":10,\"hash_ids\":[{}]}}\n",
                             second * 1000, 100 + i);
    }
    for (int i = 0; i < 6; ++i, ++second) {
        lines += fmt::format("{{\"timestamp\":{},\"input_length\":2048,\"output_length\":10,\"hash_ids\":[1,2,3,4]}}\n",
                             second * 1000);
    }
    const std::vector<int64_t> wanted = {0, 0, 0, 0, 0, 2047, 2047, 2047, 2047, 2047};
    EXPECT_EQ(reused_of(lines), wanted);
    EXPECT_EQ(reused_of(lines, {"--state-bytes", "400MB"}), wanted);
    EXPECT_EQ(reused_of(lines, {"--cache-mode", "prefix", "--state-bytes", "400MB"}), wanted);
}

// A document that long prompts share, behind many short ones: from its third occurrence on.
TEST(SimulateCommand, ASharedDocumentIsReusedFromItsThirdOccurrenceOn) {
    std::string lines;
    for (int i = 0; i < 30; ++i) {
        lines += fmt::format("{{\"timestamp\":{},\"input_length\":512,\"output_length\":10,\"hash_ids\":[{}]}}\n",
                             i * 1000, 100 + i);
    }
    for (int i = 0; i < 5; ++i) {
        lines +=
            fmt::format("{{\"timestamp\":{},\"input_length\":2560,\"output_length\":10,\"hash_ids\":[1,2,3,4,{}]}}\n",
                        30'000 + i * 1000, 200 + i);
    }
    std::vector<int64_t> reused = reused_of(lines, {"--state-bytes", "400MB"});
    reused.erase(reused.begin(), reused.begin() + 30);
    EXPECT_THAT(reused, ::testing::ElementsAre(0, 0, 2048, 2048, 2048));
}

// The second prompt is the first one and its answer, so the ledger has replaced the first turn.
TEST(SimulateCommand, ATurnThatAPromptOfItsLengthReplacedIsNotForked) {
    const std::string lines = R"({"timestamp":0,"input_length":1024,"output_length":10,"hash_ids":[0,1]}
{"timestamp":10000,"input_length":1034,"output_length":10,"hash_ids":[0,1,2]}
{"timestamp":20000,"input_length":1030,"output_length":10,"hash_ids":[0,1,3]}
)";
    EXPECT_THAT(reused_of(lines), ::testing::ElementsAre(0, 1033, 1023));
    EXPECT_THAT(reused_of(lines, {"--cache-mode", "exact"}), ::testing::ElementsAre(0, 1033, 0));
}

TEST(SimulateCommand, RejectsTheRowsThatMaxContextDrops) {
    const tests::ScratchFolder files;
    const std::string trace =
        files.write("trace.jsonl", R"({"timestamp":0,"input_length":512,"output_length":10,"hash_ids":[0]}
{"timestamp":10,"input_length":512,"output_length":512,"hash_ids":[1]}
{"timestamp":20,"input_length":512,"output_length":513,"hash_ids":[2]}
)");
    const auto rejected = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = {"simulate", "--trace", trace, "--context", "1024", "--format", "json"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Outcome outcome = run_verbatim(arguments);
        const json count = json::parse(outcome.out)["rejected"];
        EXPECT_EQ(outcome.exit_code, count == 0 ? kExitOk : kExitNotAllCompared) << outcome.err;
        return count;
    };
    EXPECT_EQ(rejected({}), 1);
    EXPECT_EQ(rejected({"--cache-only"}), 1);
    EXPECT_EQ(rejected({"--requests-csv", files.path("rows.csv")}), 1);
    EXPECT_TRUE(std::regex_search(file_bytes(files.path("rows.csv")), std::regex("\n2,rejected,[^\n]*,512,0,0,2,")))
        << "the trace's prompt";
    EXPECT_EQ(rejected({"--max-context", "drop"}), 0);
    EXPECT_EQ(rejected({"--max-tokens", "100"}), 0) << "clients that ask for less get it";
    const Outcome dropped = run_verbatim({"simulate", "--trace", trace, "--context", "1024", "--max-context", "drop"});
    EXPECT_THAT(dropped.err, HasSubstr("left out: 1 requests, longer than the context"));
    const Outcome none = run_verbatim({"simulate", "--trace", trace, "--context", "8", "--max-context", "drop"});
    EXPECT_EQ(none.exit_code, kExitBadInput);
    EXPECT_THAT(none.err, HasSubstr("no request of it is left to simulate"));
}

TEST(SimulateCommand, CacheOnlyRejectsTheSameRowsInEveryMode) {
    const tests::ScratchFolder files;
    std::string lines;
    for (const int length : {1024, 4096, 1024}) {
        lines += fmt::format("{{\"timestamp\":0,\"input_length\":{},\"output_length\":10,\"hash_ids\":[", length);
        for (int block = 0; block < length / 512; ++block) lines += fmt::format("{}{}", block > 0 ? "," : "", block);
        lines += "]}\n";
    }
    const std::string trace = files.write("trace.jsonl", lines);
    for (const char* mode : {"exact", "prefix", "attention", "block-aligned", "vllm-align", "marconi"}) {
        const Outcome outcome = run_verbatim({"simulate", "--trace", trace, "--cache-only", "--cache-mode", mode,
                                              "--context", "2048", "--format", "json"});
        ASSERT_EQ(outcome.exit_code, kExitNotAllCompared) << outcome.err;
        const json result = json::parse(outcome.out);
        EXPECT_EQ(result["requests"], 3) << mode;
        EXPECT_EQ(result["rejected"], 1) << mode;
        EXPECT_LE(result["hit_rate"]["token"].get<double>(), 0.5) << mode << ": of the two rows that fit";
    }
}

TEST(SimulateCommand, OtherEnginesHaveHitRatesAndNoTimes) {
    for (const char* mode : {"vllm-align", "sglang-radix", "sglang-radix-pools", "sglang-radix-no-buffer", "marconi"}) {
        const json result = simulate({"--cache-mode", mode});
        EXPECT_TRUE(result["ttft_s"].is_null()) << mode;
        EXPECT_GT(result["hit_rate"]["token"].get<double>(), 0) << mode;
        EXPECT_EQ(simulate({"--cache-mode", mode, "--cache-only"})["digest"], result["digest"]) << mode;
    }
    for (const std::vector<std::string>& flags :
         std::vector<std::vector<std::string>>{{"--cache-mode", "marconi", "--slo", "ttft=2s"},
                                               {"--cache-mode", "marconi", "--evict", "lru"},
                                               {"--cache-mode", "vllm-align", "--state-bytes", "1GB"},
                                               {"--cache-mode", "exact", "--evict", "value"}}) {
        EXPECT_EQ(run_verbatim(simulate_arguments(flags)).exit_code, kExitBadUsage) << flags.at(1);
    }
}

// Every mode on the same trace. What each may reuse is known: nothing, heads, full blocks, multiples of U.
json simulate_mode(const std::string& mode, const std::string& model, int limit = 1500) {
    const Outcome outcome =
        run_verbatim({"simulate", "--trace", kMooncake, "--limit", fmt::format("{}", limit), "--model", model,
                      "--memory", "60GB", "--cache-mode", mode, "--format", "json"});
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    return json::parse(outcome.out);
}

TEST(SimulateCommand, CacheModesReuseWhatTheySay) {
    std::map<std::string, double> rate;
    for (const char* mode : {"exact", "prefix", "attention", "block-aligned", "none"}) {
        const json result = simulate_mode(mode, "granite-4.0-h-micro");
        rate[mode] = result["hit_rate"]["token"].get<double>();
        EXPECT_EQ(result["details"]["block_tokens"], std::string(mode) == "block-aligned" ? 1040 : 16);
    }
    EXPECT_EQ(rate["none"], 0);
    for (const char* mode : {"exact", "prefix", "block-aligned"}) {
        EXPECT_GT(rate[mode], 0.01) << mode;
        EXPECT_LT(rate[mode], rate["attention"]) << mode;
    }
    const Outcome none =
        run_verbatim({"simulate", "--trace", kMooncake, "--model", "mamba2-2.7b", "--cache-mode", "attention"});
    EXPECT_EQ(none.exit_code, kExitBadInput);
    EXPECT_THAT(none.err, HasSubstr("mamba2-2.7b has no attention layers"));
}

TEST(SimulateCommand, WithoutMambaLayersBlockAlignedIsAttention) {
    const json attention = simulate_mode("attention", "llama-3.2-1b", 500);
    EXPECT_GT(attention["hit_rate"]["token"].get<double>(), 0.01);
    EXPECT_EQ(simulate_mode("block-aligned", "llama-3.2-1b", 500)["digest"], attention["digest"]);
    EXPECT_NE(simulate_mode("exact", "llama-3.2-1b", 500)["digest"], attention["digest"]);
}

// traces/README.md: 18.51 % of the tokens with room for 4 Mi tokens, 18.82 % over the second half.
TEST(SimulateCommand, CacheOnlyHasTheFiguresThatOthersComputed) {
    const int64_t kv_bytes = 8192 * (int64_t{4} << 20);  // of granite-4.0-h-micro
    const Outcome outcome = run_verbatim({"simulate", "--trace", kMooncake, "--cache-only", "--cache-mode", "attention",
                                          "--kv-bytes", fmt::format("{}", kv_bytes), "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json result = json::parse(outcome.out);
    EXPECT_EQ(fmt::format("{:.4f}", result["hit_rate"]["token"].get<double>()), "0.1851");
    EXPECT_EQ(fmt::format("{:.4f}", result["details"]["steady_state"]["hit_rate"]["token"].get<double>()), "0.1882");
    EXPECT_GE(result["details"]["offline_bound"]["token"], result["hit_rate"]["token"]);
    EXPECT_TRUE(result["ttft_s"].is_null());
}

TEST(SimulateCommand, CacheOnlyRunsEveryModeAndPolicy) {
    for (const char* mode : {"exact", "prefix", "attention", "block-aligned"}) {
        for (const char* evict : {"lru", "lfu", "size", "flops"}) {
            const json result = simulate({"--cache-only", "--cache-mode", mode, "--evict", evict});
            const double rate = result["hit_rate"]["token"].get<double>();
            EXPECT_GT(rate, 0) << mode << " " << evict;
            const json& details = result["details"];
            ASSERT_EQ(details.contains("offline_bound"), std::string(mode) == "attention");
            EXPECT_EQ(simulate({"--cache-only", "--cache-mode", mode, "--evict", evict})["digest"], result["digest"]);
        }
    }
    EXPECT_EQ(simulate({"--cache-only", "--cache-mode", "none"})["hit_rate"]["token"], 0);
    const Outcome both = run_verbatim(simulate_arguments({"--cache-only", "--slo", "ttft=2s"}));
    EXPECT_EQ(both.exit_code, kExitBadUsage);
}

// The bound runs the cache a second time, so it is computed only when it is asked for.
TEST(SimulateCommand, TheHeadBoundIsComputedOnlyWhenItIsAskedFor) {
    const json without = simulate({"--cache-only", "--cache-mode", "exact"});
    EXPECT_FALSE(without["details"].contains("offline_bound"));
    const json with = simulate({"--cache-only", "--cache-mode", "exact", "--head-bound"});
    EXPECT_EQ(with["digest"], without["digest"]);
    EXPECT_GE(with["details"]["offline_bound"]["token"], with["hit_rate"]["token"]);
    const auto table = [](std::vector<std::string> flags) {
        flags.insert(flags.end(), {"--format", "table"});
        return run_verbatim(simulate_arguments(std::move(flags))).out;
    };
    EXPECT_THAT(table({"--cache-only", "--cache-mode", "exact"}), HasSubstr("--head-bound computes"));
    EXPECT_THAT(table({"--cache-only", "--cache-mode", "exact", "--head-bound"}), HasSubstr("at most, by token"));
    EXPECT_THAT(table({"--cache-only", "--cache-mode", "prefix"}), Not(HasSubstr("--head-bound")));
}

TEST(SimulateCommand, TheHeadBoundOfAModeThatHasNoneIsBadUsage) {
    for (const char* mode : {"prefix", "attention", "block-aligned", "none"}) {
        const Outcome outcome =
            run_verbatim(simulate_arguments({"--cache-only", "--head-bound", "--cache-mode", mode}));
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << mode;
        EXPECT_THAT(outcome.err, HasSubstr("--head-bound: the bound is of --cache-mode exact alone")) << mode;
    }
    EXPECT_EQ(run_verbatim(simulate_arguments({"--head-bound"})).exit_code, kExitBadUsage) << "needs --cache-only";
}

TEST(SimulateCommand, PricesSayHowTheyAreKnown) {
    const json tables = simulate()["price_sources"];
    for (const char* source : {"measured", "interpolated", "extrapolated", "roofline", "assumed"}) {
        EXPECT_GT(tables[source].get<double>(), 0.01) << source;
    }
    const json roofline = simulate({"--cost", "roofline"})["price_sources"];
    for (const char* source : {"measured", "interpolated", "extrapolated"}) EXPECT_EQ(roofline[source], 0) << source;
    EXPECT_NEAR(roofline["roofline"].get<double>() + roofline["assumed"].get<double>(), 1, 1e-9);
}

// Of one family with about the same active size: one with experts and one with delta nets run, too.
TEST(SimulateCommand, ModelsWithExpertsAndDeltaNetsHavePrices) {
    const json uniform = simulate({"--model", "granite-4.0-h-tiny"});
    const json again = simulate({"--model", "granite-4.0-h-tiny"});
    const json skewed = simulate({"--model", "granite-4.0-h-tiny", "--expert-skew", "1.5"});
    const json other = simulate({"--model", "granite-4.0-h-tiny", "--seed", "1"});
    EXPECT_EQ(uniform["digest"], again["digest"]);
    EXPECT_NE(uniform["digest"], other["digest"]) << "experts are drawn by the seed";
    EXPECT_EQ(uniform["details"]["expert_skew"], 0);
    EXPECT_EQ(skewed["details"]["expert_skew"], 1.5);
    EXPECT_LT(skewed["tpot_s"]["mean"], uniform["tpot_s"]["mean"]) << "favourites are read once";
    const json dense = simulate();
    EXPECT_FALSE(dense["details"].contains("expert_skew"));
    const json delta = simulate({"--model", "qwen3.5-9b", "--cache-mode", "block-aligned"});
    EXPECT_EQ(delta["details"]["block_tokens"], 528);
    EXPECT_GT(delta["ttft_s"]["mean"], dense["ttft_s"]["mean"]);
}

TEST(SimulateCommand, ChecksEveryTable) {
    const Outcome outcome = run_verbatim({"simulate", "--check-tables", "--device", "a100_sxm", "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json checked = json::parse(outcome.out);
    ASSERT_EQ(checked["tables"].size(), 3u) << "nobody measured its convolutions";
    for (const json& table : checked["tables"]) EXPECT_GT(table["mean"].get<double>(), 0.01);
    EXPECT_EQ(run_verbatim({"simulate"}).exit_code, kExitBadUsage) << "a trace is missing";
}

struct WrongFlag {
    std::vector<std::string> flags;
    int exit_code;
    const char* says;
};

TEST(SimulateCommand, SaysWhatIsWrong) {
    const tests::ScratchFolder files;
    const std::string half = files.write("half.json", R"({"name": "half", "memory_bytes": "many", "speed": 3})");
    for (const WrongFlag& wrong :
         std::vector<WrongFlag>{{{"--memory", "1GB"}, kExitBadInput, "nothing is left for the cache"},
                                {{"--memory", "600GB"}, kExitBadInput, "h100_sxm has 80.0 GiB"},
                                {{"--kv-bytes", "75GB"}, kExitBadInput, "are left beside weights and workspace"},
                                {{"--model", "granite"}, kExitBadInput, "neither a checkpoint's folder"},
                                {{"--device", "h1000"}, kExitBadInput, "neither a device file nor one of a100_sxm"},
                                {{"--device", half}, kExitBadInput, "\"memory_bytes\" = \"many\", wanted a number"},
                                {{"--device", half}, kExitBadInput, "\"speed\" is not understood"},
                                {{"--slo", "ttft=2"}, kExitBadUsage, "got \"ttft=2\", wanted objectives such as"},
                                {{"--slo", "ttft=2s,ttft=3s"}, kExitBadUsage, "once at most"},
                                {{"--slo", "ttft=-2s"}, kExitBadUsage, "wanted objectives"},
                                {{"--slo", "ttft=nans"}, kExitBadUsage, "wanted objectives"},
                                {{"--slo", ""}, kExitBadUsage, "--slo: its value is empty"},
                                {{"--max-window", "2", "--draft-acceptance", "nan"}, kExitBadUsage, "wanted a share"},
                                {{"--expert-skew", "-1"}, kExitBadUsage, "--expert-skew"},
                                {{"--expert-skew", "nan"}, kExitBadUsage, "--expert-skew"},
                                {{"--expert-skew", "1"}, kExitBadUsage, "granite-4.0-h-micro has no experts"},
                                {{"--cache-mode", "some"}, kExitBadUsage, "--cache-mode"},
                                {{"--context", "999999999"}, kExitBadInput, "the model has 131072 positions"},
                                {{"--requests-csv", files.path("no/such/folder.csv")}, kExitMachine, "folder.csv"}}) {
        std::vector<std::string> arguments = {"simulate", "--trace", kMooncake, "--limit", "3"};
        arguments.insert(arguments.end(), wrong.flags.begin(), wrong.flags.end());
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, wrong.exit_code) << wrong.says << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(wrong.says));
        EXPECT_EQ(outcome.out, "");
    }
}

}  // namespace
}  // namespace verbatim::tools
