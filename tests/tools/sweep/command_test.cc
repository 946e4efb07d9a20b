// `verbatim sweep` as a shell sees it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "files/output_file.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using ::testing::HasSubstr;

Outcome sweep(const std::string& to, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        "sweep",     "--trace",      VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz",
        "--limit",   "200",          "--memory",
        "20GB,60GB", "--cache-mode", "exact,block-aligned",
        "--rate",    "1,4",          "--to",
        to};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_verbatim(arguments);
}

// The flag's name in verbatim simulate.
TEST(SweepCommand, RateScaleIsRate) {
    const tests::ScratchFolder files;
    const auto swept = [&](const char* flag, const std::string& to) {
        const Outcome outcome =
            run_verbatim({"sweep", "--trace", VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz",
                          "--memory", "60GB", "--limit", "30", flag, "1,3", "--to", to});
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        return file_bytes(to);
    };
    const std::string bytes = swept("--rate-scale", files.path("a"));
    EXPECT_EQ(std::ranges::count(bytes, '\n'), 1 + 2);
    EXPECT_THAT(bytes, HasSubstr("\"rate_scale\":3"));
    EXPECT_EQ(swept("--rate", files.path("b")), bytes);
}

TEST(SweepCommand, AnyNumberOfThreadsGivesTheSameBytes) {
    const tests::ScratchFolder files;
    const Outcome one = sweep(files.path("one"), {"--threads", "1"});
    EXPECT_EQ(one.exit_code, kExitOk) << one.err;
    EXPECT_EQ(sweep(files.path("three"), {"--threads", "3"}).exit_code, kExitOk);
    const std::string bytes = file_bytes(files.path("one"));
    EXPECT_EQ(std::ranges::count(bytes, '\n'), 1 + 8);
    EXPECT_EQ(file_bytes(files.path("three")), bytes);
    std::istringstream lines(bytes);
    std::string line;
    std::getline(lines, line);
    std::set<std::string> digests;
    for (int number = 0; std::getline(lines, line); ++number) {
        const auto point = nlohmann::json::parse(line);
        EXPECT_EQ(point["number"], number);
        EXPECT_FALSE(point["result"].contains("wall_s"));
        digests.insert(point["result"]["digest"].get<std::string>());
    }
    EXPECT_EQ(digests.size(), 8u) << "every point is another run";
}

nlohmann::json points_of(const std::string& path) {
    std::istringstream lines(file_bytes(path));
    std::string line;
    nlohmann::json points = nlohmann::json::array();
    std::getline(lines, line);
    while (std::getline(lines, line)) points.push_back(nlohmann::json::parse(line));
    return points;
}

// What `verbatim simulate` gives for the point's values of these flags (flag, key of the point).
nlohmann::json simulated(const std::vector<std::string>& common, const char* memory, const nlohmann::json& point,
                         const std::vector<std::pair<const char*, const char*>>& flags) {
    std::vector<std::string> arguments = {"simulate", "--format", "json", "--memory", memory};
    for (const auto& [flag, key] : flags) {
        arguments.emplace_back(flag);
        arguments.push_back(point[key].is_string() ? point[key].get<std::string>() : point[key].dump());
    }
    arguments.insert(arguments.end(), common.begin(), common.end());
    const Outcome outcome = run_verbatim(arguments);
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    return nlohmann::json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
}

// Points that no other one exceeds in throughput at the same or a shorter time per token.
int64_t size_of_front(const nlohmann::json& points) {
    return std::ranges::count_if(points, [&](const nlohmann::json& point) {
        return std::ranges::none_of(points, [&](const nlohmann::json& other) {
            const auto tpot = [](const nlohmann::json& of) { return of["result"]["tpot_s"]["p95"].get<double>(); };
            const auto rate = [](const nlohmann::json& of) {
                return of["result"]["throughput_tokens_per_s"].get<double>();
            };
            return tpot(other) <= tpot(point) && rate(other) > rate(point);
        });
    });
}

// Of the line with this name.
size_t dots_of(const std::string& page, const std::string& name) {
    size_t num_dots = 0;
    const std::string title = "<title>" + name + ": ";
    for (size_t at = page.find(title); at != std::string::npos; at = page.find(title, at + 1)) ++num_dots;
    return num_dots;
}

