// `verbatim audit`: whether a server's answer is the same cached or fresh, alone or in company, streamed or whole.
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "audit/answer.h"
#include "audit/audit.h"
#include "audit/bundle.h"
#include "audit/curl_transport.h"
#include "audit/expected_hits.h"
#include "audit/prompt_files.h"
#include "files/json_text.h"
#include "files/mapped_file.h"
#include "files/output_file.h"
#include "tools/audit/hits_report.h"
#include "tools/audit/page.h"
#include "tools/audit/report.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/file_roles.h"
#include "traces/read.h"

namespace verbatim::tools {
namespace {

struct AuditOptions {
    std::string url;
    std::string against;
    std::string restart;
    double restart_timeout_s = audit::RunnerConfig().restart_timeout_s;
    std::string key_env = "OPENAI_API_KEY";
    bool has_key_env = false;  // the flag was given
    std::string ca;
    std::string model;
    std::string endpoint;
    std::vector<std::string> only;
    std::vector<std::string> skip;
    std::string budget = "2000,2000000";
    std::string prompts;
    std::string trace;
    std::string bundle;
    std::string expect_hits;
    audit::HitsConfig hits;
    std::string bundles = "verbatim-audit";
    double timeout_s = 120;
    double noise_limit = audit::JudgeOptions().noise_limit;
    bool exact = false;
    uint64_t seed = 0;
    bool has_seed = false;
    std::string junit;
    std::string html;
    OutputFormat format = OutputFormat::kTable;
};

constexpr size_t kTraceLengths = 32;  // of a trace's prompts
constexpr int kShellSignal = 128;     // what a shell adds to the signal that ended a command

constexpr const char* kAuditExitCodes =
    "Exit codes: 0 no corruption in what was compared; 1 corruption; 2 bad flag; 3 the server does not answer, or is "
    "no\n"
    "such server; 4 a report cannot be written; 5 nothing was compared, a relation is undecided or, where --only names "
    "it,\n"
    "not tried, or Ctrl-C ended the audit. With --expect-hits: 1 too few hits; 5 none could be missing.";

std::atomic<bool> audit_stopped = false;
void stop_audit(int) { audit_stopped = true; }

// Ctrl-C and SIGTERM end the audit, not the program: what was found is reported.
class StopSignals {
public:
    StopSignals() : interrupt_(std::signal(SIGINT, stop_audit)), terminate_(std::signal(SIGTERM, stop_audit)) {}
    ~StopSignals() {
        std::signal(SIGINT, interrupt_);
        std::signal(SIGTERM, terminate_);
    }
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

private:
    using Handler = void (*)(int);
    Handler interrupt_;
    Handler terminate_;
};

Result<audit::Budget> parse_budget(const std::string& text) {
    audit::Budget budget;
    const auto fail = [&] { return error("--budget {:?}: wanted REQUESTS,TOKENS, two whole numbers from 1 on", text); };
    const size_t comma = text.find(',');
    if (comma == std::string::npos) return fail();
    const auto read = [&](size_t begin, size_t end, int64_t& into) {
        const auto [stop, code] = std::from_chars(text.data() + begin, text.data() + end, into);
        return code == std::errc{} && stop == text.data() + end && into > 0;
    };
    if (!read(0, comma, budget.requests) || !read(comma + 1, text.size(), budget.tokens)) return fail();
    return budget;
}

Result<std::unique_ptr<audit::CurlTransport>> open_server(const AuditOptions& options, const std::string& url,
                                                          const std::string& ca_file) {
    audit::CurlConfig config;
    config.url = url;
    config.timeout_s = options.timeout_s;
    config.stopped = &audit_stopped;
    config.ca_file = ca_file;
    if (const char* key = std::getenv(options.key_env.c_str())) config.api_key = key;
    return audit::CurlTransport::create(std::move(config));
}

void show_progress(const std::string& what, size_t done, size_t total) {
    if (isatty(STDERR_FILENO) != 1) return;
    fmt::print(stderr, "\r\033[K[{}/{}] {}", done, total, what);
    std::fflush(stderr);
}

Status run_restart(const std::string& command) {
    const int status = std::system(command.c_str());  // ignores SIGINT meanwhile: the shell gets it
    if (status == 0) return {};
    if (status == -1) return error("--restart: no shell can be started");
    const int ended = WIFEXITED(status) ? WEXITSTATUS(status) : kShellSignal + WTERMSIG(status);
    if (ended == kShellSignal + SIGINT) {
        audit_stopped = true;
        return error("interrupted");
    }
    return error("--restart: the command ended with exit code {}: {}", ended, command);
}

// Everything that can be wrong with the flags is said before the server is asked.
Result<audit::AuditConfig> audit_config(const AuditOptions& options, uint64_t seed) {
    audit::AuditConfig config;
    if (!audit::is_utf8(options.model)) return error("--model {:?}: is no UTF-8", options.model);
    if (options.has_key_env && std::getenv(options.key_env.c_str()) == nullptr)
        return error("--key-env {}: the environment has no such variable", options.key_env);
    ASSIGN_OR_RETURN(config.runner.budget, parse_budget(options.budget));
    RETURN_IF_ERROR(audit::check_selection(options.only, options.skip));
    config.runner.is_stopped = [] { return audit_stopped.load(); };
    config.runner.seed = config.relations.seed = config.discover.seed = seed;
    if (!options.restart.empty()) {
        config.runner.restart = [command = options.restart] { return run_restart(command); };
        config.runner.restart_timeout_s = options.restart_timeout_s;
        config.runner.sleep = [](double seconds) {
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
        };
        config.relations.has_restart = true;
    }
    config.relations.has_against = !options.against.empty();
    config.discover.model = options.model;
    config.discover.endpoint = options.endpoint;
    config.judge = {options.exact, options.noise_limit};
    config.only = options.only;
    config.skip = options.skip;
    config.progress = show_progress;
    return config;
}

Status read_files(const AuditOptions& options, audit::AuditConfig& config) {
    if (!options.prompts.empty()) {
        ASSIGN_OR_RETURN(config.relations.prompts, audit::read_prompts(options.prompts));
    }
    if (!options.trace.empty()) {
        ASSIGN_OR_RETURN(config.relations.lengths, audit::read_lengths(options.trace, kTraceLengths));
    }
    return {};
}

// A finding's files would have no place after an audit of many minutes.
Status check_bundles_folder(const std::string& folder) {
    std::error_code failed;
    if (!std::filesystem::exists(folder, failed) || std::filesystem::is_directory(folder, failed)) return {};
    return tl::unexpected(Error{fmt::format("--bundles {}: is no folder", folder), ErrorKind::kMachine});
}

Result<audit::Bundle> read_bundle(const std::string& path) {
    constexpr size_t kMostBytes = size_t{256} << 20;
    ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMostBytes));
    auto bundle = audit::parse_bundle(text);
    if (!bundle) return error("{}: {}", path, bundle.error().message);
    return bundle;
}

