#include "tools/diff/report.h"

#include <algorithm>

#include "files/json_text.h"
#include "tools/program/cli.h"
#include "tools/program/verdict_text.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;

ordered_json there_json(const std::optional<ScheduleThere>& there) {
    if (!there) return nullptr;
    return {{"step", there->step},
            {"batch_sequences", there->num_sequences},
            {"batch_tokens", there->num_tokens},
            {"chunk_begin", there->begin},
            {"chunk_end", there->end},
            {"attached_tokens", there->attached},
            {"starts", there->num_starts},
            {"drafts", there->num_drafts},
            {"block_size", there->block_size}};
}

std::string text_of(const std::optional<ScheduleThere>& there, int64_t ScheduleThere::*field) {
    return there ? fmt::format("{}", (*there).*field) : "";
}

}  // namespace

std::optional<ScheduleThere> schedule_there(const records::RunIndex& index, RequestId request, int64_t step,
                                            int64_t position) {
    const records::RequestIndex* found = index.find(request);
    if (found == nullptr) return std::nullopt;
    for (const records::Share& share : found->shares) {
        const records::SequenceRecord& sequence = share.sequence();
        const bool holds = sequence.begin <= position && position < sequence.end;
        if (position >= 0 ? !holds : share.step->step != step) continue;
        ScheduleThere there;
        there.step = share.step->step;
        there.num_sequences = static_cast<int64_t>(share.step->sequences.size());
        for (const auto& each : share.step->sequences) there.num_tokens += each.end - each.begin;
        there.begin = sequence.begin;
        there.end = sequence.end;
        there.attached = found->num_attached_tokens;
        there.num_starts = found->num_starts;
        there.num_drafts = static_cast<int64_t>(sequence.drafts.size());
        there.block_size = index.record().run.engine.cache.pools.block_size;
        return there;
    }
    return std::nullopt;
}

std::string diff_table(const DiffResult& result, const records::RunIndex& a, const records::RunIndex& b) {
    const records::Comparison& comparison = result.comparison;
    Table table({"", result.a, result.b});
    const auto row = [&](const std::string& what, const std::string& of_a, const std::string& of_b) {
        table.add_row({what, of_a, of_b});
    };
    const records::RunDescription& run_a = a.record().run;
    const records::RunDescription& run_b = b.record().run;
    row("executor", run_a.executor, run_b.executor);
    row("numerics", run_a.numerics, run_b.numerics);
    row("digests", records::name(run_a.digests), records::name(run_b.digests));
    row("steps", fmt::format("{}", a.num_steps()), fmt::format("{}", b.num_steps()));
    row("positions computed", fmt::format("{}", a.num_computed()), fmt::format("{}", b.num_computed()));
    row("tokens answered", fmt::format("{}", a.num_tokens()), fmt::format("{}", b.num_tokens()));
    if (result.there_a || result.there_b) {
        const auto there = [&](const char* what, int64_t ScheduleThere::*field) {
            row(what, text_of(result.there_a, field), text_of(result.there_b, field));
        };
        there("there: step", &ScheduleThere::step);
        there("there: sequences in the batch", &ScheduleThere::num_sequences);
        there("there: tokens in the batch", &ScheduleThere::num_tokens);
        there("there: chunk from", &ScheduleThere::begin);
        there("there: chunk to", &ScheduleThere::end);
        there("there: tokens from the cache", &ScheduleThere::attached);
        there("there: times started", &ScheduleThere::num_starts);
        there("there: drafts", &ScheduleThere::num_drafts);
        row("there: tokens in a block", result.there_a ? fmt::format("{}", result.there_a->block_size) : "",
            result.there_b ? fmt::format("{}", result.there_b->block_size) : "");
    }
    std::string text = table.to_string();
    for (const std::string& line : result.runs_differ) text += line + "\n";
    text += fmt::format("{} digests of operations compared; {} requests differ\n", comparison.compared.operations,
                        comparison.num_different);
    text += share_lines(comparison.share);
    if (comparison.first) return text + "first difference: " + to_string(*comparison.first) + "\n";
    return text + verdict_words(comparison.verdict(), comparison.share) + "\n";
}

ordered_json diff_json(const DiffResult& result) {
    const records::Comparison& comparison = result.comparison;
    ordered_json json;
    json["identical"] = comparison.identical();
    json["verdict"] = name(comparison.verdict());
    json["compared"] = compared_json(comparison.compared);
    json["compared_share"] = compared_share_json(comparison.share);
    json["first_difference"] = comparison.first ? record_difference_json(*comparison.first) : ordered_json(nullptr);
    json["requests"] = {{"compared", comparison.num_requests},
                        {"different", comparison.num_different},
                        {"other_prompts", comparison.num_other_prompts},
                        {"missing", comparison.num_missing},
                        {"ordinary", comparison.num_ordinary}};
    json["same_schedule"] = comparison.same_plans;
    json["schedules"] = {{"a", there_json(result.there_a)}, {"b", there_json(result.there_b)}};
    json["runs_differ"] = result.runs_differ;
    return json;
}

std::string diff_junit(const DiffResult& result) {
    JunitCase one = junit_case(result.comparison);
    one.classname = result.a;
    one.name = result.b;
    one.details = json_text(diff_json(result), -1);
    return junit_text({.name = "verbatim diff", .cases = {one}, .elapsed_s = {}});
}

}  // namespace verbatim::tools
