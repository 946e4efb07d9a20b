// traces/read.h: owns the reading of any supported trace file into a Trace. traces/README.md describes the formats.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "traces/trace.h"

namespace verbatim::traces {

enum class Format : uint8_t {
    kVerbatim,
    kAgentic,
    kMooncake,
    kAzure,
    kBurstGpt,
    kBailian,
    kVllmBench,
    kOtel,
    kRagPulse,
    kVidur
};
// By Format.
inline constexpr std::array kFormatNames = {"verbatim", "agentic",    "mooncake", "azure",    "burstgpt",
                                            "bailian",  "vllm-bench", "otel",     "ragpulse", "vidur"};
[[nodiscard]] const char* name(Format format);
[[nodiscard]] std::optional<Format> format_by_name(std::string_view name);

// Of the numbers in `timestamp` and `delay`.
enum class TimeUnit : uint8_t { kNanoseconds, kMicroseconds, kMilliseconds, kSeconds };

enum class OverContext : uint8_t { kReject, kDrop, kScale };

struct SessionRange {
    int64_t first = 0;  // counted from 0
    int64_t last = 0;   // inclusive
};

// Transformations on reading. The defaults change nothing.
struct ReadOptions {
    std::optional<Format> format;  // none: detected from the content
    // mooncake and bailian. Without a unit a trace with a median rate above kMaxPlausibleRate is an error.
    std::optional<TimeUnit> time_unit;  // none: mooncake milliseconds, bailian seconds
    int64_t block_tokens = 0;           // tokens per id of hash_ids; 0: mooncake 512, bailian 16
    int64_t tokens_per_id = 0;  // 0: as recorded; N: a block of the trace becomes N tokens, other lengths in proportion
    int64_t limit = 0;          // rows of the file; 0: all
    std::optional<SessionRange>
        sessions;             // only these sessions (rows without sessions: conversations, in order of first row)
    int64_t max_context = 0;  // most tokens of prompt + output for the model; 0: no limit
    OverContext over_context = OverContext::kReject;
    double rate_scale = 1;       // factor on the arrival rate
    double think_scale = 1;      // factor on think times
    double session_rate = 0.1;   // agentic: sessions started per second, on average
    int64_t sessions_scale = 1;  // copies of every session, with fresh ids and random starts
    uint64_t seed = 0;           // of the random starts
    bool keep_blocks = false;    // fill in ReadTrace::blocks
};
[[nodiscard]] Status validate(const ReadOptions& options);
inline constexpr int64_t kMaxBlockTokens = 1 << 16;
inline constexpr double kMaxPlausibleRate = 10'000;  // requests per second

// Properties of the input, counted before max_context and copies are applied.
struct ReadReport {
    Format format = Format::kVerbatim;
    int64_t rows = 0;      // requests read
    int64_t sessions = 0;  // 0 when the format has none
    int64_t subagents = 0;
    int64_t overlapping_subagents = 0;  // of `subagents`: a request of the session was answered during their run
    int64_t roots = 0;
    int64_t continuations = 0;
    int64_t rewrites = 0;
    int64_t edits = 0;
    int64_t edits_in_last_block = 0;  // of `edits`: all full blocks of the predecessor but the last one are common
    int64_t forked_rows = 0;          // rows with several continuations
    int64_t forks = 0;                // continuations beyond the first
    int64_t prompt_tokens = 0;
    int64_t continuation_tokens = 0;  // tokens taken by continuations
    int64_t rewrite_tokens = 0;
    int64_t edit_tokens = 0;
    int64_t over_context = 0;                 // rows longer than max_context
    std::map<std::string, int64_t> left_out;  // rows of the file that are no requests of the trace: how many, by what
};

// The blocks of each request of a recording, including partial ones, in file order: the input of block-aligned caches.
struct BlockLog {
    struct Run {
        int64_t first = 0;  // blocks with different text have different ids in the whole log
        int64_t count = 0;
        friend bool operator==(const Run&, const Run&) = default;
    };
    int64_t block_tokens = 0;  // 0: the format has no blocks
    std::vector<int64_t> prompt_tokens;
    std::vector<int64_t> output_tokens;
    std::vector<size_t> run_ends;  // request i has runs[run_ends[i - 1] .. run_ends[i])
    std::vector<Run> runs;
};

struct ReadTrace {
    Trace trace;
    ReadReport report;
    BlockLog blocks;  // filled with ReadOptions::keep_blocks
};

// Plain, gzip or zstd, detected from the first bytes. Errors say file, line, column, got and wanted.
Result<ReadTrace> read_trace(const std::string& path, const ReadOptions& options = {});
// The same from memory (uncompressed); `path` is used in messages only.
Result<ReadTrace> read_trace_text(const std::string& path, std::string_view text, const ReadOptions& options = {});

}  // namespace verbatim::traces