TEST(SweepCommand, APageShowsEveryModeAtEveryRateAndCapacity) {
    const tests::ScratchFolder files;
    ASSERT_EQ(sweep(files.path("points")).exit_code, kExitOk);
    const Outcome plotted = run_verbatim({"sweep", "plot", files.path("points"), "--to", files.path("page")});
    ASSERT_EQ(plotted.exit_code, kExitOk) << plotted.err;
    const std::string page = file_bytes(files.path("page"));
    for (const char* title : {"hit rate over memory, arrivals x 1", "hit rate over memory, arrivals x 4",
                              "time to first token over arrivals, 20 GB", "time per token over arrivals, 20 GB",
                              "tokens per second over arrivals, 60 GB", "Which deployment serves ", "<dt>GPUs</dt>",
                              "exact, lru, p99</text>", "exact, lru, p50</text>"}) {
        EXPECT_THAT(page, HasSubstr(title));
    }
    EXPECT_THAT(page, HasSubstr("exact, lru"));
    EXPECT_THAT(page, HasSubstr("block-aligned, lru"));
    EXPECT_THAT(page, ::testing::Not(HasSubstr("src="))) << "needs no network";
    size_t num_dots = 0;
    for (size_t at = page.find("<circle"); at != std::string::npos; at = page.find("<circle", at + 1)) ++num_dots;
    const int64_t front = size_of_front(points_of(files.path("points")));
    EXPECT_GT(front, 1);
    EXPECT_LT(front, 8);
    EXPECT_EQ(num_dots, 7u * 8) << "P50 and P99 of two times, hit rate, throughput, the front and those behind it";
    EXPECT_EQ(dots_of(page, "front"), static_cast<size_t>(front));
    const Outcome none = run_verbatim({"sweep", "plot", files.write("junk", "{}\n"), "--to", files.path("none")});
    EXPECT_EQ(none.exit_code, kExitBadInput);
    EXPECT_THAT(none.err, HasSubstr("wanted the header of a sweep"));
}

