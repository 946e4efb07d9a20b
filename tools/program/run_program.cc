// run_program: one CLI::App, one verb per tools/*/command.cc.
#include "tools/program/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "tools/program/file_roles.h"
#include "tools/program/given_values.h"

// tools/CMakeLists.txt writes this list: VERBATIM_COMMAND(model) for tools/model/command.cc, and so on.
namespace verbatim::tools {
#define VERBATIM_COMMAND(name) void add_##name##_command(CLI::App& app, int& exit_code);
#include "verbatim_commands.inc"
#undef VERBATIM_COMMAND

namespace {

constexpr const char* kDescription =
    "Verbatim: an LLM inference engine whose output is a function of the tokens and the seed alone,\n"
    "bit for bit, cached or not, and the tools to check it.";

constexpr const char* kFooter =
    "Exit codes: 0 done, and what was checked holds; 1 a difference was found or a check failed;\n"
    "2 bad flag or verb; 3 a file, model or trace cannot be read or is wrong; 4 out of memory, a failed device,\n"
    "or output not written; 5 nothing differs in what was compared, but not all was compared, or rows\n"
    "of the trace were rejected.\n"
    "`verbatim VERB --help` lists the flags of a verb.";

// Thrown through the parser.
struct ValuesError {
    Error error;
};

void add_commands(CLI::App& app, int& exit_code) {
    (void)app, (void)exit_code;  // a build without commands
#define VERBATIM_COMMAND(name) add_##name##_command(app, exit_code);
#include "verbatim_commands.inc"
#undef VERBATIM_COMMAND
}

// The arguments of forms that older releases had, as today's: `replay --from FILE --show cache` is `show FILE --cache`,
// and `replay --case FILE` is `kernel case FILE`.
std::vector<std::string> as_today(std::vector<std::string> arguments) {
    if (arguments.size() < 2 || arguments[1] != "replay") return arguments;
    const auto named = [&](const std::string& flag) {
        return std::ranges::find_if(arguments,
                                    [&](const std::string& one) { return one == flag || one.starts_with(flag + "="); });
    };
    const std::string flag = named("--from") != arguments.end() ? "--from" : "--case";
    const auto file = named(flag);
    if (file == arguments.end()) return arguments;
    const std::string verb = flag == "--from" ? "show" : "kernel case";
    fmt::print(stderr, "verbatim: `replay {} FILE` is `{} FILE` now; the old form goes with the next release\n", flag,
               verb);
    if (*file == flag) {
        arguments.erase(file);
    } else {
        *file = file->substr(flag.size() + 1);
    }
    if (const auto show = named("--show"); show != arguments.end()) {
        const bool is_two = *show == "--show";
        *show = "--cache";
        if (is_two && show + 1 != arguments.end() && *(show + 1) == "cache") arguments.erase(show + 1);
    }
    arguments[1] = flag == "--from" ? "show" : "case";
    if (flag == "--case") arguments.insert(arguments.begin() + 1, "kernel");
    return arguments;
}

int parse_and_run(const std::vector<std::string>& arguments) {
    CLI::App app(kDescription, "verbatim");
    app.footer(kFooter);
    app.set_version_flag("--version", "verbatim " VERBATIM_VERSION);
    int exit_code = kExitOk;
    add_commands(app, exit_code);
    // Before the verb runs.
    app.parse_complete_callback([&app] {
        if (const Status checked = check_given_values(app); !checked) throw ValuesError{checked.error()};
        if (const Status checked = check_file_roles(app); !checked) throw ValuesError{checked.error()};
    });
    try {
        std::vector<const char*> argv;
        for (const std::string& one : arguments) argv.push_back(one.c_str());
        app.parse(static_cast<int>(argv.size()), argv.data());
    } catch (const CLI::Success& help_or_version) {
        app.exit(help_or_version);
        return kExitOk;
    } catch (const ValuesError& wrong) {
        return report_error(wrong.error, kExitBadUsage);
    } catch (const CLI::ParseError& wrong) {
        return report_error(Error{fmt::format("{} (--help lists what there is)", wrong.what())}, kExitBadUsage);
    }
    if (app.get_subcommands().empty()) {
        fmt::print(stderr, "{}", app.help());
        return kExitBadUsage;
    }
    return exit_code;
}

}  // namespace

int run_program(int argc, const char* const* argv) {
    int exit_code = kExitOk;
    // A write beyond the limit of file sizes is an error like that of a full disk, and not the end of the process.
    std::signal(SIGXFSZ, SIG_IGN);
    try {
        exit_code = parse_and_run(as_today({argv, argv + argc}));
    } catch (const std::bad_alloc&) {
        return report_error(Error{"out of memory: use a smaller model, trace or budget"}, kExitMachine);
    } catch (const std::system_error& failed) {  // a full disk under stdout, no more threads
        return report_error(Error{failed.what()}, kExitMachine);
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        return report_error(Error{"the result could not be written to stdout: is the disk full?"}, kExitMachine);
    }
    return exit_code;
}

}  // namespace verbatim::tools
