// `verbatim show`: repeats a recorded run up to a step, and shows the step, the cache after it, and the run's timeline.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/fields.h"
#include "files/output_file.h"
#include "reference/records/run_index.h"
#include "tools/program/cli.h"
#include "tools/program/file_roles.h"
#include "tools/program/recorded_run.h"
#include "tools/show/cache_view.h"
#include "tools/show/timeline.h"

namespace verbatim::tools {
namespace {

constexpr int64_t kStepNs = 1'000'000;  // of a step without a measured time

struct ShowFlags {
    std::string record;
    RerunFlags rerun{.allow_cut = true};
    int64_t until_step = -1;  // the last step to run; -1: all
    bool cache = false;       // print the cache's contents
    std::string cache_graph;  // file, Graphviz
    std::string cache_svg;    // file
    std::string timeline;     // file, of the whole record
};

std::string batch_table(const records::StepRecord& step, const records::RunIndex& index) {
    Table table({"request", "conversation", "from", "to", "drafts", "prompt", "attached"});
    for (const records::SequenceRecord& sequence : step.sequences) {
        const records::RequestIndex* request = index.find(sequence.request);
        table.add_row({fmt::format("{}", verbatim::index(sequence.request)),
                       request != nullptr ? request->name.first.conversation_id : "", fmt::format("{}", sequence.begin),
                       fmt::format("{}", sequence.end), fmt::format("{}", sequence.drafts.size()),
                       request != nullptr ? fmt::format("{}", request->num_prompt_tokens) : "",
                       request != nullptr ? fmt::format("{}", request->num_attached_tokens) : ""});
    }
    return table.to_string();
}

// The last step that was made.
std::string step_text(const records::Record& made) {
    const records::StepRecord* last = nullptr;
    for (const records::Entry& entry : made.entries) {
        if (const auto* step = std::get_if<records::StepRecord>(&entry)) last = step;
    }
    if (last == nullptr) return "no step was made\n";
    const records::RunIndex index(made);
    std::string text = fmt::format("step {}\n", last->step);
    if (last->plan) text += "plan " + to_text(*last->plan) + "\n";
    return text + batch_table(*last, index);
}

// Error: --until-step names no step of the record.
Status check_step(const ShowFlags& flags, const records::Record& record) {
    int64_t last = -1;
    for (const records::Entry& entry : record.entries) {
        if (const auto* step = std::get_if<records::StepRecord>(&entry)) last = std::max(last, step->step);
    }
    if (flags.until_step <= last) return {};
    return error("--until-step: got {}, but the last step of {} is {}", flags.until_step, flags.record, last);
}

// Prints the last step's plan and batch, and what the flags ask for; writes their files. Errors: the record, the model,
// a file that cannot be written.
Status show(const ShowFlags& flags) {
    ASSIGN_OR_RETURN(const auto run, open_recorded_run(flags.record, flags.rerun));
    RETURN_IF_ERROR(check_step(flags, run->record));
    ASSIGN_OR_RETURN(files::OutputFile timeline, files::OutputFile::create(flags.timeline));
    ASSIGN_OR_RETURN(files::OutputFile graph, files::OutputFile::create(flags.cache_graph));
    ASSIGN_OR_RETURN(files::OutputFile svg, files::OutputFile::create(flags.cache_svg));
    if (timeline.is_wanted()) RETURN_IF_ERROR(timeline.finish_with(timeline_json(*run->index, kStepNs)));
    CacheView view;
    records::RunAgainOptions again = run->again;
    again.digests = records::DigestLevel::kHeads;
    if (flags.until_step >= 0) again.max_steps = flags.until_step + 1;
    again.at_end = [&view](Engine& engine) { view = view_of(engine); };
    ASSIGN_OR_RETURN(const records::Record made, records::run_again(run->record, again));
    if (!made.end->failure.empty()) return error("{}: {}", flags.record, made.end->failure);
    if (!run->record.cut_off.empty()) fmt::print("{}: shown as far as it goes\n", run->record.cut_off);
    fmt::print("{}", step_text(made));
    fmt::print("nothing was compared: verbatim verify {} does\n", flags.record);
    if (flags.cache) fmt::print("{}", cache_text(view));
    RETURN_IF_ERROR(graph.finish_with(cache_graph(view)));
    return svg.finish_with(cache_svg(view));
}

int run_show_command(const ShowFlags& flags) {
    const Status shown = show(flags);
    return shown ? kExitOk : report_error(shown.error());
}

}  // namespace

void add_show_command(CLI::App& app, int& exit_code) {
    auto flags = std::make_shared<ShowFlags>();
    CLI::App* verb = app.add_subcommand("show", "a step of a recorded run: its plan, its batch, the cache after it");
    verb->add_option("record", flags->record, "a file that replay --record or serve --record wrote")
        ->type_name("FILE")
        ->required();
    add_count_option(*verb, "--until-step", flags->until_step, 0, "the step that is shown, the run's last one")
        ->default_str("all");
    verb->add_flag("--cache", flags->cache, "print names, heads, blocks and which of them are shared");
    add_output_option(*verb, "--cache-graph", flags->cache_graph, "the same for Graphviz");
    add_output_option(*verb, "--cache-svg", flags->cache_svg, "the same as a picture");
    add_output_option(*verb, "--timeline", flags->timeline, "the whole record for Perfetto or about:tracing");
    add_rerun_options(*verb, flags->rerun);
    verb->callback([flags, &exit_code] { exit_code = run_show_command(*flags); });
}

}  // namespace verbatim::tools