// Of every finding RELATION.json and RELATION.sh. The folder is made where there is a finding.
Status write_bundles(const AuditOptions& options, AuditReport& report) {
    report.bundles.assign(report.result.relations.size(), "");
    for (size_t i = 0; i < report.result.shrunk.size(); ++i) {
        const std::optional<audit::Shrunk>& shrunk = report.result.shrunk[i];
        if (!shrunk) continue;
        std::error_code failed;
        std::filesystem::create_directories(options.bundles, failed);
        if (failed)
            return tl::unexpected(Error{fmt::format("{}: {}", options.bundles, failed.message()), ErrorKind::kMachine});
        const audit::RelationVerdict& relation = report.result.relations[i];
        const std::string path = fmt::format("{}/{}", options.bundles, relation.relation);
        RETURN_IF_ERROR(files::write_file(
            path + ".json",
            json_text(audit::bundle_json(shrunk->trial, shrunk->verdict, relation, report.result)) + "\n"));
        RETURN_IF_ERROR(files::write_file(path + ".sh", audit::curl_script(shrunk->trial, shrunk->verdict)));
        report.bundles[i] = path + ".json";
    }
    return {};
}

int print_report(const AuditReport& report, const AuditOptions& options, files::OutputFile& junit,
                 files::OutputFile& html) {
    if (options.format == OutputFormat::kJson)
        fmt::print("{}\n", json_text(audit_json(report)));
    else
        fmt::print("{}", audit_table(report));
    if (const Status written = junit.finish_with(audit_junit(report)); !written) return report_error(written.error());
    if (const Status written = html.finish_with(audit_page(report)); !written) return report_error(written.error());
    return audit_exit_code(report);
}

