#include "tools/replay/from_record.h"

#include <algorithm>
#include <cstdint>

#include "engine/fields.h"
#include "files/output_file.h"
#include "reference/records/run_index.h"
#include "tools/program/cli.h"
#include "tools/replay/cache_view.h"
#include "tools/replay/timeline.h"

namespace verbatim::tools {
namespace {

constexpr int64_t kStepNs = 1'000'000;  // of a step without a measured time

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

}  // namespace

Status replay_from_record(const FromRecordFlags& flags) {
    ASSIGN_OR_RETURN(const auto run, open_recorded_run(flags.record, flags.rerun));
    ASSIGN_OR_RETURN(files::OutputFile timeline, files::OutputFile::create(flags.timeline));
    ASSIGN_OR_RETURN(files::OutputFile graph, files::OutputFile::create(flags.cache_graph));
    ASSIGN_OR_RETURN(files::OutputFile svg, files::OutputFile::create(flags.cache_svg));
    if (timeline.is_wanted()) RETURN_IF_ERROR(timeline.finish_with(timeline_json(*run->index, kStepNs)));
    CacheView view;
    records::RunAgainOptions again = run->again;
    again.digests = records::DigestLevel::kHeads;
    if (flags.until_step >= 0) again.max_steps = std::min(flags.until_step, INT64_MAX - 1) + 1;
    again.at_end = [&view](Engine& engine) { view = view_of(engine); };
    ASSIGN_OR_RETURN(const records::Record made, records::run_again(run->record, again));
    if (!made.end->failure.empty()) return error("{}: {}", flags.record, made.end->failure);
    if (!run->record.cut_off.empty()) fmt::print("{}: shown as far as it goes\n", run->record.cut_off);
    fmt::print("{}", step_text(made));
    fmt::print("nothing was compared: verbatim verify {} does\n", flags.record);
    if (flags.show == "cache") fmt::print("{}", cache_text(view));
    RETURN_IF_ERROR(graph.finish_with(cache_graph(view)));
    return svg.finish_with(cache_svg(view));
}

}  // namespace verbatim::tools