TEST(SweepCommand, OtherEnginesAreModesBesideOurs) {
    const tests::ScratchFolder files;
    const auto run = [&](const std::string& name, std::vector<std::string> more) {
        std::vector<std::string> arguments = {
            "sweep",   "--trace", VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz",
            "--limit", "200",     "--memory",
            "24.8GB",  "--to",    files.path(name)};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        std::vector<nlohmann::json> points;
        std::istringstream lines(file_bytes(files.path(name)));
        for (std::string line; std::getline(lines, line);) points.push_back(nlohmann::json::parse(line));
        return points;
    };
    const auto timed = run("timed", {"--cache-mode", "prefix,exact,vllm-align,marconi"});
    ASSERT_EQ(timed.size(), 5u);
    EXPECT_EQ(timed[1]["point"]["memory_bytes"], 24'800'000'000);
    EXPECT_EQ(timed[1]["point"]["evict"], "value");
    EXPECT_EQ(timed[2]["point"]["evict"], "lru");
    EXPECT_EQ(timed[3]["point"]["evict"], "own");
    EXPECT_TRUE(timed[1]["result"]["ttft_s"].is_object());
    EXPECT_TRUE(timed[4]["result"]["ttft_s"].is_null());
    const auto cache_only = run("cache-only", {"--cache-mode", "prefix,attention,marconi", "--cache-only"});
    ASSERT_EQ(cache_only.size(), 4u);
    for (size_t i = 1; i < cache_only.size(); ++i) EXPECT_TRUE(cache_only[i]["result"]["ttft_s"].is_null()) << i;
    EXPECT_EQ(cache_only[3]["result"], timed[4]["result"]);
}

TEST(SweepCommand, ARowWithAnotherResultThanTheTraceExpectsIsADifference) {
    const tests::ScratchFolder files;
    const std::string trace = files.write("trace.csv",
                                          "# verbatim-trace 1\nevent,conversation,arrival_ns,tokens,max_tokens,expect\n"
                                          "history,a,0,1:0+100,10,refused\n");
    const Outcome outcome = run_verbatim({"sweep", "--trace", trace, "--memory", "60GB", "--to", files.path("points")});
    EXPECT_EQ(outcome.exit_code, kExitDifference);
    EXPECT_THAT(outcome.err, HasSubstr("point 0: trace row 0 ('a'): expected refused, got served"));
    EXPECT_EQ(std::ranges::count(file_bytes(files.path("points")), '\n'), 2) << "the point is written all the same";
}

TEST(SweepCommand, OrdersOfAdmissionArePoints) {
    const tests::ScratchFolder files;
    const std::string one = files.path("one");
    ASSERT_EQ(sweep(one).exit_code, kExitOk);
    EXPECT_THAT(file_bytes(one), ::testing::Not(HasSubstr("admission"))) << "as it was before there were others";
    const Outcome both = sweep(files.path("both"), {"--admission", "arrival,fewest-tokens", "--max-wait-steps", "30"});
    ASSERT_EQ(both.exit_code, kExitOk) << both.err;
    const std::string bytes = file_bytes(files.path("both"));
    EXPECT_EQ(std::ranges::count(bytes, '\n'), 1 + 16);
    EXPECT_THAT(bytes, HasSubstr("\"max_wait_steps\":30"));
    EXPECT_THAT(bytes, HasSubstr("\"admission\":\"fewest-tokens\""));
    ASSERT_EQ(run_verbatim({"sweep", "plot", files.path("both"), "--to", files.path("page")}).exit_code, kExitOk);
    EXPECT_THAT(file_bytes(files.path("page")), HasSubstr("exact, lru, fewest-tokens"));
}

TEST(SweepCommand, AnInterruptedSweepGoesOn) {
    const tests::ScratchFolder files;
    ASSERT_EQ(sweep(files.path("whole")).exit_code, kExitOk);
    const std::string bytes = file_bytes(files.path("whole"));
    // Some points are there, in another order, and the last line is cut off.
    std::vector<std::string> lines;
    std::istringstream text(bytes);
    for (std::string line; std::getline(text, line);) lines.push_back(line + "\n");
    const std::string part = files.write("part", lines[0] + lines[4] + lines[2] + lines[7].substr(0, 100));
    ASSERT_EQ(sweep(part).exit_code, kExitOk);
    EXPECT_EQ(file_bytes(part), bytes);
    // What is there is kept: a result that no run computed survives.
    std::string marked = lines[3];
    const auto place = marked.find("\"requests\":200");
    ASSERT_NE(place, std::string::npos);
    marked.replace(place, 14, "\"requests\":201");
    const std::string kept = files.write("kept", lines[0] + marked);
    ASSERT_EQ(sweep(kept).exit_code, kExitOk);
    EXPECT_THAT(file_bytes(kept), HasSubstr("\"requests\":201"));
}

// Its result would stand for a point that the sweep has not, and the point would have none.
TEST(SweepCommand, ALineOfAnotherPointThanItsNumbersIsRefused) {
    const tests::ScratchFolder files;
    const std::string whole = files.path("whole");
    ASSERT_EQ(sweep(whole).exit_code, kExitOk);
    const std::string bytes = file_bytes(whole);
    const size_t header = bytes.find('\n') + 1;
    const size_t first = bytes.find('\n', header) + 1;
    const auto edited = [&](const std::string& from, const std::string& to) {
        std::string line = bytes.substr(header, first - header);
        const size_t place = line.find(from);
        EXPECT_NE(place, std::string::npos) << from;
        return bytes.substr(0, header) + line.replace(place, from.size(), to) + bytes.substr(first);
    };
    for (const auto& [from, to] :
         std::vector<std::pair<std::string, std::string>>{{"\"rate_scale\":1", "\"rate_scale\":2"},
                                                          {"\"point\":", "\"pint\":"},
                                                          {"\"number\":0", "\"number\":1"},
                                                          {"\"number\":0", "\"number\":8"},
                                                          {"\"number\":0", "\"number\":-1"}}) {
        const std::string path = files.write("edited", edited(from, to));
        for (const Outcome& refused : {sweep(path), run_verbatim({"sweep", "plot", path, "--to", files.path("page")}),
                                       run_verbatim({"sweep", "merge", path, "--to", files.path("merged")})}) {
            EXPECT_EQ(refused.exit_code, kExitBadInput) << to;
            EXPECT_THAT(refused.err, HasSubstr("edited:2: got point ")) << to;
            EXPECT_THAT(refused.err, HasSubstr("was the file edited?")) << to;
        }
        EXPECT_EQ(file_bytes(path), edited(from, to)) << "as it was";
    }
    const std::string without = files.write("without", bytes.substr(0, header) + bytes.substr(first));
    EXPECT_EQ(sweep(without).exit_code, kExitOk);
    EXPECT_EQ(file_bytes(without), bytes);
}

TEST(SweepCommand, ResultsThatAreBeingWrittenAreLeftAlone) {
    const tests::ScratchFolder folder;
    const std::string to = folder.write("points", "of another sweep, which goes on\n");
    const auto other = files::OutputFile::create(to);
    ASSERT_TRUE(other);
    const Outcome second = sweep(to);
    EXPECT_EQ(second.exit_code, kExitMachine);
    EXPECT_THAT(second.err, HasSubstr("points: is being written"));
    EXPECT_EQ(file_bytes(to), "of another sweep, which goes on\n");
    EXPECT_THAT(sweep("/dev/null").err, HasSubstr("/dev/null: is no regular file"));
}

TEST(SweepCommand, ShardsMakeTheSamePoints) {
    const tests::ScratchFolder files;
    ASSERT_EQ(sweep(files.path("whole")).exit_code, kExitOk);
    for (const char* shard : {"1/3", "2/3", "3/3"}) {
        ASSERT_EQ(sweep(files.path(std::string("s") + shard[0]), {"--shard", shard}).exit_code, kExitOk);
    }
    const Outcome missing =
        run_verbatim({"sweep", "merge", files.path("s1"), files.path("s3"), "--to", files.path("merged")});
    EXPECT_EQ(missing.exit_code, kExitBadInput);
    EXPECT_THAT(missing.err, HasSubstr("is in none of the files"));
    const Outcome merged = run_verbatim(
        {"sweep", "merge", files.path("s3"), files.path("s1"), files.path("s2"), "--to", files.path("merged")});
    EXPECT_EQ(merged.exit_code, kExitOk) << merged.err;
    EXPECT_EQ(file_bytes(files.path("merged")), file_bytes(files.path("whole")));
}

TEST(SweepCommand, AFileWithoutPointsIsNoResultFile) {
    const tests::ScratchFolder files;
    ASSERT_EQ(sweep(files.path("other"), {"--model", "granite-4.0-h-1b"}).exit_code, kExitOk);
    const std::string other = file_bytes(files.path("other"));
    const std::string to = files.write("points", other.substr(0, other.find('\n') + 1));
    EXPECT_EQ(sweep(to).exit_code, kExitOk) << "with another model";
    EXPECT_EQ(sweep(to, {"--model", "granite-4.0-h-1b"}).exit_code, kExitBadInput) << "there are points now";
    for (const char* header : {"1", "{}", R"({"points": 3})"}) {
        const std::string broken = files.write("broken", fmt::format("{{\"sweep\": {}}}\n", header));
        const Outcome merged = run_verbatim({"sweep", "merge", broken, "--to", files.path("whole")});
        EXPECT_EQ(merged.exit_code, kExitBadInput) << header;
        EXPECT_THAT(merged.err, HasSubstr("wanted the header of a sweep"));
    }
}

TEST(SweepCommand, PointsOfEveryDimensionEqualTheirSimulations) {
    const tests::ScratchFolder files;
    const std::vector<std::string> common = {
        "--trace", VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz", "--limit", "40", "--slo",
        "ttft=2s"};
    std::vector<std::string> flags = {"sweep",
                                      "--memory",
                                      "60GB",
                                      "--model",
                                      "llama-3.2-1b,qwen3.5-4b",
                                      "--device",
                                      "h100_sxm,a100_sxm",
                                      "--weights",
                                      "bf16,fp8",
                                      "--replicas",
                                      "1,2",
                                      "--route",
                                      "conversation",
                                      "--step-tokens",
                                      "4096,8192",
                                      "--max-sequences",
                                      "16",
                                      "--to",
                                      files.path("to")};
    flags.insert(flags.end(), common.begin(), common.end());
    const Outcome swept = run_verbatim(flags);
    ASSERT_EQ(swept.exit_code, kExitOk) << swept.err;
    const nlohmann::json points = points_of(files.path("to"));
    ASSERT_EQ(points.size(), 32u);
    std::set<std::string> digests;
    for (size_t i = 0; i < points.size(); i += 5) {
        const nlohmann::json& point = points[i]["point"];
        const auto want = simulated(common, "60GB", point,
                                    {{"--model", "model"},
                                     {"--device", "device"},
                                     {"--weights", "weights"},
                                     {"--replicas", "replicas"},
                                     {"--route", "route"},
                                     {"--step-tokens", "step_tokens"},
                                     {"--max-sequences", "max_sequences"}});
        const nlohmann::json& got = points[i]["result"];
        for (const char* key :
             {"requests", "hit_rate", "ttft_s", "tpot_s", "throughput_tokens_per_s", "digest", "memory"})
            EXPECT_EQ(got[key], want[key]) << key << " of " << point;
        EXPECT_EQ(got["details"]["goodput"], want["details"]["goodput"]);
        digests.insert(got["ttft_s"].dump());
    }
    EXPECT_GT(digests.size(), 4u) << "what a point names changes its result";
    ASSERT_EQ(run_verbatim({"sweep", "plot", files.path("to"), "--to", files.path("page")}).exit_code, kExitOk);
    EXPECT_THAT(file_bytes(files.path("page")), HasSubstr("tokens per second and GPU over time per token, p95"));
    EXPECT_THAT(file_bytes(files.path("page")), HasSubstr("replicas 2"));
    EXPECT_THAT(file_bytes(files.path("page")), HasSubstr("goodput over "));
    EXPECT_THAT(file_bytes(files.path("page")), HasSubstr("ttft: at most "));
    EXPECT_THAT(file_bytes(files.path("page")), HasSubstr("time to first token over replicas"));
}

// The rest of what deployments have: GPUs of a replica, formats, routes.
TEST(SweepCommand, PointsOfDeploymentsEqualTheirSimulations) {
    const tests::ScratchFolder files;
    const std::vector<std::string> common = {
        "--trace",  VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz",
        "--limit",  "60",
        "--model",  "qwen3.5-35b-a3b",
        "--device", "b200_sxm"};
    std::vector<std::string> flags = {
        "sweep",    "--memory",      "100GB",       "--replicas", "2",
        "--tp",     "1,2",           "--ep",        "1,2",        "--kv-dtype",
        "bf16,fp8", "--weights",     "nvfp4,mxfp4", "--route",    "least-loaded,prefix-aware,prefix-aware-dynamo",
        "--to",     files.path("to")};
    flags.insert(flags.end(), common.begin(), common.end());
    const Outcome swept = run_verbatim(flags);
    ASSERT_EQ(swept.exit_code, kExitOk) << swept.err;
    const nlohmann::json points = points_of(files.path("to"));
    ASSERT_EQ(points.size(), 48u);
    std::set<std::string> times;
    for (size_t i = 0; i < points.size(); ++i) {
        const nlohmann::json& point = points[i]["point"];
        if (point["ep"] > point["tp"]) {
            EXPECT_THAT(points[i]["problem"].get<std::string>(), HasSubstr("--ep"));
            continue;
        }
        if (i % 5 != 0) continue;
        const auto want = simulated(common, "100GB", point,
                                    {{"--replicas", "replicas"},
                                     {"--tp", "tp"},
                                     {"--ep", "ep"},
                                     {"--kv-dtype", "kv_dtype"},
                                     {"--weights", "weights"},
                                     {"--route", "route"}});
        for (const char* key : {"hit_rate", "ttft_s", "tpot_s", "digest", "memory"})
            EXPECT_EQ(points[i]["result"][key], want[key]) << key << " of " << point;
        EXPECT_EQ(want["details"]["gpus"], 2 * point["tp"].get<int>());
        times.insert(want["ttft_s"].dump());
    }
    EXPECT_GT(times.size(), 4u) << "what a point names changes its result";
}

TEST(SweepCommand, ShardsCountFromZeroOrFromOne) {
    const tests::ScratchFolder files;
    const std::vector<std::string> shards = {"0/3", "1/3", "2/3", "3/3"};
    for (size_t i = 0; i < shards.size(); ++i)
        ASSERT_EQ(sweep(files.path(fmt::format("{}", i)), {"--shard", shards[i]}).exit_code, kExitOk);
    EXPECT_EQ(file_bytes(files.path("0")), file_bytes(files.path("3")));
    ASSERT_EQ(
        run_verbatim({"sweep", "merge", files.path("0"), files.path("1"), files.path("2"), "--to", files.path("whole")})
            .exit_code,
        kExitOk);
    ASSERT_EQ(sweep(files.path("alone")).exit_code, kExitOk);
    EXPECT_EQ(file_bytes(files.path("whole")), file_bytes(files.path("alone")));
}

// Once, however many points read the file.
TEST(SweepCommand, SaysWhichRowsAReaderLeftOut) {
    const tests::ScratchFolder files;
    const std::string trace = VERBATIM_SOURCE_DIR "/tests/fuzz/corpus/trace_vllm-bench/run";
    const Outcome outcome = run_verbatim(
        {"sweep", "--trace", trace, "--memory", "60GB", "--rate", "1,2", "--threads", "2", "--to", files.path("to")});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const size_t said = outcome.err.find("left out: ");
    ASSERT_NE(said, std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("left out: ", said + 1), std::string::npos) << outcome.err;
}

TEST(SweepCommand, SaysWhatIsWrong) {
    const tests::ScratchFolder files;
    ASSERT_EQ(sweep(files.path("a")).exit_code, kExitOk);
    const Outcome other = sweep(files.path("a"), {"--seed", "5"});
    EXPECT_EQ(other.exit_code, kExitBadInput);
    EXPECT_THAT(other.err, HasSubstr("holds the results of another sweep"));
    const std::string no_sweep = files.write("b", "hello\n");
    EXPECT_THAT(sweep(no_sweep).err, HasSubstr(":1: got no JSON, wanted the header"));
    EXPECT_EQ(file_bytes(no_sweep), "hello\n") << "nobody writes over it";
    std::string cut = file_bytes(files.path("a"));
    cut.insert(cut.find('\n'), std::string("\0x", 2));
    EXPECT_THAT(sweep(files.write("c", cut)).err, HasSubstr(":1: got no JSON, wanted the header"));
    for (const auto& [flags, says] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--shard", "4/3"}, "wanted I/N"},
             {{"--evict", "best"}, "there is no policy \"best\""},
             {{"--admission", "random"}, "there is no order \"random\""},
             {{"--shard", "0/0"}, "wanted I/N"},
             {{"--shard", ""}, "--shard: its value is empty"},
             {{"--slo", "soon"}, "--slo"},
             {{"--slo", ""}, "--slo: its value is empty"},
             {{"--session-rate", "nan"}, "wanted a number"},
             {{"--think-scale", "nan"}, "wanted a number"},
             {{"--device", "h1"}, "neither a device file"},
             {{"--device", "h100_sxm,h1"}, "neither a device file"},
             {{"--model", "llama-3.2-1b,none"}, "neither a checkpoint's folder"},
             {{"--weights", "int3"}, "--weights: got \"int3\", wanted some of bf16, fp8, int8, int4"},
             {{"--route", "turns"}, "wanted some of round-robin, conversation"},
             {{"--replicas", "1,0"}, "--replicas: Value 0 not in range"},
             {{"--step-tokens", "x"}, "--step-tokens: Value x not in range"},
             {{"--max-wait-steps", "3"}, "--max-wait-steps: of --admission fewest-tokens alone"},
             {{"--tier-evict", "lru"}, "--tier-evict: there is no memory behind the device's"},
             {{"--restore", "never"}, "--restore: there is no memory behind the device's"},
             {{"--session-rate", "2"}, "--session-rate: mooncake traces say when their requests start"},
             {{"--expert-skew", "1"}, "--expert-skew: no model has experts"},
             {{"--route", "least-loaded"}, "--route: of several replicas"},
             {{"--cache-only", "--admission", "fewest-tokens"}, "--admission: runs without timing"},
             {{"--cache-only", "--max-sequences", "16"}, "--max-sequences: runs without timing"},
             {{"--cache-only", "--slo", "ttft=2s"}, "--slo: runs without timing"},
             {{"--cache-only", "--expert-skew", "1"}, "--expert-skew: runs without timing"},
             {{"--replicas", "2", "--cache-only"}, "are of one replica"}}) {
        const Outcome outcome = sweep(files.path("c"), flags);
        EXPECT_NE(outcome.exit_code, kExitOk);
        EXPECT_THAT(outcome.err, HasSubstr(says));
    }
    EXPECT_EQ(run_verbatim({"sweep"}).exit_code, kExitBadUsage);
    const Outcome small =
        run_verbatim({"sweep", "--trace", VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz",
                      "--memory", "1GB", "--limit", "3", "--to", files.path("d")});
    EXPECT_EQ(small.exit_code, kExitBadInput) << "no point has a result";
    EXPECT_THAT(file_bytes(files.path("d")), HasSubstr("nothing is left for the cache"));
}

