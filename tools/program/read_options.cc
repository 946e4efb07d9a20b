#include "tools/program/read_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "traces/recognise.h"
#include "traces/strict.h"

namespace verbatim::tools {
namespace {

using namespace verbatim::traces;

// A flag of some formats alone.
struct FormatFlag {
    const char* flag;
    std::string_view formats;
    const char* otherwise;  // what traces of other formats have
};
constexpr std::array<FormatFlag, 3> kFormatFlags = {{
    {"--time-unit", "mooncake and bailian", "have a unit of their own"},
    {"--block-tokens", "mooncake and bailian", "have no block ids to count tokens by"},
    {"--session-rate", "agentic", "say when their requests start"},
}};

// "A..B", both inclusive, or one number.
std::optional<SessionRange> parse_sessions(std::string_view text) {
    const size_t dots = text.find("..");
    const auto first = parse_number<int64_t>(text.substr(0, dots));
    const auto last = dots == std::string_view::npos ? first : parse_number<int64_t>(text.substr(dots + 2));
    if (!first || !last || *first < 0 || *last < *first) return std::nullopt;
    return SessionRange{*first, *last};
}

CLI::Option* add_sessions(CLI::App& verb, std::optional<SessionRange>& sessions) {
    const auto set = [&sessions](const std::string& text) {
        sessions = parse_sessions(text);
        if (!sessions) {
            throw CLI::ValidationError("--sessions",
                                       fmt::format("got {}, wanted A..B with 0 <= A <= B, or one number", shown(text)));
        }
    };
    return verb.add_option_function<std::string>("--sessions", set, "only sessions A..B, counted from 0")
        ->type_name("A..B");
}

CLI::Option* add_format(CLI::App& verb, std::optional<Format>& format) {
    Choices<Format> formats;
    for (const char* name : kFormatNames) formats.emplace_back(name, *format_by_name(name));
    return add_choice_option(verb, "--input-format", format, formats,
                             "the trace is in this format, whatever its content looks like");
}

CLI::Option* add_time_unit(CLI::App& verb, std::optional<TimeUnit>& unit) {
    const Choices<TimeUnit> choices = {{"s", TimeUnit::kSeconds},
                                       {"ms", TimeUnit::kMilliseconds},
                                       {"us", TimeUnit::kMicroseconds},
                                       {"ns", TimeUnit::kNanoseconds}};
    return add_choice_option(verb, "--time-unit", unit, choices, "mooncake, bailian: of timestamps and delays")
        ->default_str("mooncake ms, bailian s");
}

CLI::Option* add_max_context(CLI::App& verb, std::optional<OverContext>& over_context) {
    const Choices<OverContext> choices = {
        {"reject", OverContext::kReject}, {"drop", OverContext::kDrop}, {"scale", OverContext::kScale}};
    return add_choice_option(verb, "--max-context", over_context, choices,
                             "rows that exceed --context: reject, drop, or scale the whole trace");
}

// Read as strictly as a field of a trace: no sign, no hexadecimal, no "nan".
CLI::Option* add_factor(CLI::App& verb, const std::string& flag, double& factor, const std::string& description) {
    const auto set = [&factor, flag](const std::string& text) {
        const std::optional<double> number = parse_number<double>(text);
        if (!number) throw CLI::ValidationError(flag, fmt::format("got {}, wanted a number", shown(text)));
        factor = *number;
    };
    return verb.add_option_function<std::string>(flag, set, description)
        ->type_name("X")
        ->default_str(fmt::format("{}", factor));
}

}  // namespace

OverContext ReadFlags::over_context() const { return max_context.value_or(OverContext::kReject); }

Status check_format_flags(const ReadFlags& flags, Format format) {
    const std::string_view traces = name(format);
    for (const CLI::Option* option : flags.of_formats) {
        for (const FormatFlag& one : kFormatFlags) {
            const bool is_given = option->count() > 0 && option->check_name(one.flag);
            if (is_given && one.formats.find(traces) == std::string_view::npos)
                return error("{}: {} traces {}; it is of {}", one.flag, traces, one.otherwise, one.formats);
        }
    }
    return {};
}

Status check_format_flags(const ReadFlags& flags, const std::string& path) {
    if (flags.read.format) return check_format_flags(flags, *flags.read.format);
    const auto format = recognise_file(path);
    return format ? check_format_flags(flags, *format) : Status{};
}

std::vector<CLI::Option*> add_read_options(CLI::App& verb, ReadFlags& flags, const char* context_meaning) {
    ReadOptions& read = flags.read;
    const auto count = [&](const char* flag, int64_t& value, const std::string& description) {
        return add_count_option(verb, flag, value, 1, description);
    };
    const auto set_context = [&flags](const std::string& text) {
        flags.context = parse_number<int64_t>(text);
        if (!flags.context || *flags.context < 1) {
            throw CLI::ValidationError("--context",
                                       fmt::format("got {}, wanted a whole number from 1 on", shown(text)));
        }
    };
    std::vector<CLI::Option*> options = {
        add_format(verb, read.format),
        add_time_unit(verb, read.time_unit),
        count("--block-tokens", read.block_tokens, "mooncake, bailian: tokens per id of hash_ids")
            ->default_str("mooncake 512, bailian 16"),
        count("--tokens-per-id", read.tokens_per_id, "scale down: a block of the trace becomes N tokens")
            ->default_str("as recorded"),
        count("--limit", read.limit, "read only the first N rows")->default_str("all"),
        add_sessions(verb, read.sessions),
        add_max_context(verb, flags.max_context),
        verb.add_option_function<std::string>(
                "--context", set_context,
                fmt::format("tokens of prompt and output that the model takes; {}", context_meaning))
            ->type_name("N"),
        add_factor(verb, "--rate-scale", read.rate_scale, "arrivals this many times as fast"),
        add_factor(verb, "--think-scale", read.think_scale, "think times this many times as long"),
        add_factor(verb, "--session-rate", read.session_rate, "agentic: sessions started per second"),
        count("--sessions-scale", read.sessions_scale, "this many copies of every session, with fresh ids"),
    };
    for (const CLI::Option* option : options) {
        for (const FormatFlag& one : kFormatFlags) {
            if (option->check_name(one.flag)) flags.of_formats.push_back(option);
        }
    }
    return options;
}

Result<ReadOptions> read_options(const ReadFlags& flags, int64_t default_context) {
    ReadOptions read = flags.read;
    if (flags.max_context || flags.context) {
        read.max_context = flags.context.value_or(default_context);
        read.over_context = flags.over_context();
    }
    RETURN_IF_ERROR(validate(read));
    return read;
}

void say_left_out(const std::string& path, const traces::ReadReport& report) {
    for (const auto& [what, count] : report.left_out)
        std::fputs(fmt::format("verbatim: warning: {}: left out: {} {}\n", path, count, what).c_str(), stderr);
}

void say_dropped(const std::string& path, traces::OverContext over_context, const traces::ReadReport& report) {
    if (over_context != traces::OverContext::kDrop || report.over_context == 0) return;
    fmt::print(stderr, "verbatim: warning: {}: left out: {} requests, longer than the context\n", path,
               report.over_context);
}

Result<traces::ReadTrace> read_to_simulate(const std::string& path, const ReadFlags& flags, traces::ReadOptions read,
                                           int64_t max_positions) {
    read.over_context = flags.over_context();
    if (read.over_context != traces::OverContext::kReject) read.max_context = flags.context.value_or(max_positions);
    ASSIGN_OR_RETURN(traces::ReadTrace trace, traces::read_trace(path, read));
    RETURN_IF_ERROR(check_format_flags(flags, trace.report.format));
    say_left_out(path, trace.report);
    say_dropped(path, read.over_context, trace.report);
    if (num_requests(trace.trace) == 0) return error("{}: no request of it is left to simulate", path);
    return trace;
}

}  // namespace verbatim::tools
