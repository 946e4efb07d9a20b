// Bailian's logs, units of time and of blocks, and hashes as ids; Mooncake's own lines are in convert_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "traces/read.h"

namespace verbatim::traces {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ReadTrace read_log(const std::string& text, const ReadOptions& options = {}) {
    auto trace = read_trace_text("t", text, options);
    if (!trace) ADD_FAILURE() << trace.error().message;
    return trace ? *std::move(trace) : ReadTrace{};
}
std::string log_error(const std::string& text, const ReadOptions& options = {}) {
    const auto trace = read_trace_text("t", text, options);
    EXPECT_FALSE(trace) << text;
    return trace ? "" : trace.error().message;
}

// Two turns of a chat, half a minute apart, and another chat.
constexpr const char* kBailian =
    R"({"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 40, "output_length": 5, )"
    R"("type": "text", "turn": 1, "hash_ids": [1, 2, 3]}
)"
    R"({"chat_id": 160, "parent_chat_id": -1, "timestamp": 62, "input_length": 33, "output_length": 5, )"
    R"("type": "search", "turn": 1, "hash_ids": [7, 8]}
)"
    R"({"chat_id": 201, "parent_chat_id": 159, "timestamp": 91.5, "input_length": 64, "output_length": 5, )"
    R"("type": "text", "turn": 2, "hash_ids": [1, 2, 4, 5]}
)";