// The sweep ended at the first such point.
TEST(SweepCommand, APointWithoutRoomIsALineWithItsProblem) {
    const tests::ScratchFolder files;
    const auto swept = [&](const char* memory, const std::string& to) {
        return run_verbatim({"sweep", "--trace",
                             VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz", "--memory",
                             memory, "--limit", "30", "--to", to});
    };
    const Outcome outcome = swept("1GB,60GB,900GB", files.path("to"));
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    std::istringstream lines(file_bytes(files.path("to")));
    std::string header, small, good, large;
    for (std::string* line : {&header, &small, &good, &large}) std::getline(lines, *line);
    EXPECT_THAT(nlohmann::json::parse(small)["problem"], HasSubstr("nothing is left for the cache"));
    EXPECT_FALSE(nlohmann::json::parse(small).contains("result"));
    EXPECT_EQ(nlohmann::json::parse(good)["result"]["requests"], 30);
    EXPECT_THAT(nlohmann::json::parse(large)["problem"], HasSubstr("--memory: got"));
    EXPECT_THAT(outcome.err, HasSubstr("2 of 3 points have a problem: --memory: of"));
    EXPECT_EQ(run_verbatim({"sweep", "plot", files.path("to"), "--to", files.path("page.html")}).exit_code, kExitOk);
    EXPECT_THAT(file_bytes(files.path("page.html")), HasSubstr("<p>2 of 3 points have a problem: --memory: of"));
    const Outcome none = swept("1GB,2GB", files.path("none"));
    EXPECT_EQ(none.exit_code, kExitBadInput) << "all have one";
    EXPECT_THAT(none.err, HasSubstr("2 of 2 points have a problem"));
}

