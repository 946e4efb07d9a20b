// The verb `kernel`: list, new, case, check, invariance, race, perf, roofline.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/byte_count.h"
#include "files/output_file.h"
#include "files/repository_path.h"
#include "kernels/sandbox/contract_file.h"
#include "kernels/sandbox/perf.h"
#include "kernels/sandbox/session.h"
#include "tools/kernel/report.h"
#include "tools/kernel/show_case.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/engine_options.h"
#include "tools/program/file_roles.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

constexpr const char* kExitCodes =
    "Exit codes: 0 it holds; 1 it does not; 2 bad flag or operation; 3 a file cannot be read or does not compile;\n"
    "4 a file cannot be written; 5 nothing was found, and not all that the kernel promises was tried.";

struct CommandOptions : KernelOptions {
    KernelFormat format = KernelFormat::kTable;
    std::string plot;  // of `roofline`
};
using Options = std::shared_ptr<CommandOptions>;

void print_text(const std::string& text) { std::fputs(text.c_str(), stdout); }

// Reports what is wrong with a contract, and returns null.
const Operation* contract_of(const KernelOptions& options) {
    const HostLimits limits{static_cast<double>(options.seconds), options.memory_bytes};
    const auto loaded = load_contract(options.contract, {}, limits);
    if (!loaded) report_error(loaded.error());
    if (!loaded || options.op.empty() || options.op == (*loaded)->name) return loaded ? *loaded : nullptr;
    report_error(
        Error{fmt::format("{}: is the contract of {}, not of {}", options.contract, (*loaded)->name, options.op)},
        kExitBadUsage);
    return nullptr;
}

// Null, and the error is reported.
const Operation* operation_of(const KernelOptions& options) {
    const Operation* operation = find_operation(options.op);
    if (operation != nullptr) return operation;
    std::vector<const char*> names;
    for (const Operation& known : operations()) names.push_back(known.name);
    report_error(Error{fmt::format("{:?} is no operation: wanted one of {}", options.op, fmt::join(names, ", "))},
                 kExitBadUsage);
    return nullptr;
}

int run_list(CommandOptions options) {
    const Operation* operation = nullptr;
    if (is_contract_file(options.op)) {
        options.contract = std::exchange(options.op, "");
        operation = contract_of(options);
        if (operation == nullptr) return kExitBadInput;
    } else if (!options.op.empty()) {
        operation = operation_of(options);
        if (operation == nullptr) return kExitBadUsage;
    }
    print_text(list_text(options.format, operation));
    return kExitOk;
}

int write_new(const std::string& path, const Result<std::string>& text) {
    if (!text) return report_error(text.error());
    auto out = files::OutputFile::create(path, {.replaces = false});
    if (!out) return report_error(out.error());
    const Status written = out->finish_with(*text);
    return written ? kExitOk : report_error(written.error());
}

