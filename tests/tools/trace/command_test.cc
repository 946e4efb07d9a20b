// `verbatim trace` as people and scripts use it: what it prints and writes, exit codes, and what it says to wrong
// input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "files/repository_path.h"
#include "tests/tools/program/run_program.h"
#include "traces/read.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string data(const std::string& file) { return repository_path("traces/data/" + file); }
const char* const kMooncake = "mooncake_conversation_trace.jsonl.gz";
const char* const kSlice = "agentic_slice.jsonl.gz";
const char* const kAzure = "AzureLLMInferenceTrace2023_conv.csv.gz";

const std::string kBurstGpt =
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,s1,1.5,GPT-4,100,20,120,Conversation log\n6.25,,0.5,ChatGPT,50,0,50,API log\n"
    "7,s1,2,GPT-4,130,20,150,Conversation log\n";

const std::string kVllmBench = R"({"input_lens": [10, 20], "output_lens": [5, 0], "start_times": [1.5, 1.25]})"
                               "\n";
const std::string kRagPulse =
    R"({"timestamp": "27", "input_length": 3861, "output_length": 7, "hash_ids": {"passages_ids": [6123, 7239]}})"
    "\n";
const std::string kBailian =
    R"({"chat_id": 1, "parent_chat_id": -1, "timestamp": 61.5, "input_length": 40, "output_length": 5, )"
    R"("type": "text", "turn": 1, "hash_ids": [7, 8, 9]})"
    "\n";
const std::string kVidur = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.314579,396,109\n";
const std::string kOtel =
    R"({"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "a", "startTimeUnixNano": "17", "attributes": [)"
    R"({"key": "gen_ai.usage.input_tokens", "value": {"intValue": "4"}}]}]}]}]})"
    "\n";

std::string uncompressed(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rb");
    std::string bytes;
    char buffer[1 << 16];
    for (int got = 0; (got = gzread(file, buffer, sizeof buffer)) > 0;) bytes.append(buffer, static_cast<size_t>(got));
    gzclose(file);
    return bytes;
}

std::string zstd_compressed(const std::string& bytes) {
    std::string packed(ZSTD_compressBound(bytes.size()), '\0');
    packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
    return packed;
}

std::string first_lines(const std::string& text, size_t count) {
    size_t end = 0;
    while (count-- > 0) end = text.find('\n', end) + 1;
    return text.substr(0, end);
}

// A small trace of every format, not compressed.
std::vector<std::pair<std::string, std::string>> traces_of_every_format() {
    return {{"verbatim", file_bytes(repository_path("traces/scenario.csv"))},
            {"agentic", uncompressed(data(kSlice))},
            {"mooncake", first_lines(uncompressed(data(kMooncake)), 300)},
            {"azure", first_lines(uncompressed(data(kAzure)), 300)},
            {"burstgpt", kBurstGpt},
            {"bailian", kBailian},
            {"vllm-bench", kVllmBench},
            {"otel", kOtel},
            {"ragpulse", kRagPulse},
            {"vidur", kVidur}};
}

// convert, reading FROM and writing TO; the bytes that were written.
std::string converted(const std::string& from, const std::string& to) {
    const Outcome outcome = run_verbatim({"trace", "convert", from, "--to", to});
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    return file_bytes(to);
}

// A new format has a trace here, and some for the fuzzers.
TEST(TraceConvert, EveryFormatIsTested) {
    std::vector<std::string> formats;
    for (const auto& [format, text] : traces_of_every_format()) formats.push_back(format);
    EXPECT_THAT(formats, testing::UnorderedElementsAreArray(traces::kFormatNames));
    for (const std::string format : traces::kFormatNames)
        EXPECT_TRUE(std::filesystem::exists(repository_path("tests/fuzz/corpus/trace_" + format))) << format;
}

