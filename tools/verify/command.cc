// `verbatim verify`: repeats a recorded run on any executor and under any schedule, and reports the first difference.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "files/json_text.h"
#include "files/output_file.h"
#include "reference/records/run_again.h"
#include "reference/records/verdict.h"
#include "tools/program/cli.h"
#include "tools/program/file_roles.h"
#include "tools/program/recorded_run.h"
#include "tools/program/verify_run.h"
#include "tools/verify/report.h"

namespace verbatim::tools {
namespace {

struct VerifyOptions {
    std::string record;
    RerunFlags rerun;
    std::vector<std::string> under;
    bool all_schedules = false;
    bool follow_tokens = false;
    std::string junit;
    OutputFormat format = OutputFormat::kTable;
};

Result<records::Schedule> schedule_of(const VerifyOptions& options) {
    ASSIGN_OR_RETURN(records::Schedule schedule, records::parse_schedule(options.under));
    if (!schedule.policy.empty()) {
        RETURN_IF_ERROR(eviction_by_name(schedule.policy));
    }
    return schedule;
}

int run_verify_command(const VerifyOptions& options) {
    const auto under = schedule_of(options);
    if (!under) return report_error(Error{"--under: " + under.error().message}, kExitBadUsage);
    const auto run = open_recorded_run(options.record, options.rerun);
    if (!run) return report_error(run.error());
    const Status apart =
        check_file_roles({{"the record's model", (*run)->record.run.model}}, {{"--junit", options.junit}});
    if (!apart) return report_error(apart.error(), kExitBadUsage);
    auto junit = files::OutputFile::create(options.junit);
    if (!junit) return report_error(junit.error());
    std::vector<Verification> verifications;
    for (const records::Schedule& schedule : options.all_schedules
                                                 ? all_schedules((*run)->profile, (*run)->model.weights.quantised)
                                                 : std::vector<records::Schedule>{*under}) {
        auto verification = verify_run(**run, schedule, options.follow_tokens);
        if (!verification) return report_error(verification.error());
        verifications.push_back(*std::move(verification));
    }
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(verify_json(**run, verifications)));
    } else {
        fmt::print("{}", verify_table(**run, verifications));
    }
    if (const Status written = junit->finish_with(verify_junit(**run, verifications)); !written)
        return report_error(written.error());
    return exit_code_of(worst_of(verifications).verdict());
}

}  // namespace

void add_verify_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<VerifyOptions>();
    CLI::App* verb = app.add_subcommand("verify", "run a record again, and name the first bit that differs");
    verb->add_option("record", options->record, "what verbatim replay --record wrote")->type_name("FILE")->required();
    add_rerun_options(*verb, options->rerun);
    auto* under = verb->add_option("--under", options->under,
                                   "another schedule: batch=N chunks=N cache=off blocks=N windows=N, "
                                   "admission=arrival|fewest-tokens, "
                                   "policy=lru|lfu|size|flops|value (eviction), policy=exact|verify (requests)")
                      ->type_name("KEY=VALUE...");
    verb->add_flag("--all-schedules", options->all_schedules, "a fixed set of schedules, one after another")
        ->excludes(under);
    verb->add_flag("--follow-tokens", options->follow_tokens,
                   "a token that differs is not what is looked for, but what was computed before it");
    add_allow_cut_option(*verb, options->rerun.allow_cut);
    add_output_option(*verb, "--junit", options->junit, "writes the result as a JUnit report, too");
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_verify_command(*options); });
}

}  // namespace verbatim::tools
