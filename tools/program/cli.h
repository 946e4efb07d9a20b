// tools/program/cli.h: the common parts of the `verbatim` program's commands: exit codes, flags, errors, tables,
// progress.
//
// A verb is a folder, tools/NAME/, whose command.cc has one function that adds it; the build finds the folders.
// Flags live in a struct that the callback keeps; the callback runs the command and leaves its exit code:
//
//   void add_model_command(CLI::App& app, int& exit_code) {
//       auto options = std::make_shared<ModelOptions>();
//       CLI::App* verb = app.add_subcommand("model", "make, show and check models");
//       add_format_option(*verb, options->format);
//       verb->callback([options, &exit_code] { exit_code = run_model(*options); });
//   }
//
// Results go to stdout and depend on the flags and files alone; errors and progress go to stderr.
#pragma once

#include "engine/base/byte_count.h"
#include "engine/base/result.h"
#include "reference/records/verdict.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace verbatim::tools {

// The program's exit codes; `verbatim --help` prints this list.
enum ExitCode : int {
    kExitOk = 0,              // done, and what was checked holds
    kExitDifference = 1,      // ran to the end and found a difference, or a check failed
    kExitBadUsage = 2,        // a flag or verb is unknown, missing or out of range
    kExitBadInput = 3,        // a file, model or trace cannot be read or is wrong
    kExitMachine = 4,         // the machine failed: out of memory, a device failure, output that cannot be written
    kExitNotAllCompared = 5,  // no difference was found, but not all that was promised was compared, or rows of the
                              // trace were rejected
};
// The exit code of a verb with this verdict.
[[nodiscard]] ExitCode exit_code_of(records::Verdict verdict);
// The exit code of a run of a trace that would end with `code`: a run that rejected rows of it is no success.
[[nodiscard]] ExitCode with_rejected(ExitCode code, int64_t num_rejected);

// Prints `verbatim: error: MESSAGE` on stderr and returns `code`; without one, the code of the error's kind.
int report_error(const Error& error, ExitCode code);
int report_error(const Error& error);

enum class OutputFormat { kTable, kJson };

// --format table|json
CLI::Option* add_format_option(CLI::App& command, OutputFormat& format);
// --seed N; the value of `seed` at the call is the default in --help.
CLI::Option* add_seed_option(CLI::App& command, uint64_t& seed);
// A flag for a whole number from `least` on, read strictly (CLI11 accepts -1 and 2^64).
CLI::Option* add_count_option(CLI::App& command, const std::string& flag, int64_t& count, int64_t least,
                              const std::string& description);
// A flag for a number of bytes in parse_bytes's form; the value of `bytes` is the default.
CLI::Option* add_bytes_option(CLI::App& command, const std::string& flag, uint64_t& bytes,
                              const std::string& description);

// All flags of the app and of its verbs that were parsed, in the order in which they were added.
[[nodiscard]] std::vector<const CLI::Option*> options_of_parsed(const CLI::App& app);

// Heads the flags that `add` adds to the command with `title` in --help.
void add_group(CLI::App& command, const std::string& title, const std::function<void()>& add);

// Columns as wide as their widest cell, two spaces apart, no space at a line's end. A column is aligned to the right
// when every cell below the header starts with a digit or '-', to the left otherwise.
class Table {
public:
    Table() = default;  // no header line: rows of name and value
    explicit Table(std::vector<std::string> header);
    void add_row(std::vector<std::string> cells);  // REQUIRES: as many cells as the header or the first row
    [[nodiscard]] std::string to_string() const;   // every line ends in '\n'

private:
    std::vector<std::string> header_;
    std::vector<std::vector<std::string>> rows_;
};

// Parses the flags, runs the verb, returns the exit code. main() and tests call it.
int run_program(int argc, const char* const* argv);

}  // namespace verbatim::tools