TEST(TraceConvert, ConvertingWhatWasConvertedIsTheIdentityInEveryFormatAndCompression) {
    const tests::ScratchFolder files;
    for (const auto& [format, text] : traces_of_every_format()) {
        const std::string csv = converted(files.write(format + ".in", text), files.path(format + ".csv"));
        EXPECT_THAT(csv, testing::StartsWith("# verbatim-trace 1\n")) << format;
        const std::string packed_input = files.write(format + ".in.zst", zstd_compressed(text));
        EXPECT_TRUE(converted(packed_input, files.path("again.csv")) == csv) << format;
        const std::string gzip = converted(files.path(format + ".csv"), files.path("again.csv.gz"));
        const std::string zstd = converted(files.path("again.csv.gz"), files.path("again.csv.zst"));
        EXPECT_TRUE(gzip.size() < csv.size() && zstd.size() < csv.size()) << format;
        EXPECT_TRUE(uncompressed(files.path("again.csv.gz")) == csv) << format;
        EXPECT_TRUE(converted(files.path("again.csv.zst"), files.path("last.csv")) == csv) << format;
    }
}

TEST(TraceConvert, RecognisesTheFormatAndPrintsTheInferredCounts) {
    const tests::ScratchFolder files;
    for (const auto& [format, text] : traces_of_every_format()) {
        const Outcome outcome = run_verbatim(
            {"trace", "convert", files.write(format, text), "--to", files.path("out.csv"), "--format", "json"});
        ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        EXPECT_EQ(json::parse(outcome.out)["format"], format);
    }
    const Outcome whole = run_verbatim({"trace", "convert", data(kMooncake), "--to", files.path("mooncake.csv.zst")});
    ASSERT_EQ(whole.exit_code, kExitOk) << whole.err;
    for (const char* line : {"requests read                    12031\n", "roots                            7401\n",
                             "continuations                    3571\n", "rewrites                         372\n",
                             "edits                            687\n", "rows with several continuations  45\n",
                             "taken by continuations         30.73 %\n", "taken by rewrites              2.65 %\n"}) {
        EXPECT_THAT(whole.out, HasSubstr(line));
    }
    EXPECT_EQ(whole.err, "");
}

TEST(TraceConvert, FlagsChangeWhatIsWritten) {
    const tests::ScratchFolder files;
    const auto rows = [&](std::vector<std::string> flags) -> json {
        std::vector<std::string> arguments = {"trace",    "convert", data(kSlice), "--to", files.path("out.csv"),
                                              "--format", "json"};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        return json::parse(outcome.out);
    };
    const json whole = rows({});
    EXPECT_EQ(whole["rows"], 157);
    EXPECT_EQ(rows({"--sessions", "2..4"})["sessions"], 3);
    EXPECT_EQ(rows({"--sessions", "2"})["sessions"], 1);
    EXPECT_LT(rows({"--limit", "5"})["rows"], 157);
    EXPECT_EQ(rows({"--sessions-scale", "3"})["rows"], 3 * 157);
    const json dropped = rows({"--max-context", "drop", "--context", "30000"});
    EXPECT_GT(dropped["over_context"], 0);
    EXPECT_EQ(dropped["rows"].get<int64_t>() + dropped["over_context"].get<int64_t>(), 157);
    EXPECT_EQ(rows({"--context", "30000"})["over_context"], dropped["over_context"]);  // --context alone rejects
    EXPECT_THAT(file_bytes(files.path("out.csv")), HasSubstr(",refused"));
    EXPECT_EQ(rows({"--max-context", "scale", "--context", "30000"})["over_context"], 0);
    const std::string as_recorded = (rows({}), file_bytes(files.path("out.csv")));
    for (const auto& flags : std::vector<std::vector<std::string>>{{"--tokens-per-id", "3"},
                                                                   {"--rate-scale", "2"},
                                                                   {"--think-scale", "0.5"},
                                                                   {"--session-rate", "4"},
                                                                   {"--seed", "9"}}) {
        EXPECT_EQ(rows(flags)["rows"], 157);
        EXPECT_FALSE(file_bytes(files.path("out.csv")) == as_recorded) << flags[0];
    }
}

// --- stats

