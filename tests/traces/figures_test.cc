// The figures of traces/README.md, computed outside this project, from the whole traces in traces/data/.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "traces/hit_rate.h"
#include "traces/recording.h"
#include "traces/stats.h"

namespace verbatim::traces {
namespace {

const ReadTrace& whole(const char* file) {
    static std::map<std::string, ReadTrace> traces;
    const auto found = traces.find(file);
    if (found != traces.end()) return found->second;
    ReadOptions options;
    options.keep_blocks = true;
    auto trace = read_trace(std::string(VERBATIM_SOURCE_DIR "/traces/data/") + file, options);
    if (!trace) ADD_FAILURE() << trace.error().message;
    return traces.emplace(file, trace ? *std::move(trace) : ReadTrace{}).first->second;
}
const ReadTrace& mooncake() { return whole("mooncake_conversation_trace.jsonl.gz"); }
const ReadTrace& agentic() { return whole("agentic_coding_sessions.jsonl.gz"); }

double rounded(double value, int digits) { return std::round(value * std::pow(10, digits)) / std::pow(10, digits); }

TEST(Figures, MooncakeRelations) {
    const ReadReport& report = mooncake().report;
    EXPECT_EQ(report.format, Format::kMooncake);
    EXPECT_EQ(report.rows, 12031);
    EXPECT_EQ(report.roots, 7401);
    EXPECT_EQ(report.continuations, 3571);
    EXPECT_EQ(report.rewrites, 372);
    EXPECT_EQ(report.edits, 687);
    EXPECT_EQ(report.forked_rows, 45);
    EXPECT_EQ(report.forks, 49);
    const auto share = [&](int64_t tokens) {
        return rounded(100.0 * static_cast<double>(tokens) / static_cast<double>(report.prompt_tokens), 2);
    };
    EXPECT_EQ(share(report.continuation_tokens), 30.73);
    EXPECT_EQ(share(report.rewrite_tokens), 2.65);
    EXPECT_EQ(share(report.edit_tokens), 2.91);
}

TEST(Figures, AgenticRelations) {
    const ReadReport& report = agentic().report;
    EXPECT_EQ(report.rows, 31627);
    EXPECT_EQ(report.sessions, 462);
    EXPECT_EQ(report.subagents, 38);
    EXPECT_EQ(report.roots, 526);
    EXPECT_EQ(report.continuations, 26011);
    EXPECT_EQ(report.rewrites, 3111);
    EXPECT_EQ(report.edits, 1979);
    EXPECT_EQ(report.edits_in_last_block, 1211);
    EXPECT_EQ(report.prompt_tokens, 3736212880);
}

// 3.7 billion tokens are held as runs, in a few megabytes.
TEST(Figures, TokensAreNotWrittenOut) {
    const Trace& trace = agentic().trace;
    EXPECT_LT(trace.pieces.size(), 61'000u);
    EXPECT_TRUE(trace.explicit_ids.empty());
    EXPECT_LT(trace.pieces.size() * sizeof(Piece) + trace.rows.size() * sizeof(Row), size_t{8} << 20);
}

TEST(Figures, AzureHasNothingInCommon) {
    const ReadReport& report = whole("AzureLLMInferenceTrace2023_conv.csv.gz").report;
    EXPECT_EQ(report.rows, 19366);
    EXPECT_EQ(report.roots, 19366);
}

TEST(Figures, MooncakeByBlock) {
    const BlockLog& log = mooncake().blocks;
    const int64_t unique = num_unique_blocks(log);
    EXPECT_EQ(unique, 182790);
    const std::vector<std::pair<int64_t, double>> expected = {
        {1, .0525}, {5, .1958}, {10, .2789}, {25, .3535}, {50, .3631}};
    for (const auto& [percent, rate] : expected) {
        EXPECT_EQ(rounded(lru_hit_rates(log, unique * percent / 100).whole.block_rate(), 4), rate) << percent << " %";
    }
    EXPECT_EQ(rounded(unlimited_hit_rates(log).whole.block_rate(), 4), .3664);
}

TEST(Figures, MooncakeByToken) {
    const BlockLog& log = mooncake().blocks;
    struct Expected {
        int64_t room_tokens;
        double whole, second_half;
    };
    for (const Expected& expected :
         {Expected{256 << 10, 4.30, 4.54}, {1 << 20, 5.60, 5.64}, {4 << 20, 18.51, 18.82}, {16 << 20, 34.15, 35.58}}) {
        const HitRates rates = lru_hit_rates(log, expected.room_tokens / log.block_tokens);
        EXPECT_EQ(rounded(100 * rates.whole.token_rate(), 2), expected.whole) << expected.room_tokens;
        EXPECT_EQ(rounded(100 * rates.second_half.token_rate(), 2), expected.second_half) << expected.room_tokens;
        EXPECT_EQ(rates.second_half.requests, 12031 - 6015);
    }
    const HitRates unlimited = unlimited_hit_rates(log);
    EXPECT_EQ(rounded(100 * unlimited.whole.token_rate(), 2), 37.36);
    EXPECT_EQ(rounded(100 * unlimited.second_half.token_rate(), 2), 39.81);
}

TEST(Figures, MooncakeTakenLiterally) {
    const double share = static_cast<double>(literal_continuation_tokens(mooncake().blocks)) /
                         static_cast<double>(mooncake().report.prompt_tokens);
    EXPECT_EQ(rounded(100 * share, 1), 0.1);
}

TEST(Figures, SubagentsOverlapTheirSessions) { EXPECT_EQ(agentic().report.overlapping_subagents, 31); }

TEST(Figures, SharedTextLeavesOtherIdsAlone) {
    auto input = TextInput::open(VERBATIM_SOURCE_DIR "/traces/data/agentic_coding_sessions.jsonl.gz");
    ASSERT_TRUE(input);
    const auto recording = read_agentic(*std::move(input), {});
    ASSERT_TRUE(recording) << recording.error().message;
    int64_t sessions = 0;  // in which later requests have other ids in the shared blocks
    for (const Strand& strand : recording->strands) {
        if (strand.name.find(".s") != std::string::npos) continue;
        const int64_t num_shared = (strand.tool_tokens + strand.system_tokens) / recording->block_tokens;
        const auto ids = [&](size_t k) {
            const RecordedRequest& request = recording->requests[strand.first_request + k];
            std::vector<int64_t> first;
            for (size_t r = 0; r < request.num_runs; ++r) {
                const IdRun& run = recording->runs[request.first_run + r];
                for (int64_t id = run.first; id < run.first + run.count && std::ssize(first) < num_shared; ++id)
                    first.push_back(id);
            }
            return first;
        };
        bool differs = false;
        for (size_t k = 1; k < strand.num_requests && !differs; ++k) {
            const auto a = ids(0), b = ids(k);
            differs = !std::equal(a.begin(), a.begin() + std::min(std::ssize(a), std::ssize(b)), b.begin());
        }
        sessions += differs;
    }
    EXPECT_EQ(sessions, 167);
}

TEST(Figures, AgenticPromptsAreLong) {
    const auto share_over = [](int64_t tokens) {
        const Trace& trace = agentic().trace;
        int64_t count = 0;
        for (const Row& row : trace.rows) count += is_request(row.event) && row.prompt_tokens > tokens;
        return 100.0 * static_cast<double>(count) / 31627;
    };
    EXPECT_EQ(rounded(share_over(131072), 0), 28);
    EXPECT_EQ(rounded(share_over(32768), 1), 94.4);
}

TEST(Figures, MooncakeContinuationsWithinAMinute) {
    const Trace& trace = mooncake().trace;
    int64_t soon = 0;
    for (const Row& row : trace.rows) {
        if (row.event != Event::kHistory || relation(trace, row) != Relation::kContinuation) continue;
        soon += row.arrival_ns - trace.row(row.from).arrival_ns < 60'000'000'000;
    }
    EXPECT_EQ(rounded(100.0 * static_cast<double>(soon) / 3571, 1), 18.0);
}

TEST(Figures, MooncakeRowsThatRepeatAnotherWhole) {
    const BlockLog& log = mooncake().blocks;
    std::set<std::pair<int64_t, std::vector<std::pair<int64_t, int64_t>>>> seen;
    int64_t repeated = 0;
    for (size_t i = 0; i < log.prompt_tokens.size(); ++i) {
        std::vector<std::pair<int64_t, int64_t>> runs;
        for (size_t k = i == 0 ? 0 : log.run_ends[i - 1]; k < log.run_ends[i]; ++k)
            runs.emplace_back(log.runs[k].first, log.runs[k].count);
        repeated += !seen.emplace(log.prompt_tokens[i], std::move(runs)).second;
    }
    EXPECT_EQ(repeated, 118);
}

TEST(Figures, StatsAccountForEveryPromptToken) {
    for (const ReadTrace* trace : {&mooncake(), &agentic()}) {
        const TraceStats stats = stats_of(trace->trace);
        EXPECT_EQ(stats.prompt_total, trace->report.prompt_tokens);
        EXPECT_EQ(stats.by_continuation, trace->report.continuation_tokens);
        EXPECT_EQ(stats.by_continuation + stats.by_rewrite + stats.by_edit + stats.repeated_within +
                      stats.repeated_across + stats.new_tokens,
                  stats.prompt_total);
    }
}

}  // namespace
}  // namespace verbatim::traces
