// tools/program/read_options.h: the flags for reading a trace, for every verb that reads one: `trace convert`, `trace
// stats`, `replay`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traces/read.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace verbatim::tools {

// The flags' values. --seed is not among them: a verb has one, and passes it on.
struct ReadFlags {
    traces::ReadOptions read;                        // without max_context and over_context
    std::optional<traces::OverContext> max_context;  // --max-context
    std::optional<int64_t> context;                  // --context, tokens
    std::vector<const CLI::Option*> of_formats;      // flags that some formats alone take

    // The value of --max-context; reject if only --context is given.
    [[nodiscard]] traces::OverContext over_context() const;
};

// Adds the flags to `verb` and returns them; `context_meaning` describes --context's default.
std::vector<CLI::Option*> add_read_options(CLI::App& verb, ReadFlags& flags, const char* context_meaning);

// Error: a flag that was given is of other formats than this trace's.
Status check_format_flags(const ReadFlags& flags, traces::Format format);
// The same before the trace is read. Pipes, and files of no format, have no error: a pipe's format is known when it has
// been read.
Status check_format_flags(const ReadFlags& flags, const std::string& path);

// For verbs without a model: rows are bounded by --context, or by `default_context` tokens if only --max-context is
// given. Error: a value out of range.
Result<traces::ReadOptions> read_options(const ReadFlags& flags, int64_t default_context);

// Says on stderr which rows of the file are not in the trace, and how many.
void say_left_out(const std::string& path, const traces::ReadReport& report);
// The trace that a verb simulates on a model with so many positions; says what is left out. `read`: the flags' values,
// without max_context and over_context. Error, too: no request is left.
Result<traces::ReadTrace> read_to_simulate(const std::string& path, const ReadFlags& flags, traces::ReadOptions read,
                                           int64_t max_positions);
// As say_left_out, of requests that --max-context drop left out, for verbs whose report does not have them.
void say_dropped(const std::string& path, traces::OverContext over_context, const traces::ReadReport& report);

}  // namespace verbatim::tools