TEST(TraceStats, TheTableNamesEverythingThatTheJsonCounts) {
    const Outcome table = run_verbatim({"trace", "stats", data(kMooncake)});
    ASSERT_EQ(table.exit_code, kExitOk) << table.err;
    for (const char* part :
         {"requests                   12031\n", "conversation, turns", "request, depth", "p99", "arrival gap, s",
          "variation of arrival gaps", "busiest second", "taken by a continuation", "own, said before elsewhere",
          "block cache of", "by token, 2nd half", "182790", "partial blocks taken by their id", "to keep everything",
          "tiny-granite", "granite-4.0-h-1b"}) {
        EXPECT_THAT(table.out, HasSubstr(part));
    }
    const Outcome outcome = run_verbatim({"trace", "stats", data(kMooncake), "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json stats = json::parse(outcome.out);
    EXPECT_EQ(stats["requests"], 12031);
    EXPECT_NEAR(stats["block_cache"]["unlimited"]["whole"]["by_block"], .3664, 5e-5);
    EXPECT_NEAR(stats["block_cache"]["unlimited"]["second_half"]["by_token"], .3981, 5e-5);
    EXPECT_EQ(stats["block_cache"]["limited"].size(), 9u);  // 5 shares of the blocks, 4 rooms in tokens
    EXPECT_EQ(stats["prompt_tokens"]["count"], 12031);
    EXPECT_EQ(stats["prompt_total"], 144793823);
    for (const json& need : stats["needs"]) EXPECT_GT(need["kv_bytes"], 0) << need;
}

TEST(TraceStats, APictureIsOneWholeFileThatNeedsNoOther) {
    const tests::ScratchFolder files;
    for (const auto& [format, text] : traces_of_every_format()) {
        const Outcome outcome =
            run_verbatim({"trace", "stats", files.write(format, text), "--picture", files.path("picture.svg")});
        ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        const std::string svg = file_bytes(files.path("picture.svg"));
        EXPECT_THAT(svg, AllOf(testing::StartsWith("<svg "), testing::EndsWith("</svg>\n"), HasSubstr("<rect"),
                               Not(HasSubstr("href")), Not(HasSubstr("url(")), Not(HasSubstr("nan"))))
            << format;
    }
}

// --- generate

TEST(TraceGenerate, TheSeedDecidesTheBytesAndTheFlagsTheShape) {
    const tests::ScratchFolder files;
    const auto generated = [&](std::vector<std::string> flags) {
        std::vector<std::string> arguments = {"trace", "generate", "--to", files.path("made.csv")};
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        return file_bytes(files.path("made.csv"));
    };
    const std::vector<std::string> rich = {"--conversations",
                                           "60",
                                           "--fork",
                                           "0.2",
                                           "--edit",
                                           "0.2",
                                           "--abort",
                                           "0.2",
                                           "--salts",
                                           "2",
                                           "--suffix-share",
                                           "0.5",
                                           "--regenerate",
                                           "0.2",
                                           "--seed",
                                           "7",
                                           "--deterministic-share",
                                           "0.5",
                                           "--system-prompts",
                                           "3"};
    const std::string made = generated(rich);
    EXPECT_TRUE(generated(rich) == made);
    EXPECT_THAT(made, AllOf(HasSubstr(",fork,"), HasSubstr("suffix,"), HasSubstr("regenerate,")));
    EXPECT_FALSE(generated({"--conversations", "60"}) == generated({"--conversations", "60", "--seed", "1"}));
    EXPECT_FALSE(generated({"--arrivals", "bursty"}) == generated({"--arrivals", "uniform"}));
    EXPECT_EQ(converted(files.write("rich.csv", made), files.path("again.csv")), made);
    const Outcome stats = run_verbatim({"trace", "stats", files.path("rich.csv"), "--format", "json"});
    ASSERT_EQ(stats.exit_code, kExitOk) << stats.err;
    const json report = json::parse(stats.out);
    EXPECT_GE(report["conversations"], 60);
    EXPECT_GT(report["by_edit"], 0);
    EXPECT_GT(report["repeated_across"], 0);  // the system prompts
}

// --- wrong use and wrong input

struct Wrong {
    std::vector<std::string> arguments;
    ExitCode exit_code;
    std::string said;
};

TEST(TraceCommand, WrongUseAndWrongInputGetTheirExitCodeAndSayWhatToDo) {
    const tests::ScratchFolder files;
    const std::string to = files.path("out.csv");
    const std::string slice = data(kSlice);
    const std::string broken = files.write(
        "broken.jsonl", first_lines(uncompressed(data(kMooncake)), 2) + "{\"timestamp\": 30, \"input_length\": x}\n");
    const std::string azure =
        files.write("azure.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n");
    const std::string scenario = VERBATIM_SOURCE_DIR "/traces/scenario.csv";
    const std::string cut = files.write("cut.gz", file_bytes(slice).substr(0, 1000));
    const std::vector<Wrong> wrongs = {
        {{"convert", slice}, kExitBadUsage, "--to is required"},
        {{"convert", "--to", to}, kExitBadUsage, "IN is required"},
        {{"convert", slice, "--to", to, "--input-format", "xml"}, kExitBadUsage, "--input-format"},
        {{"convert", slice, "--to", to, "--sessions", "5..2"}, kExitBadUsage, "wanted A..B with 0 <= A <= B"},
        {{"convert", slice, "--to", to, "--sessions", "-1"}, kExitBadUsage, "--sessions: got '-1'"},
        {{"convert", slice, "--to", to, "--limit", "0"}, kExitBadUsage, "no whole number from 1 on"},
        {{"convert", slice, "--to", to, "--tokens-per-id", "1.5"}, kExitBadUsage, "--tokens-per-id"},
        {{"convert", slice, "--to", to, "--max-context", "cut"}, kExitBadUsage, "--max-context"},
        {{"convert", slice, "--to", to, "--context", "0"}, kExitBadUsage, "--context: got '0'"},
        {{"convert", slice, "--to", to, "--rate-scale", "0"}, kExitBadUsage, "--rate-scale: got 0"},
        {{"convert", slice, "--to", to, "--rate-scale", "nan"}, kExitBadUsage, "got 'nan', wanted a number"},
        {{"convert", slice, "--to", to, "--think-scale", "-1"}, kExitBadUsage, "--think-scale"},
        {{"convert", slice, "--to", to, "--session-rate", "1e9"}, kExitBadUsage, "--session-rate: got 1000000000"},
        {{"convert", slice, "--to", to, "--format", "xml"}, kExitBadUsage, "--format"},
        {{"convert", slice, "--to", to, "--time-unit", "h"}, kExitBadUsage, "--time-unit"},
        {{"convert", slice, "--to", to, "--time-unit", "s"}, kExitBadUsage, "--time-unit: agentic traces have a unit"},
        {{"convert", azure, "--to", to, "--time-unit", "s"}, kExitBadUsage, "it is of mooncake and bailian"},
        {{"convert", azure, "--to", to, "--block-tokens", "16"}, kExitBadUsage, "--block-tokens: azure traces have no"},
        {{"convert", azure, "--to", to, "--session-rate", "1"}, kExitBadUsage, "--session-rate: azure traces say when"},
        {{"stats", scenario, "--session-rate", "1"}, kExitBadUsage, "--session-rate: verbatim traces say when"},
        {{"stats", azure, "--input-format", "mooncake", "--time-unit", "s"}, kExitBadInput, "azure.csv:1:"},
        {{"convert", slice, "--to", to, "--block-tokens", "0"}, kExitBadUsage, "--block-tokens"},
        {{"convert", slice, "--to", to, "--no-such-flag"}, kExitBadUsage, "--no-such-flag"},
        {{"convert", slice, "--to", to, "--tokens-per-id", "65"}, kExitBadInput, "wanted at most 64"},
        {{"convert", slice, "--to", to, "--input-format", "azure"}, kExitBadInput, "agentic_slice.jsonl.gz"},
        {{"convert", slice, "--to", to, "--max-context", "scale", "--context", "3"}, kExitBadInput, "does not fit"},
        {{"convert", "/no/such/trace", "--to", to}, kExitBadInput, "/no/such/trace: cannot be opened: No such file"},
        {{"convert", "/tmp", "--to", to}, kExitBadInput, "/tmp: "},
        {{"convert", files.write("empty", ""), "--to", to}, kExitBadInput, "empty:1: got ''"},
        {{"convert", files.write("hello", "hello\n"), "--to", to},
         kExitBadInput,
         "hello:1: got 'hello', wanted a trace"},
        {{"convert", broken, "--to", to}, kExitBadInput, "broken.jsonl:3:35: got 'x}', wanted a number"},
        {{"convert", cut, "--to", to}, kExitBadInput, "cut.gz"},
        {{"convert", slice, "--to", "/no/such/folder/out.csv"}, kExitMachine, "/no/such/folder/out.csv"},
        {{"convert", slice, "--to", "/proc/out.csv"}, kExitMachine, "/proc/out.csv"},
        {{"convert", slice, "--to", "/dev/full"}, kExitMachine, "/dev/full"},
        {{"stats"}, kExitBadUsage, "IN is required"},
        {{"stats", "/no/such/trace"}, kExitBadInput, "/no/such/trace: cannot be opened"},
        {{"stats", slice, "--picture", "/no/such/folder/x.svg"}, kExitMachine, "x.svg: cannot be created"},
        {{"generate"}, kExitBadUsage, "--to is required"},
        {{"generate", "--to", to, "--conversations", "0"}, kExitBadUsage, "--conversations"},
        {{"generate", "--to", to, "--arrivals", "daily"}, kExitBadUsage, "--arrivals"},
        {{"generate", "--to", to, "--rate", "-1"}, kExitBadUsage, "--rate: got -1, wanted 1e-06 to 1"},
        {{"generate", "--to", to, "--fork", "2"}, kExitBadUsage, "--fork: got 2, wanted 0 to 1"},
        {{"generate", "--to", to, "--turns", "0"}, kExitBadUsage, "--turns: got 0"},
        {{"generate", "--to", "/no/such/folder/out.csv"}, kExitMachine, "/no/such/folder/out.csv"},
        {{}, kExitBadUsage, "A subcommand is required"},
        {{"improve"}, kExitBadUsage, "A subcommand is required"},
    };
    for (Wrong wrong : wrongs) {
        std::string shown;
        for (const std::string& argument : wrong.arguments) shown += argument + " ";
        wrong.arguments.insert(wrong.arguments.begin(), "trace");
        const Outcome outcome = run_verbatim(wrong.arguments);
        EXPECT_EQ(outcome.exit_code, wrong.exit_code) << shown << outcome.err;
        EXPECT_EQ(outcome.out, "") << shown;
        EXPECT_THAT(outcome.err, AllOf(testing::StartsWith("verbatim: error: "), HasSubstr(wrong.said))) << shown;
    }
    EXPECT_FALSE(std::filesystem::exists(to)) << "a conversion that failed left a file";
}

TEST(TraceCommand, GeneratesATraceOfAShape) {
    const tests::ScratchFolder files;
    for (const char* shape : {"documents", "one-shots", "tool-loops", "templates"}) {
        const std::string path = files.path(std::string(shape) + ".csv");
        const Outcome outcome =
            run_verbatim({"trace", "generate-shape", "--shape", shape, "--requests", "50", "--to", path});
        ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        EXPECT_EQ(run_verbatim({"trace", "stats", path}).exit_code, kExitOk) << "what is written can be read";
    }
    for (const std::vector<std::string>& wrong :
         std::vector<std::vector<std::string>>{{"--shape", "round"}, {"--requests", "0"}, {"--rate", "0"}}) {
        std::vector<std::string> arguments = {"trace", "generate-shape", "--to", files.path("wrong.csv")};
        arguments.insert(arguments.end(), wrong.begin(), wrong.end());
        EXPECT_EQ(run_verbatim(arguments).exit_code, kExitBadUsage) << wrong.at(0);
    }
}

}  // namespace
}  // namespace verbatim::tools