TEST(SweepCommand, APageOfPointsThatCannotBeIsAnError) {
    const tests::ScratchFolder files;
    const auto plotted = [&](const std::string& more, const std::string& tokens) {
        const std::string point =
            fmt::format(R"({{"memory_bytes":1,"cache_mode":"prefix","evict":"lru","rate_scale":1{}}})", more);
        const std::string lines = fmt::format(
            "{{\"sweep\":{{\"points\":[{}]}}}}\n{{\"number\":0,\"point\":{},\"result\":{{\"hit_rate\":{{\"token\":"
            "0.5}},\"tpot_s\":{{\"p50\":1,\"p95\":1,\"p99\":1}},\"throughput_tokens_per_s\":{}}}}}\n",
            point, point, tokens);
        return run_verbatim({"sweep", "plot", files.write("points", lines), "--to", files.path("page.html")});
    };
    EXPECT_EQ(plotted("", "5").exit_code, kExitOk);
    const Outcome no_gpu = plotted(",\"tp\":0", "5");
    EXPECT_EQ(no_gpu.exit_code, kExitBadInput);
    EXPECT_THAT(no_gpu.err, HasSubstr("point 0: point/tp: got 0, wanted a count from 1 on"));
    const Outcome vast = plotted("", "1e200");
    EXPECT_EQ(vast.exit_code, kExitBadInput);
    EXPECT_THAT(vast.err, HasSubstr("result/throughput_tokens_per_s: got 1e+200, wanted a number of at most 1e100"));
}

TEST(SweepCommand, APointThatRejectsRowsIsNoSuccess) {
    const tests::ScratchFolder files;
    const std::string trace =
        files.write("trace.jsonl", R"({"timestamp":0,"input_length":512,"output_length":10,"hash_ids":[0]}
{"timestamp":10,"input_length":140000,"output_length":10}
)");
    const Outcome outcome = run_verbatim({"sweep", "--trace", trace, "--memory", "60GB", "--to", files.path("a")});
    EXPECT_EQ(outcome.exit_code, kExitNotAllCompared) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("1 of 1 points rejected rows of the trace"));
}

}  // namespace
}  // namespace verbatim::tools