// The server was not even looked at.
int report_unanswered(const AuditOptions& options, const Error& error) {
    if (audit_stopped) return report_error(Error{"interrupted before anything was compared"}, kExitNotAllCompared);
    return report_error(Error{fmt::format("{}: {}", options.url, error.message)});
}

// The canary: a trace at the server, its hits and the simulator's.
int run_expect_hits(const AuditOptions& options, const audit::AuditConfig& config, AuditReport& report) {
    const auto trace = traces::read_trace(options.expect_hits);
    if (!trace) return report_error(trace.error());
    show_progress("looking at the server", 0, 0);
    const auto info = audit::discover(*config.runner.server, config.discover);
    if (!info) return report_unanswered(options, info.error());
    audit::Runner runner(config.runner, *info);
    show_progress("replaying " + options.expect_hits, 0, trace->trace.rows.size());
    const audit::HitsResult result = audit::expect_hits(trace->trace, *info, runner, options.hits, report.seed);
    if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");
    fmt::print("{}", options.format == OutputFormat::kJson ? json_text(hits_json(report, result)) + "\n"
                                                           : hits_table(report, result));
    return hits_exit_code(result);
}

int run_audit_command(const AuditOptions& options) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point began = Clock::now();
    AuditReport report;
    report.url = options.url;
    report.against = options.against;
    report.only = options.only;
    report.seed = options.has_seed ? options.seed : static_cast<uint64_t>(began.time_since_epoch().count());
    auto config = audit_config(options, report.seed);
    if (!config) return report_error(config.error(), kExitBadUsage);
    const bool is_https = options.url.starts_with("https:") || options.against.starts_with("https:");
    if (!is_https && !options.ca.empty())
        return report_error(Error{"--ca: certificates are of https, and no address here has it"}, kExitBadUsage);
    const Result<std::string> ca_file = is_https ? audit::find_ca_file(options.ca) : std::string();
    if (!ca_file) return report_error(ca_file.error());
    auto server = open_server(options, options.url, *ca_file);
    if (!server) return report_error(server.error(), kExitBadUsage);
    config->runner.server = server->get();
    Result<std::unique_ptr<audit::CurlTransport>> against;
    if (!options.against.empty()) {
        against = open_server(options, options.against, *ca_file);
        if (!against) return report_error(against.error(), kExitBadUsage);
        config->runner.against = against->get();
    }
    if (const Status read = read_files(options, *config); !read) return report_error(read.error());
    std::optional<audit::Bundle> bundle;
    if (!options.bundle.empty()) {
        auto read = read_bundle(options.bundle);
        if (!read) return report_error(read.error());
        bundle = *std::move(read);
    }
    if (const Status folder = check_bundles_folder(options.bundles); !folder) return report_error(folder.error());
    auto junit = files::OutputFile::create(options.junit);
    if (!junit) return report_error(junit.error());
    auto html = files::OutputFile::create(options.html);
    if (!html) return report_error(html.error());

    audit_stopped = false;
    const StopSignals stops;
    if (!options.expect_hits.empty()) return run_expect_hits(options, *config, report);
    auto result = bundle ? audit::run_bundle(*config, *bundle) : audit::run_audit(*config);
    if (isatty(STDERR_FILENO) == 1) fmt::print(stderr, "\r\033[K");
    if (!result) return report_unanswered(options, result.error());
    report.result = *std::move(result);
    report.interrupted = audit_stopped;
    report.elapsed_s = std::chrono::duration<double>(Clock::now() - began).count();
    const Status bundled = write_bundles(options, report);
    const int code = print_report(report, options, *junit, *html);
    return bundled ? code : report_error(bundled.error());
}

}  // namespace

