// run_program: one CLI::App, one verb per tools/*/command.cc.
#include "tools/program/cli.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>
#include <system_error>

#include "tools/program/file_roles.h"

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
    "or output not written; 5 nothing differs in what was compared, but not all was compared.\n"
    "`verbatim VERB --help` lists the flags of a verb.";

// Thrown through the parser.
struct FileRolesError {
    Error error;
};

void add_commands(CLI::App& app, int& exit_code) {
    (void)app, (void)exit_code;  // a build without commands
#define VERBATIM_COMMAND(name) add_##name##_command(app, exit_code);
#include "verbatim_commands.inc"
#undef VERBATIM_COMMAND
}

int parse_and_run(int argc, const char* const* argv) {
    CLI::App app(kDescription, "verbatim");
    app.footer(kFooter);
    app.set_version_flag("--version", "verbatim " VERBATIM_VERSION);
    int exit_code = kExitOk;
    add_commands(app, exit_code);
    // Before the verb runs.
    app.parse_complete_callback([&app] {
        if (const Status checked = check_file_roles(app); !checked) throw FileRolesError{checked.error()};
    });
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& help_or_version) {
        app.exit(help_or_version);
        return kExitOk;
    } catch (const FileRolesError& wrong) {
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
        exit_code = parse_and_run(argc, argv);
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