Result<std::string> repository_text(const std::string& path) {
    const std::string source = repository_path("kernels/sandbox/naive/" + path);
    std::ifstream file(source, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (text.empty()) return error("{}: cannot be read, and it is what a new kernel begins with", source);
    return text;
}

// An example of a contract, if there is no such file yet; and a first kernel for it, if one is asked for.
int run_new_contract(const KernelOptions& options) {
    if (!is_contract_file(options.contract))
        return report_error(Error{fmt::format("--contract {}: a contract is a .h or .py file", options.contract)},
                            kExitBadUsage);
    const bool is_there = std::filesystem::exists(options.contract);
    if (is_there && options.out.empty())
        return report_error(
            Error{fmt::format("{}: is there already: --out FILE writes a first kernel for it", options.contract)});
    if (!is_there) {
        const bool is_python = options.contract.ends_with(".py");
        const int code = write_new(options.contract, repository_text(is_python ? "contract.py" : "contract.h"));
        if (code != kExitOk || options.out.empty()) return code;
    }
    const Operation* operation = contract_of(options);
    if (operation == nullptr) return kExitBadInput;
    return write_new(options.out, first_kernel(options.contract, *operation, options.machine));
}

int run_new(const KernelOptions& options) {
    if (!options.contract.empty()) return run_new_contract(options);
    if (options.out.empty()) return report_error(Error{"--out is missing: the file to write"}, kExitBadUsage);
    if (operation_of(options) == nullptr) return kExitBadUsage;
    return write_new(options.out,
                     repository_text(fmt::format("{}.{}", options.op, options.machine == "cuda" ? "cu" : "cc")));
}

struct Verb {
    Result<KernelReports> (*run)(const KernelOptions& options, const Operation& operation, KernelSession& session);
    // What else may be wrong with flags that are all there are; null: nothing.
    Status (*check_flags)(const KernelOptions& options, const Operation& operation, const KernelSession& session);
};

// The picture of `roofline`, where something was timed.
Status draw(KernelReports& reports, const std::string& path, files::OutputFile& plot) {
    if (std::ranges::all_of(reports.reports, &std::vector<PerfRow>::empty, &KernelReport::perf)) {
        reports.reports.front().notes.push_back(fmt::format("nothing was timed, and {} is not written", path));
        return {};
    }
    return plot.finish_with(roofline_svg(reports));
}

int run_verb(const CommandOptions& options, const Verb& verb) {
    const Operation* operation = options.contract.empty() ? operation_of(options) : contract_of(options);
    if (operation == nullptr) return options.contract.empty() ? kExitBadUsage : kExitBadInput;
    auto case_out = files::OutputFile::create(options.case_out);
    if (!case_out) return report_error(case_out.error());
    auto plot = files::OutputFile::create(options.plot);
    if (!plot) return report_error(plot.error());
    const auto session = KernelSession::open(options, *operation);
    if (!session) return report_error(session.error());
    Status flags = (*session)->choose(options, *operation);
    if (flags && verb.check_flags != nullptr) flags = verb.check_flags(options, *operation, **session);
    if (!flags) return report_error(flags.error(), kExitBadUsage);
    auto reports = verb.run(options, *operation, **session);
    if (!reports) return report_error(reports.error());
    if (plot->is_wanted()) {
        const Status drawn = draw(*reports, options.plot, *plot);
        if (!drawn) return report_error(drawn.error());
    }
    print_text(to_text(*reports, options.format));
    // Of several kernels the first one's failure is kept.
    const auto fails = [](const KernelReport& report) { return report.first_failure.has_value(); };
    const auto failing = std::ranges::find_if(reports->reports, fails);
    if (failing != reports->reports.end() && case_out->is_wanted()) {
        const Status written = case_out->finish_with(case_file(*operation, *failing->first_failure));
        if (!written) return report_error(written.error());
    }
    return exit_code_of(reports->outcome());
}

// --- flags

void add_op(CLI::App& verb, const Options& options, const char* contract) {
    verb.add_option("op", options->op, "the operation, as `verbatim kernel list` names it")->type_name("OP");
    verb.add_option("--contract", options->contract, contract)->type_name("FILE");
}
void add_format(CLI::App& verb, const Options& options) {
    const Choices<KernelFormat> formats = {
        {"table", KernelFormat::kTable}, {"json", KernelFormat::kJson}, {"junit", KernelFormat::kJunit}};
    add_choice_option(verb, "--format", options->format, formats, "how the result is written");
}
// What all verbs that run a kernel have.
void add_subject(CLI::App& verb, const Options& options) {
    verb.footer(kExitCodes);
    add_op(verb, options, "the operation is yours: its contract, a .h or .py file");
    verb.add_option("--file", options->file, "your kernel: .c, .cc, .cpp, .cu (for the emulator) or .so")
        ->type_name("FILE");
    verb.add_option("--python", options->python, "your kernel: a Python function, as module:function")
        ->type_name("TARGET")
        ->excludes("--file");
    const Choices<std::string> arrays = {{"numpy", "numpy"}, {"torch", "torch"}};
    add_choice_option(verb, "--arrays", options->arrays, arrays, "what the function takes: views of the tensors");
    const Choices<std::string> profiles = {{"exact", "exact"}, {"fast", "fast"}};
    add_choice_option(verb, "--profile", options->profile, profiles, "what the function promises: bits or a bound");
    verb.add_option("--kernel", options->kernel,
                    "a kernel's name, in the file or of ours; `all`: every one. By default the file's first, or our "
                    "best on this processor")
        ->type_name("NAME");
    verb.add_option("--flag", options->flags,
                    "one more flag for the compiler; may be given again. -fsanitize=thread, address, "
                    "undefined: `check` runs the kernel under it, too")
        ->type_name("FLAG");
    add_format(verb, options);
    add_seed_option(verb, options->seed);
    add_count_option(verb, "--time-limit", options->seconds, 1, "seconds of a processor that a call may take");
    // Of several threads' stacks, and of the process that runs the kernel: with less it would end before the kernel.
    constexpr uint64_t kLeastMemoryBytes = uint64_t{64} << 20;
    add_bytes_option(verb, "--memory-limit", options->memory_bytes, "memory that the kernel's process may take")
        ->check([](const std::string& text) -> std::string {
            const Result<uint64_t> bytes = parse_bytes(text);
            const bool is_too_small = bytes && *bytes < kLeastMemoryBytes;
            return is_too_small ? fmt::format("{}: at least {}", text, format_bytes(kLeastMemoryBytes)) : "";
        });
}
void add_runs_on(CLI::App& verb, const Options& options) {
    const Choices<RunsOn> places = {{"both", RunsOn::kBoth}, {"emulator", RunsOn::kEmulator}, {"gpu", RunsOn::kGpu}};
    add_choice_option(verb, "--on", options->runs_on, places,
                      "where a .cu file runs: in the emulator, and then on this machine's GPU, if it has one");
}
// REQUIRES: the verb has --case, which leaves no others.
void add_shapes(CLI::App& verb, const Options& options) {
    verb.add_option("--shape", options->shapes,
                    "sizes that are tried too, as rows=256,width=4096; sizes without a value are usual; may be given "
                    "again")
        ->type_name("SIZES")
        ->excludes("--case");
    verb.add_option("--values", options->values,
                    "classes of values that are tried alone, as normal,integers; the report says so")
        ->type_name("CLASSES")
        ->excludes("--case");
}
void add_workload(CLI::App& verb, const Options& options) {
    verb.add_option("--workload", options->workload,
                    "calls of a real run, tried beside the others: a file of `replay --capture OP`")
        ->type_name("FILE")
        ->excludes("--case");
}
void add_effort(CLI::App& verb, const Options& options) {
    const Choices<Effort> efforts = {{"short", Effort::kShort}, {"full", Effort::kFull}};
    add_choice_option(verb, "--effort", options->effort, efforts, "how many cases are tried");
    verb.add_option("--case", options->case_file, "try this case alone: a file that --case-out has written")
        ->type_name("FILE");
    add_workload(verb, options);
    add_output_option(verb, "--case-out", options->case_out, "write the first failure, made small, as a case");
}

CLI::App* add_verb(CLI::App& kernel, const char* name, const char* description, const Options& options,
                   const Verb& verb, int& exit_code) {
    CLI::App* app = kernel.add_subcommand(name, description);
    options->verb = name;
    add_subject(*app, options);
    app->callback([options, verb, &exit_code] { exit_code = run_verb(*options, verb); });
    return app;
}

void add_list(CLI::App& kernel, const Options& options, int& exit_code) {
    CLI::App* verb = kernel.add_subcommand("list", "operations, their contracts, and who implements them");
    verb->footer(kExitCodes);
    verb->add_option("--contract", options->op, "of one operation alone, or of a contract of yours (FILE.h, FILE.py)")
        ->type_name("OP");
    const Choices<KernelFormat> formats = {{"table", KernelFormat::kTable}, {"json", KernelFormat::kJson}};
    add_choice_option(*verb, "--format", options->format, formats, "how the list is written");
    verb->callback([options, &exit_code] { exit_code = run_list(*options); });
}

void add_new(CLI::App& kernel, const Options& options, int& exit_code) {
    CLI::App* verb = kernel.add_subcommand("new", "write a kernel that compiles, is right, and is slow");
    verb->footer(kExitCodes);
    add_op(*verb, options, "write an example of a contract of your own, and with --out a kernel for it");
    const Choices<std::string> machines = {{"cpu", "cpu"}, {"cuda", "cuda"}};
    add_choice_option(*verb, "--for", options->machine, machines, "the machine");
    add_output_option(*verb, "--out", options->out, "the file to write; it must not be there yet");
    verb->callback([options, &exit_code] { exit_code = run_new(*options); });
}

void add_case(CLI::App& kernel, int& exit_code) {
    struct CaseFlags {
        std::string path;
        OutputFormat format = OutputFormat::kTable;
    };
    auto flags = std::make_shared<CaseFlags>();
    CLI::App* verb = kernel.add_subcommand("case", "one call with its inputs, on every kernel of its operation");
    verb->footer(kExitCodes);
    verb->add_option("file", flags->path, "as verbatim shrink writes it")->type_name("FILE")->required();
    add_format_option(*verb, flags->format);
    verb->callback([flags, &exit_code] {
        const auto verdict = show_case(flags->path, flags->format);
        exit_code = verdict ? exit_code_of(*verdict) : report_error(verdict.error());
    });
}

}  // namespace