TEST(HashIdLog, BailiansTimesAreSecondsAndItsBlocksHaveSixteenTokens) {
    const ReadTrace bailian = read_log(kBailian);
    EXPECT_EQ(bailian.report.format, Format::kBailian);
    ASSERT_EQ(bailian.trace.rows.size(), 3u);
    EXPECT_EQ(bailian.trace.rows[0].arrival_ns, 61'114'000'000);
    EXPECT_EQ(bailian.trace.rows[2].arrival_ns, 91'500'000'000);
    EXPECT_EQ(bailian.trace.rows[2].prompt_tokens, 64);
    EXPECT_EQ(bailian.report.continuations, 1) << "two full blocks are common, and the turn before has 45 tokens";
    EXPECT_EQ(bailian.trace.rows[2].take_tokens, 45);
    EXPECT_EQ(bailian.report.roots, 2) << "the second line lists full blocks alone";
}

TEST(HashIdLog, UnitsCanBeSaid) {
    ReadOptions options;
    options.format = Format::kMooncake;
    options.time_unit = TimeUnit::kSeconds;
    options.block_tokens = 16;
    const std::string line = R"({"timestamp": 2.5, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]})";
    EXPECT_EQ(read_log(line, options).trace.rows[0].arrival_ns, 2'500'000'000);
    options.time_unit = TimeUnit::kMicroseconds;
    EXPECT_EQ(read_log(line, options).trace.rows[0].arrival_ns, 2'500);
    options.time_unit = TimeUnit::kNanoseconds;
    EXPECT_EQ(read_log(line, options).trace.rows[0].arrival_ns, 3) << "rounded";
    options.block_tokens = 0;
    EXPECT_THAT(log_error(line, options),
                HasSubstr("wanted 1 ids in 'hash_ids' (one per 512 tokens; --block-tokens says how many), not 3"));
    options.format = Format::kAzure;
    const std::string azure = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n";
    EXPECT_THAT(log_error(azure, options), HasSubstr("--time-unit: azure traces have a unit of their own"));
    options.time_unit.reset();
    options.block_tokens = 16;
    EXPECT_THAT(log_error(azure, options), HasSubstr("--block-tokens: azure traces"));
    options.format = Format::kBailian;
    options.block_tokens = kMaxBlockTokens + 1;
    EXPECT_THAT(log_error(kBailian, options), HasSubstr("--block-tokens: got 65537, wanted 1 to 65536"));
}

std::string lines_at(double step, int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
        text += fmt::format(R"({{"timestamp": {:.4f}, "input_length": 5, "output_length": 1}})", step * i) + "\n";
    return text;
}

// Seconds that are read as milliseconds: 20 requests a second become 20 000.
TEST(HashIdLog, ARateThatNoServiceHasIsAskedAbout) {
    EXPECT_THAT(log_error(lines_at(0.05, 100)),
                AllOf(HasSubstr("with timestamps in milliseconds the median rate is 20000 requests a second"),
                      HasSubstr("--time-unit ms: they are right")));
    ReadOptions said;
    said.time_unit = TimeUnit::kMilliseconds;
    EXPECT_EQ(read_log(lines_at(0.05, 100), said).report.rows, 100);
    said.time_unit = TimeUnit::kSeconds;
    EXPECT_EQ(read_log(lines_at(0.05, 100), said).trace.rows[1].arrival_ns, 50'000'000);
    EXPECT_EQ(read_log(lines_at(0.1001, 100)).report.rows, 100) << "just below 10 000";
    EXPECT_EQ(read_log(lines_at(0, 100)).report.rows, 100) << "all at once is a batch, not a rate";
    EXPECT_EQ(read_log(lines_at(0, 100) + R"({"timestamp": 3000, "input_length": 5, "output_length": 1})").report.rows,
              101);
}

TEST(HashIdLog, IdsMayBeHashesOf64Bits) {
    const auto line = [](const char* ids) {
        return fmt::format(R"({{"timestamp": 0, "input_length": 1536, "output_length": 1, "hash_ids": [{}]}})", ids) +
               "\n";
    };
    const std::string hashes = line("18446744073709551615, 9223372036854775808, 5000000000") +
                               line("18446744073709551615, 9223372036854775808, 5000000001");
    const std::string small = line("10, 11, 12") + line("10, 11, 13");
    ReadOptions options;
    options.keep_blocks = true;
    const ReadTrace wide = read_log(hashes, options);
    EXPECT_EQ(wide.report.edit_tokens, 1024);
    EXPECT_EQ(wide.report.edit_tokens, read_log(small, options).report.edit_tokens);
    EXPECT_EQ(wide.trace.rows[1].take_tokens, 1024);
    EXPECT_THAT(log_error(line("18446744073709551616, 1, 2")),
                HasSubstr("got '18446744073709551616, 1, 2]}', wanted a whole number from 0 to 18446744073709551615"));
    EXPECT_THAT(log_error(line("-1, 1, 2")), HasSubstr("wanted a whole number from 0"));
}

TEST(HashIdLog, AzuresTimesMayHaveAZone) {
    const auto rows = [](const std::string& first, const std::string& second) {
        return "TIMESTAMP,ContextTokens,GeneratedTokens\n" + first + ",374,44\n" + second + ",10,2\n";
    };
    const ReadTrace zoned = read_log(rows("2024-05-10 00:00:00.009930+00:00", "2024-05-10 00:00:01+00:00"));
    EXPECT_EQ(zoned.trace.rows[1].arrival_ns, 990'070'000);
    EXPECT_EQ(read_log(rows("2024-05-10 00:00:00Z", "2024-05-09 17:00:01.5-07:00")).trace.rows[1].arrival_ns,
              1'500'000'000);
    EXPECT_THAT(log_error(rows("2024-05-10 00:00:00+00", "2024-05-10 00:00:01+00:00")), HasSubstr("column TIMESTAMP"));
    EXPECT_THAT(log_error(rows("2024-05-10 00:00:00+25:00", "2024-05-10 00:00:01+00:00")),
                HasSubstr("column TIMESTAMP"));
    EXPECT_THAT(log_error(rows("2024-05-10 00:00:01+00:00", "2024-05-10 00:00:00+00:00")), HasSubstr("not before"));
}

TEST(HashIdLog, LengthsGoToTwoToTheThirtieth) {
    const auto line = [](int64_t prompt, int64_t output) {
        return fmt::format("{{\"timestamp\": 0, \"input_length\": {}, \"output_length\": {}}}\n", prompt, output);
    };
    constexpr int64_t kMost = 1'073'741'824;
    const ReadTrace longest = read_log(line(kMost, kMost));
    ASSERT_EQ(longest.trace.rows.size(), 1u);
    EXPECT_EQ(longest.trace.rows[0].prompt_tokens, kMost);
    EXPECT_EQ(longest.trace.rows[0].max_tokens, kMost);
    EXPECT_THAT(log_error(line(kMost + 1, 1)), HasSubstr("a whole number from 1 to 1073741824"));
    EXPECT_THAT(log_error(line(1, kMost + 1)), HasSubstr("a whole number from 0 to 1073741824"));
}

}  // namespace
}  // namespace verbatim::traces
