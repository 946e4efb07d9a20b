// `verbatim trace`: converts any supported request log into Verbatim's CSV, shows a trace's statistics, generates
// traces.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "files/json_text.h"
#include "files/output_file.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/file_roles.h"
#include "tools/program/read_options.h"
#include "tools/trace/chat_log.h"
#include "tools/trace/report.h"
#include "traces/generate.h"
#include "traces/read.h"
#include "traces/shapes.h"
#include "traces/verbatim_csv.h"

namespace verbatim::tools {
namespace {

using namespace verbatim::traces;

constexpr const char* kTraceExitCodes =
    "Exit codes: 0 done; 2 bad flag; 3 the trace cannot be read or is wrong; 4 a file cannot be written.";

constexpr int64_t kDefaultContext = 131072;  // tokens; of many published models

struct TraceOptions {
    std::string input;
    std::string output;
    std::string picture;
    ReadFlags read;
    std::string model;  // of convert-chat
    int64_t limit = 0;  // of convert-chat
    uint64_t seed = 0;
    GenerateOptions generate;
    ShapeOptions shape;
    OutputFormat format = OutputFormat::kTable;
};

void print_result(const std::string& text) { std::fputs(text.c_str(), stdout); }

Result<ReadOptions> read_options(const TraceOptions& options) {
    RETURN_IF_ERROR(check_format_flags(options.read, options.input));
    ASSIGN_OR_RETURN(ReadOptions read, read_options(options.read, kDefaultContext));
    read.seed = options.seed;
    return read;
}

Status write_trace(const std::string& name, const Trace& trace, files::OutputFile& output) {
    ASSIGN_OR_RETURN(const std::string bytes, verbatim_csv_bytes(trace, name));
    return output.finish_with(bytes);
}

int run_convert(const TraceOptions& options) {
    const auto read = read_options(options);
    if (!read) return report_error(read.error(), kExitBadUsage);
    auto output = files::OutputFile::create(options.output);
    if (!output) return report_error(output.error());
    const auto trace = read_trace(options.input, *read);
    if (!trace) return report_error(trace.error());
    if (const Status fits = check_format_flags(options.read, trace->report.format); !fits)
        return report_error(fits.error(), kExitBadUsage);
    if (const Status written = write_trace(options.output, trace->trace, *output); !written)
        return report_error(written.error());
    const bool json = options.format == OutputFormat::kJson;
    print_result(json ? json_text(conversion_json(trace->report, trace->trace)) + "\n"
                      : conversion_table(trace->report, trace->trace));
    return kExitOk;
}

int run_stats(const TraceOptions& options) {
    auto read = read_options(options);
    if (!read) return report_error(read.error(), kExitBadUsage);
    read->keep_blocks = true;
    auto picture = files::OutputFile::create(options.picture);
    if (!picture) return report_error(picture.error());
    const auto trace = read_trace(options.input, *read);
    if (!trace) return report_error(trace.error());
    if (const Status fits = check_format_flags(options.read, trace->report.format); !fits)
        return report_error(fits.error(), kExitBadUsage);
    say_left_out(options.input, trace->report);
    const TraceReport report = make_trace_report(options.input.substr(options.input.find_last_of('/') + 1), *trace);
    if (picture->is_wanted()) {
        const Status written = picture->finish_with(trace_svg(report, trace->trace));
        if (!written) return report_error(written.error());
    }
    print_result(options.format == OutputFormat::kJson ? json_text(trace_json(report)) + "\n" : trace_table(report));
    return kExitOk;
}

// Writes a trace that no log of requests was read for, and says what it is like.
int write_and_report(const TraceOptions& options, const Trace& trace, files::OutputFile& output) {
    if (const Status written = write_trace(options.output, trace, output); !written)
        return report_error(written.error());
    const ReadTrace whole{trace, {}, {}};
    const TraceReport report = make_trace_report(options.output, whole);
    print_result(options.format == OutputFormat::kJson ? json_text(trace_json(report)) + "\n" : trace_table(report));
    return kExitOk;
}

int run_convert_chat(const TraceOptions& options) {
#if defined(VERBATIM_HAS_SERVER)
    auto output = files::OutputFile::create(options.output);
    if (!output) return report_error(output.error());
    const auto trace = read_chat_log(options.input, options.model, options.limit);
    if (!trace) return report_error(trace.error());
    return write_and_report(options, *trace, *output);
#else
    return report_error(
        {fmt::format("{}: this program was built without VERBATIM_SERVER, which has the tokenizers", options.input)},
        kExitMachine);
#endif
}

int run_generate(TraceOptions options) {
    options.generate.seed = options.seed;
    if (const Status valid = validate(options.generate); !valid) return report_error(valid.error(), kExitBadUsage);
    auto output = files::OutputFile::create(options.output);
    if (!output) return report_error(output.error());
    return write_and_report(options, generate(options.generate), *output);
}

int run_generate_shape(TraceOptions options) {
    options.shape.seed = options.seed;
    if (const Status valid = validate(options.shape); !valid) return report_error(valid.error(), kExitBadUsage);
    auto output = files::OutputFile::create(options.output);
    if (!output) return report_error(output.error());
    return write_and_report(options, generate_shape(options.shape), *output);
}

void add_input(CLI::App& verb, TraceOptions& options) {
    verb.add_option("IN", options.input, "a trace: plain, gzip or zstd")->required();
    add_read_options(verb, options.read, "131072 if only --max-context is given");
    add_seed_option(verb, options.seed);
    add_format_option(verb, options.format);
}

void add_lengths(CLI::App& verb, const std::string& flag, LengthDistribution& of, const std::string& what) {
    verb.add_option(flag, of.median, what + ": median")->capture_default_str();
    verb.add_option(flag + "-sigma", of.sigma, what + ": sigma of the logarithm")->capture_default_str();
}

void add_generate_options(CLI::App& verb, TraceOptions& options) {
    GenerateOptions& generate = options.generate;
    add_output_option(verb, "--to", options.output, "the CSV to write; .gz or .zst compresses it")->required();
    add_count_option(verb, "--conversations", generate.conversations, 1, "how many");
    const Choices<ArrivalProcess> processes = {{"poisson", ArrivalProcess::kPoisson},
                                               {"uniform", ArrivalProcess::kUniform},
                                               {"bursty", ArrivalProcess::kBursty}};
    add_choice_option(verb, "--arrivals", generate.arrivals, processes, "how conversations start");
    verb.add_option("--rate", generate.rate, "conversations started per second")->capture_default_str();
    verb.add_option("--turns", generate.mean_turns, "turns per conversation: mean of a geometric distribution")
        ->capture_default_str();
    add_lengths(verb, "--first-tokens", generate.first_tokens, "own tokens of a first turn");
    add_lengths(verb, "--turn-tokens", generate.turn_tokens, "own tokens of a later turn");
    add_lengths(verb, "--output-tokens", generate.output_tokens, "tokens of an answer");
    verb.add_option("--think", generate.mean_think_seconds,
                    "seconds a client thinks: mean of an exponential distribution")
        ->capture_default_str();
    add_count_option(verb, "--system-prompts", generate.system_prompts, 0, "different system prompts");
    add_count_option(verb, "--system-prompt-tokens", generate.system_prompt_tokens, 1, "tokens of each");
    add_count_option(verb, "--salts", generate.salts, 0, "different cache salts");
    verb.add_option("--suffix-share", generate.suffix_share, "of conversations whose clients send only what is new")
        ->capture_default_str();
    verb.add_option("--deterministic-share", generate.deterministic_share, "of deterministic requests")
        ->capture_default_str();
    verb.add_option("--fork", generate.fork_chance, "per turn: somebody else goes on from it too")
        ->capture_default_str();
    verb.add_option("--edit", generate.edit_chance, "per later turn: what was said is changed")->capture_default_str();
    verb.add_option("--regenerate", generate.regenerate_chance, "per turn: another answer is asked for")
        ->capture_default_str();
    verb.add_option("--abort", generate.abort_chance, "per turn: the client leaves within the answer")
        ->capture_default_str();
    add_seed_option(verb, options.seed);
    add_format_option(verb, options.format);
}

void add_shape_options(CLI::App& verb, TraceOptions& options) {
    const Choices<Shape> shapes = {{"documents", Shape::kDocuments},
                                   {"one-shots", Shape::kOneShots},
                                   {"tool-loops", Shape::kToolLoops},
                                   {"templates", Shape::kTemplates}};
    add_choice_option(verb, "--shape", options.shape.shape, shapes, "what the requests have in common");
    add_count_option(verb, "--requests", options.shape.requests, 1, "how many");
    verb.add_option("--rate", options.shape.rate, "requests per second")->capture_default_str();
    add_output_option(verb, "--to", options.output, "the CSV to write; .gz or .zst compresses it")->required();
    add_seed_option(verb, options.seed);
    add_format_option(verb, options.format);
}

}  // namespace

void add_trace_command(CLI::App& app, int& exit_code) {
    CLI::App* trace = app.add_subcommand("trace", "convert, describe and make up request traces");
    trace->require_subcommand(1);
    trace->footer(kTraceExitCodes);
    const auto add_verb = [&](const char* name, const char* what) {
        auto options = std::make_shared<TraceOptions>();
        return std::pair{trace->add_subcommand(name, what), options};
    };
    {
        auto [verb, options] = add_verb("convert", "any supported request log as Verbatim's own CSV");
        add_input(*verb, *options);
        add_output_option(*verb, "--to", options->output, "the CSV to write; .gz or .zst compresses it")->required();
        verb->callback([options = options, &exit_code] { exit_code = run_convert(*options); });
    }
    {
        auto [verb, options] = add_verb("convert-chat", "conversations as text, with the token ids of a model");
        verb->add_option("IN", options->input, R"(lines {"messages": [{"role", "content"}, ..]})")->required();
        verb->add_option("--model", options->model, "a checkpoint's folder: its tokenizer, its template")->required();
        add_output_option(*verb, "--to", options->output, "the CSV to write; .gz or .zst compresses it")->required();
        add_count_option(*verb, "--limit", options->limit, 0, "reads only the first N conversations; 0: all");
        add_format_option(*verb, options->format);
        verb->callback([options = options, &exit_code] { exit_code = run_convert_chat(*options); });
    }
    {
        auto [verb, options] = add_verb("stats", "what a trace is like, and what caches would reuse of it");
        add_input(*verb, *options);
        add_output_option(*verb, "--picture", options->picture,
                          "also write a picture, an SVG that needs no other file");
        verb->callback([options = options, &exit_code] { exit_code = run_stats(*options); });
    }
    {
        auto [verb, options] = add_verb("generate", "make up a trace by seed");
        add_generate_options(*verb, *options);
        verb->callback([options = options, &exit_code] { exit_code = run_generate(*options); });
    }
    {
        auto [verb, options] = add_verb("generate-shape", "make up a trace of a shape that caches find hard, by seed");
        add_shape_options(*verb, *options);
        verb->callback([options = options, &exit_code] { exit_code = run_generate_shape(*options); });
    }
}

}  // namespace verbatim::tools