void add_kernel_command(CLI::App& app, int& exit_code) {
    CLI::App* kernel = app.add_subcommand("kernel", "try kernels of your own: contracts, checks, invariance, speed");
    kernel->require_subcommand(1);
    kernel->footer(kExitCodes);
    const auto options = [] { return std::make_shared<CommandOptions>(); };
    add_list(*kernel, options(), exit_code);
    add_new(*kernel, options(), exit_code);
    add_case(*kernel, exit_code);
    const Options check = options();
    add_effort(
        *add_verb(*kernel, "check", "hold a kernel against its contract", check, {check_verb, nullptr}, exit_code),
        check);
    const Options invariance = options();
    add_effort(*add_verb(*kernel, "invariance", "does a row's result depend on its company, place, chunks or threads?",
                         invariance, {invariance_verb, nullptr}, exit_code),
               invariance);
    for (const auto& [verb, given] : {std::pair{"check", check}, {"invariance", invariance}}) {
        add_shapes(*kernel->get_subcommand(verb), given);
        add_runs_on(*kernel->get_subcommand(verb), given);
    }
    const Options race = options();
    race->kernel = kOursForCuda;
    CLI::App* race_app = add_verb(*kernel, "race", "every order of threads that the emulator has, for a CUDA file",
                                  race, {race_verb, check_race_flags}, exit_code);
    add_effort(*race_app, race);
    for (const bool plots : {false, true}) {
        const Options perf = options();
        CLI::App* verb = plots ? add_verb(*kernel, "roofline", "perf, and a picture of it", perf,
                                          {roofline_verb, nullptr}, exit_code)
                               : add_verb(*kernel, "perf", "time a kernel beside ours and the machine's limits", perf,
                                          {perf_verb, nullptr}, exit_code);
        add_threads_option(*verb, perf->threads, "threads that a kernel may use");
        verb->add_option("--case", perf->case_file, "time this case: a file that --case-out has written")
            ->type_name("FILE");
        add_workload(*verb, perf);
        add_runs_on(*verb, perf);
        add_bytes_option(
            *verb, "--buffer", perf->buffer_bytes,
            "memory that the stream is measured over and that leaves the caches; by their size if not given");
        if (plots) add_output_option(*verb, "--plot", perf->plot, "the picture, SVG")->required();
    }
    race_app->add_flag("--mutate", race->mutate, "leave out each barrier and wait in turn, and demand a finding");
}

}  // namespace verbatim::tools