void add_audit_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<AuditOptions>();
    CLI::App* verb = app.add_subcommand(
        "audit", "is an OpenAI-compatible server's answer the same cached or fresh, alone or in company?");
    verb->add_option("url,--url", options->url, "the server: http://HOST:PORT")->type_name("URL")->required();
    verb->add_option("--model", options->model, "its model; without it the first one that it lists")->type_name("NAME");
    add_choice_option(*verb, "--endpoint", options->endpoint,
                      Choices<std::string>{{"auto", ""}, {"completions", "completions"}, {"chat", "chat"}},
                      "auto: completions where the server has them");
    verb->add_option("--only", options->only, "these relations")->type_name("RELATION...")->delimiter(',');
    verb->add_option("--skip", options->skip, "not these")->type_name("RELATION...")->delimiter(',');
    verb->add_option("--prompts", options->prompts,
                     "prompts in the place of the built-in ones: a text or a JSON object a line")
        ->type_name("FILE");
    verb->add_option("--trace", options->trace, "`cold-warm` has prompts of this trace's lengths")->type_name("FILE");
    auto* against = verb->add_option("--against", options->against, "a second server, for `speculation` and `cache`")
                        ->type_name("URL");
    verb->add_option("--restart", options->restart,
                     "a shell command that restarts the server, for `cache` and, where it switches speculation, for "
                     "`speculation`")
        ->type_name("CMD")
        ->excludes(against);
    verb->add_option("--restart-timeout", options->restart_timeout_s,
                     "seconds until the server has to answer again after --restart")
        ->type_name("S")
        ->check(CLI::Range(0.1, 86400.0))
        ->capture_default_str();
    auto* bundle =
        verb->add_option("--bundle", options->bundle, "runs the finding in this file again, and nothing else")
            ->type_name("FILE");
    auto* hits =
        verb->add_option("--expect-hits", options->expect_hits,
                         "replays this trace's shape and compares the reported hits with the simulator's, and nothing "
                         "else")
            ->type_name("TRACE")
            ->excludes(bundle);
    add_count_option(*verb, "--block-tokens", options->hits.block_tokens, 1, "with --expect-hits: tokens of a block");
    add_count_option(*verb, "--room-tokens", options->hits.room_tokens, 0,
                     "with --expect-hits: tokens that the cache holds; 0: all of them");
    verb->add_option("--hit-tolerance", options->hits.tolerance,
                     "with --expect-hits: the part of the hits that may be missing")
        ->type_name("PART")
        ->check(CLI::Range(0.0, 0.99))
        ->capture_default_str();
    verb->add_option("--bundles", options->bundles, "the folder for the files of findings: RELATION.json, RELATION.sh")
        ->type_name("DIR")
        ->capture_default_str();
    verb->add_option("--budget", options->budget, "the most requests, and the most tokens of prompts and answers")
        ->type_name("REQUESTS,TOKENS")
        ->capture_default_str();
    verb->add_option("--key-env", options->key_env, "the environment variable with the API key")
        ->type_name("NAME")
        ->capture_default_str()
        ->each([options](const std::string&) { options->has_key_env = true; });
    verb->add_option("--ca", options->ca,
                     "the authorities' certificates for HTTPS (PEM); else SSL_CERT_FILE, CURL_CA_BUNDLE or "
                     "REQUESTS_CA_BUNDLE of the environment, else the system's")
        ->type_name("FILE");
    verb->add_option("--timeout", options->timeout_s, "seconds for one request")
        ->type_name("S")
        ->check(CLI::Range(0.1, 86400.0))
        ->capture_default_str();
    verb->add_flag("--exact", options->exact, "the server promises equal bits: any difference is corruption");
    verb->add_option("--noise-limit", options->noise_limit,
                     "nats (rms): log-probabilities that differ by more are corrupt")
        ->type_name("NATS")
        ->check(CLI::Range(0.0, 10.0))
        ->capture_default_str();
    add_seed_option(*verb, options->seed)->default_str("drawn, and printed")->each([options](const std::string&) {
        options->has_seed = true;
    });
    add_output_option(*verb, "--junit", options->junit, "writes the result as a JUnit report, too");
    add_output_option(*verb, "--html", options->html, "writes the result as a page, too");
    add_format_option(*verb, options->format);
    std::string table = "Relations:\n";
    for (const audit::Relation& one : audit::relations()) table += fmt::format("  {:<14} {}\n", one.name, one.changes);
    verb->footer(table + kAuditExitCodes);
    // Of relations and their findings, which --expect-hits has none of.
    for (const char* flag : {"--only", "--skip", "--prompts", "--trace", "--against", "--restart", "--restart-timeout",
                             "--bundles", "--exact", "--noise-limit", "--junit", "--html"})
        hits->excludes(verb->get_option(flag));
    verb->callback([options, &exit_code] { exit_code = run_audit_command(*options); });
}

}  // namespace verbatim::tools
