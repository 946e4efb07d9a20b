// `verbatim diff`: the first difference of two records of the same requests, and their schedules there.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "engine/fields.h"
#include "files/json_text.h"
#include "files/output_file.h"
#include "reference/records/comparison.h"
#include "reference/records/record_file.h"
#include "reference/records/run_index.h"
#include "reference/records/walk_points.h"
#include "tools/diff/report.h"
#include "tools/program/cli.h"
#include "tools/program/file_roles.h"
#include "tools/program/recorded_run.h"

namespace verbatim::tools {
namespace {

struct DiffOptions {
    std::string a;
    std::string b;
    std::string model;
    bool follow_tokens = false;
    bool allow_cut = false;
    std::string junit;
    OutputFormat format = OutputFormat::kTable;
};

// Whether both computed ordinary requests alike, as far as the heads tell.
bool computed_ordinary_alike(const records::RunDescription& a, const records::RunDescription& b) {
    if (a.policy.empty() && b.policy.empty()) return true;
    return a.policy == b.policy && a.executor == b.executor && a.isa == b.isa && !a.isa.empty() &&
           to_text(a.engine) == to_text(b.engine);
}

Result<DiffResult> diff(const DiffOptions& options, const records::RunIndex& a, const records::RunIndex& b) {
    ASSIGN_OR_RETURN(const reference::Model model, recorded_model(a.record().run, options.model));
    if (a.record().run.vocab_size != b.record().run.vocab_size) {
        return error("{} is of a vocabulary of {} tokens, {} of one of {}: they are not of one model", options.a,
                     a.record().run.vocab_size, options.b, b.record().run.vocab_size);
    }
    DiffResult result{.a = options.a, .b = options.b};
    result.runs_differ = records::what_differs(a.record().run, b.record().run);
    result.comparison = records::compare(a, b, records::WalkPoints(model.config),
                                         {.follow_tokens = options.follow_tokens,
                                          .is_complete = false,
                                          .ordinary = computed_ordinary_alike(a.record().run, b.record().run),
                                          .sides = {options.a, options.b, true}});
    if (const auto& first = result.comparison.first) {
        const int64_t position = first->position >= 0 ? first->position : first->begin;
        result.there_a = schedule_there(a, first->request, first->step, position);
        result.there_b = schedule_there(b, first->computed_request, first->computed_step, position);
    }
    return result;
}

int run_diff_command(const DiffOptions& options) {
    const auto a = open_record(options.a, options.allow_cut);
    if (!a) return report_error(a.error());
    const auto b = open_record(options.b, options.allow_cut);
    if (!b) return report_error(b.error());
    auto junit = files::OutputFile::create(options.junit);
    if (!junit) return report_error(junit.error());
    const records::RunIndex index_a(*a);
    const records::RunIndex index_b(*b);
    const auto result = diff(options, index_a, index_b);
    if (!result) return report_error(result.error());
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(diff_json(*result)));
    } else {
        fmt::print("{}", diff_table(*result, index_a, index_b));
    }
    if (const Status written = junit->finish_with(diff_junit(*result)); !written) return report_error(written.error());
    return exit_code_of(result->comparison.verdict());
}

}  // namespace

void add_diff_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<DiffOptions>();
    CLI::App* verb = app.add_subcommand("diff", "compare two records of the same requests");
    verb->add_option("a", options->a, "a record")->type_name("FILE")->required();
    verb->add_option("b", options->b, "another one")->type_name("FILE")->required();
    verb->add_flag("--follow-tokens", options->follow_tokens,
                   "a token that differs is not what is looked for, but what was computed before it");
    add_allow_cut_option(*verb, options->allow_cut);
    verb->add_option("--model", options->model, "where the first one's model is now; as recorded, unless told")
        ->type_name("DIR");
    add_output_option(*verb, "--junit", options->junit, "writes the result as a JUnit report, too");
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_diff_command(*options); });
}

}  // namespace verbatim::tools
