#include "traces/read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "traces/conversations.h"
#include "traces/recognise.h"
#include "traces/recording.h"
#include "traces/strict.h"
#include "traces/transform.h"
#include "traces/verbatim_csv.h"
#include "traces/verbatim_csv_format.h"

namespace verbatim::traces {
namespace {

bool is_recording(Format format) { return format != Format::kVerbatim; }

Result<Recording> read_recording(TextInput input, Format format, const ReadOptions& options) {
    switch (format) {
        case Format::kAgentic: return read_agentic(std::move(input), options);
        case Format::kMooncake:
        case Format::kBailian: return read_hash_id_log(std::move(input), format, options);
        case Format::kAzure: return read_azure(std::move(input), options);
        case Format::kVllmBench: return read_vllm_bench(std::move(input), options);
        case Format::kOtel: return read_otel(std::move(input), options);
        case Format::kRagPulse: return read_ragpulse(std::move(input), options);
        case Format::kVidur: return read_vidur(std::move(input), options);
        case Format::kVerbatim: CHECK(false, "a trace of ours is no recording"); break;
        case Format::kBurstGpt: break;
    }
    return read_burstgpt(std::move(input), options);
}

int64_t longest_row(const Trace& trace) {
    int64_t longest = 0;
    for (const Row& row : trace.rows) longest = std::max(longest, planned_end(row));
    return longest;
}

// The largest number of tokens per block, at most `tokens_per_id`, for which every row fits the context.
Result<Trace> scale_to_context(const Recording& recording, const std::vector<Link>& links, int64_t tokens_per_id,
                               int64_t max_context) {
    int64_t candidate = tokens_per_id > 0 ? tokens_per_id : recording.block_tokens;
    while (candidate > 0) {
        Trace trace = make_trace(recording, links, candidate);
        const int64_t longest = longest_row(trace);
        if (longest <= max_context) return trace;
        candidate = std::min(candidate - 1, candidate * max_context / longest);
    }
    return error(
        "trace: its longest row does not fit a context of {} tokens even with 1 token per block: reject or drop what "
        "is over",
        max_context);
}

Result<ReadTrace> convert(TextInput input, Format format, const ReadOptions& options) {
    ASSIGN_OR_RETURN(const Recording recording, read_recording(std::move(input), format, options));
    const std::vector<Link> links = infer_links(recording);
    ReadTrace result;
    count_links(recording, links, result.report);
    if (options.keep_blocks) result.blocks = make_block_log(recording);
    if (options.tokens_per_id > recording.block_tokens) {
        return error("--tokens-per-id: got {}, wanted at most {}, the tokens of a block in this trace",
                     options.tokens_per_id, recording.block_tokens);
    }
    if (options.max_context > 0 && options.over_context == OverContext::kScale) {
        ASSIGN_OR_RETURN(result.trace, scale_to_context(recording, links, options.tokens_per_id, options.max_context));
    } else {
        result.trace = make_trace(recording, links, options.tokens_per_id);
    }
    return result;
}

Result<ReadTrace> read_own(TextInput input, const ReadOptions& options) {
    if (options.tokens_per_id > 0)
        return error("--tokens-per-id: a trace in Verbatim's own format has no blocks to scale");
    ReadTrace result;
    ASSIGN_OR_RETURN(result.trace, read_verbatim_csv(std::move(input), options.limit));
    const int64_t longest = longest_row(result.trace);
    if (options.max_context > 0 && options.over_context == OverContext::kScale && longest > options.max_context) {
        return error(
            "trace: its longest row has {} tokens, the context {}, and Verbatim's own format has no blocks to scale: "
            "reject or drop what is over",
            longest, options.max_context);
    }
    return result;
}

// Counts a trace that contains its relations.
void count_rows(const Trace& trace, ReadReport& report) {
    std::vector<int64_t> continuations(trace.rows.size());
    int64_t last_session = -1;
    for (const Row& row : trace.rows) {
        last_session = std::max<int64_t>(last_session, row.session);
        if (!is_request(row.event)) continue;
        ++report.rows;
        report.prompt_tokens += row.prompt_tokens;
        const int64_t taken = planned_take(trace, row);
        const Relation how = row.event == Event::kHistory      ? relation(trace, row)
                             : row.event == Event::kRegenerate ? Relation::kRewrite
                             : row.from == kNoRow              ? Relation::kRoot
                                                               : Relation::kContinuation;
        if (how == Relation::kRoot) ++report.roots;
        if (how == Relation::kContinuation) {
            ++report.continuations;
            report.continuation_tokens += taken;
            if (++continuations[static_cast<size_t>(index(row.from))] > 1) ++report.forks;
        }
        if (how == Relation::kRewrite) {
            ++report.rewrites;
            report.rewrite_tokens += taken;
        }
        if (how == Relation::kEdit) {
            ++report.edits;
            report.edit_tokens += taken;
        }
    }
    report.forked_rows =
        std::count_if(continuations.begin(), continuations.end(), [](int64_t count) { return count > 1; });
    report.sessions = last_session + 1;
}

Result<ReadTrace> read_input(TextInput input, const ReadOptions& options) {
    RETURN_IF_ERROR(validate(options));
    Format format{};
    if (options.format) {
        format = *options.format;
    } else {
        ASSIGN_OR_RETURN(format, recognise(input));
    }
    if (format != Format::kMooncake && format != Format::kBailian) {
        const char* flag = options.time_unit ? "--time-unit" : options.block_tokens > 0 ? "--block-tokens" : nullptr;
        if (flag != nullptr)
            return error("{}: {} traces have a unit of their own; mooncake and bailian take it", flag, name(format));
    }
    const bool recorded = is_recording(format);
    ASSIGN_OR_RETURN(ReadTrace result,
                     recorded ? convert(std::move(input), format, options) : read_own(std::move(input), options));
    Trace& trace = result.trace;
    result.report.format = format;
    // The agentic reader has already selected the sessions
    const bool chosen = options.sessions && format != Format::kAgentic;
    if (chosen) RETURN_IF_ERROR(keep_sessions(trace, *options.sessions));
    if (options.sessions && trace.rows.empty()) {
        return error("--sessions: the trace has none of the sessions {}..{}", options.sessions->first,
                     options.sessions->last);
    }
    if (!recorded) count_rows(trace, result.report);
    const bool closed = format == Format::kAgentic;
    RETURN_IF_ERROR(copy_sessions(trace, options.sessions_scale, options.seed, closed));
    if (closed) start_sessions(trace, options.session_rate, options.seed);
    scale_times(trace, options.rate_scale, options.think_scale);
    sort_by_arrival(trace);
    if (options.max_context > 0) {
        ASSIGN_OR_RETURN(result.report.over_context, bound_context(trace, options.max_context, options.over_context));
    }
    RETURN_IF_ERROR(validate(trace));
    return result;
}

}  // namespace

const char* name(Format format) { return kFormatNames[static_cast<size_t>(format)]; }

std::optional<Format> format_by_name(std::string_view name) {
    const auto found = std::find(kFormatNames.begin(), kFormatNames.end(), name);
    if (found == kFormatNames.end()) return std::nullopt;
    return static_cast<Format>(found - kFormatNames.begin());
}

Status validate(const ReadOptions& options) {
    std::vector<std::string> problems;
    const auto expect = [&](bool holds, std::string problem) {
        if (!holds) problems.push_back(std::move(problem));
    };
    const auto scale = [&](double value, std::string_view flag) {
        expect(value >= 1e-6 && value <= 1e6, fmt::format("{}: got {}, wanted a number from 1e-6 to 1e6", flag, value));
    };
    expect(options.tokens_per_id >= 0, "--tokens-per-id is negative");
    expect(options.block_tokens >= 0 && options.block_tokens <= kMaxBlockTokens,
           fmt::format("--block-tokens: got {}, wanted 1 to {}", options.block_tokens, kMaxBlockTokens));
    expect(options.limit >= 0, "--limit is negative");
    expect(options.max_context >= 0, "--max-context is negative");
    expect(options.sessions_scale >= 1, "--sessions-scale is below 1");
    if (options.sessions) {
        expect(options.sessions->first >= 0 && options.sessions->first <= options.sessions->last,
               "--sessions: wanted A..B with 0 <= A <= B");
    }
    scale(options.rate_scale, "--rate-scale");
    scale(options.session_rate, "--session-rate");
    expect(options.think_scale >= 0 && options.think_scale <= 1e6, "--think-scale: wanted a number from 0 to 1e6");
    if (problems.empty()) return {};
    return error("{}", fmt::join(problems, "; "));
}

Result<ReadTrace> read_trace(const std::string& path, const ReadOptions& options) {
    ASSIGN_OR_RETURN(TextInput input, TextInput::open(path));
    return read_input(std::move(input), options);
}

Result<ReadTrace> read_trace_text(const std::string& path, std::string_view text, const ReadOptions& options) {
    ASSIGN_OR_RETURN(TextInput input, TextInput::from_memory(path, text));
    return read_input(std::move(input), options);
}

}  // namespace verbatim::traces
