// The parts that the readers are made of, against obviously right models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "traces/generate.h"
#include "traces/hit_rate.h"
#include "traces/interval_set.h"
#include "traces/json_cursor.h"
#include "traces/prefix_tree.h"
#include "traces/stats.h"
#include "traces/text_input.h"
#include "traces/verbatim_csv.h"

namespace verbatim::traces {
namespace {

using ::testing::HasSubstr;

RC_GTEST_PROP(IntervalSet, IsASetOfIntegers, ()) {
    IntervalSet intervals;
    std::set<int64_t> set;
    for (const auto& [begin, length] : *rc::gen::arbitrary<std::vector<std::pair<uint8_t, uint8_t>>>()) {
        const int64_t end = begin + length % 40;
        const size_t before = set.size();
        for (int64_t i = begin; i < end; ++i) set.insert(i);
        RC_ASSERT(intervals.insert(begin, end) == static_cast<int64_t>(set.size() - before));
        RC_ASSERT(intervals.size() == static_cast<int64_t>(set.size()));
        int64_t until = end;
        while (set.contains(until)) ++until;
        RC_ASSERT(intervals.covered_until(end) == until);
        RC_ASSERT(intervals.count(10, 90) == std::distance(set.lower_bound(10), set.lower_bound(90)));
    }
}

// Small ids, so that prefixes meet often and edges are split.
RC_GTEST_PROP(PrefixTree, FindsTheLongestCommonPrefixOfAll, ()) {
    PrefixTree tree;
    std::vector<std::vector<int64_t>> earlier;
    const auto sequences = *rc::gen::container<std::vector<std::vector<std::pair<int, int>>>>(
        rc::gen::container<std::vector<std::pair<int, int>>>(
            rc::gen::pair(rc::gen::inRange(0, 6), rc::gen::inRange(1, 5))));
    for (size_t number = 0; number < sequences.size(); ++number) {
        std::vector<IdRun> runs;
        std::vector<int64_t> ids;
        for (const auto& [first, count] : sequences[number]) {
            runs.push_back({first, count});
            for (int64_t id = first; id < first + count; ++id) ids.push_back(id);
        }
        int64_t longest = 0, latest = -1;
        std::vector<int64_t> complete;
        for (size_t i = 0; i < earlier.size(); ++i) {
            const auto common =
                std::mismatch(ids.begin(), ids.end(), earlier[i].begin(), earlier[i].end()).first - ids.begin();
            if (common > longest) complete.clear();
            if (common < longest) continue;
            longest = common;
            latest = static_cast<int64_t>(i);
            if (std::ssize(earlier[i]) == common) complete.push_back(latest);
        }
        const PrefixTree::Match match = tree.longest(runs);
        RC_ASSERT(match.num_blocks == longest);
        RC_ASSERT(match.latest == latest);
        RC_ASSERT(std::vector<int64_t>(match.complete.begin(), match.complete.end()) == complete);
        tree.insert(runs, static_cast<int64_t>(number));
        earlier.push_back(std::move(ids));
    }
}

RC_GTEST_PROP(HitRate, UnlimitedIsTheLruWithRoomForAll, ()) {
    BlockLog log;
    log.block_tokens = 4;
    for (const auto& runs : *rc::gen::arbitrary<std::vector<std::vector<std::pair<uint8_t, uint8_t>>>>()) {
        int64_t blocks = 0;
        for (const auto& [first, count] : runs) {
            log.runs.push_back({first, count % 9 + 1});
            blocks += count % 9 + 1;
        }
        log.run_ends.push_back(log.runs.size());
        log.prompt_tokens.push_back(std::max<int64_t>(1, blocks * 4 - 1));
        log.output_tokens.push_back(1);
    }
    const HitRates unlimited = unlimited_hit_rates(log);
    const HitRates roomy = lru_hit_rates(log, num_unique_blocks(log));
    RC_ASSERT(unlimited.whole.blocks_hit == roomy.whole.blocks_hit);
    RC_ASSERT(unlimited.whole.tokens_hit == roomy.whole.tokens_hit);
    RC_ASSERT(lru_hit_rates(log, 0).whole.blocks_hit == 0);
}

TEST(HitRate, TheLeastRecentlyUsedBlockIsEvictedFirst) {
    BlockLog log;
    log.block_tokens = 1;
    const auto request = [&](std::vector<int64_t> ids) {
        for (const int64_t id : ids) log.runs.push_back({id, 1});
        log.run_ends.push_back(log.runs.size());
        log.prompt_tokens.push_back(std::ssize(ids));
        log.output_tokens.push_back(0);
    };
    request({1, 2, 3});  // room 2: the deepest block is the oldest, 3 goes
    request({1, 2});     // two hits
    request({4});        // 2 goes
    request({1, 2});     // one hit
    EXPECT_EQ(lru_hit_rates(log, 2).whole.blocks_hit, 3);
    EXPECT_EQ(lru_hit_rates(log, 2).second_half.blocks_hit, 1);
}

TEST(JsonCursor, AcceptsAndRefusesWhatJsonDoes) {
    const auto valid = [](std::string_view text) {
        JsonCursor json(text, "x");
        return json.skip().has_value() && json.end().has_value();
    };
    for (const char* text : {"{}", "[]", " [1, -0.5e+3 ,\"a\\u00e9\\ud83d\\ude00\\n\", true,false,null, {\"a\":{}}] ",
                             "0", "-0", "\"\""}) {
        EXPECT_TRUE(valid(text)) << text;
    }
    for (const char* text :
         {"",    "{",  "[1,]",    "{\"a\"}",     "{\"a\":1,}",  "01",     "1.",    ".5",    "+1",    "1e",
          "nul", "\"", "\"\\x\"", "\"\\ud800\"", "\"\\udc00\"", "\"\t\"", "[1] 2", "{a:1}", "[1 2]", "\"\\u12g4\""}) {
        EXPECT_FALSE(valid(text)) << text;
    }
    EXPECT_TRUE(valid(std::string(64, '[') + std::string(64, ']')));
    EXPECT_FALSE(valid(std::string(65, '[') + std::string(65, ']')));
}

TEST(TextInput, LinesOfEveryEnding) {
    auto input = TextInput::from_memory("t", "a\r\n\nb\rc\nlast");
    ASSERT_TRUE(input);
    for (const char* line : {"a", "", "b\rc", "last"}) {
        const auto next = input->next_line();
        ASSERT_TRUE(next && *next);
        EXPECT_EQ(**next, line);
    }
    EXPECT_EQ(input->line_number(), 4);
    EXPECT_EQ(*input->next_line(), std::nullopt);
}

TEST(TextInput, LimitsHold) {
    const std::string text(1000, 'x');
    auto long_line = TextInput::from_memory("t", text, {.line_bytes = 999, .text_bytes = 5000});
    ASSERT_TRUE(long_line);
    EXPECT_THAT(long_line->next_line().error().message, HasSubstr("t:1: a line of more than 999 bytes"));
    EXPECT_THAT(TextInput::from_memory("t", text, {.line_bytes = 999, .text_bytes = 500}).error().message,
                HasSubstr("more than 500 bytes of text"));
}

TEST(Distribution, PercentilesAreNearestRank) {
    std::vector<int64_t> values;
    for (int64_t i = 1; i <= 200; ++i) values.push_back(201 - i);
    const Distribution d = distribution(values);
    EXPECT_EQ(d.p50, 100);
    EXPECT_EQ(d.p90, 180);
    EXPECT_EQ(d.p99, 198);
    EXPECT_EQ(d.max, 200);
    EXPECT_EQ(d.mean, 100.5);
    EXPECT_EQ(distribution({5}).p50, 5);
}

// --- made-up traces

TEST(Generate, TheSeedDecidesEverything) {
    GenerateOptions options;
    EXPECT_EQ(generate(options), generate(options));
    GenerateOptions other = options;
    other.seed = 1;
    EXPECT_FALSE(generate(options) == generate(other));
}

RC_GTEST_PROP(Generate, EveryTraceIsValidAndRoundTrips, ()) {
    GenerateOptions options;
    options.seed = *rc::gen::arbitrary<uint64_t>();
    options.conversations = *rc::gen::inRange(1, 30);
    options.arrivals = *rc::gen::element(ArrivalProcess::kPoisson, ArrivalProcess::kUniform, ArrivalProcess::kBursty);
    options.salts = *rc::gen::inRange(0, 3);
    options.system_prompts = *rc::gen::inRange(0, 3);
    options.fork_chance = options.abort_chance = options.edit_chance = options.regenerate_chance = 0.3;
    const Trace trace = generate(options);
    RC_ASSERT(validate(trace).has_value());
    std::ostringstream first, second;
    write_verbatim_csv(trace, first);
    const std::string text = first.str();
    auto input = TextInput::from_memory("t", text);
    const auto again = read_verbatim_csv(*std::move(input));
    RC_ASSERT(again.has_value());
    write_verbatim_csv(*again, second);
    RC_ASSERT(second.str() == text);
}

TEST(Generate, SharesAndDistributionsComeOut) {
    GenerateOptions options;
    options.conversations = 4000;
    options.fork_chance = 0;
    options.deterministic_share = 0.25;
    const Trace trace = generate(options);
    const TraceStats stats = stats_of(trace);
    EXPECT_NEAR(stats.turns.mean / (1 + options.abort_chance + options.regenerate_chance), options.mean_turns, 0.2);
    EXPECT_NEAR(static_cast<double>(stats.output_tokens.p50), options.output_tokens.median, 10);
    EXPECT_NEAR(stats.think_ns.mean / 1e9, options.mean_think_seconds, 0.5);
    int64_t deterministic = 0;
    std::map<ConversationIndex, bool> last;
    int64_t num_changes = 0;  // from a request of a conversation to the next one
    for (const Row& row : trace.rows) {
        const bool now = trace.options[row.options].deterministic;
        deterministic += now;
        const auto [found, is_first] = last.try_emplace(row.conversation, now);
        num_changes += !is_first && std::exchange(found->second, now) != now;
    }
    EXPECT_NEAR(static_cast<double>(deterministic) / static_cast<double>(stats.requests), 0.25, 0.03);
    EXPECT_GT(num_changes, 1000);
}

TEST(Generate, StartsFollowTheArrivalProcess) {
    const auto variation = [](ArrivalProcess arrivals) {
        GenerateOptions options;
        options.conversations = 8000;
        options.mean_turns = 1;
        options.regenerate_chance = options.abort_chance = options.fork_chance = 0;
        options.arrivals = arrivals;
        return stats_of(generate(options)).gap_cv;
    };
    EXPECT_NEAR(variation(ArrivalProcess::kUniform), 0, 1e-6);
    EXPECT_NEAR(variation(ArrivalProcess::kPoisson), 1, 0.05);
    EXPECT_NEAR(variation(ArrivalProcess::kBursty), 3, 0.4);
}

}  // namespace
}  // namespace verbatim::traces
