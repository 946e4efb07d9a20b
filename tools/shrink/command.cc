// `verbatim shrink`: from a record whose run differs from the uncached reference's, the smallest one that still
// differs, and a case of the one differing operation.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "files/output_file.h"
#include "kernels/executors/executor_choice.h"
#include "kernels/sandbox/operation_case.h"
#include "reference/records/asked_tokens.h"
#include "reference/records/comparison.h"
#include "reference/records/record_file.h"
#include "reference/records/run_again.h"
#include "reference/records/run_index.h"
#include "reference/records/shrink.h"
#include "reference/reference_executor.h"
#include "tools/program/cli.h"
#include "tools/program/file_roles.h"
#include "tools/program/record_option.h"
#include "tools/program/recorded_run.h"
#include "tools/program/verdict_text.h"
#include "tools/program/verify_run.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

struct ShrinkFlags {
    std::string record;
    std::string to;
    std::string case_to;  // empty: in the folder of `to`
    RerunFlags rerun;
};

// Runs calls on the executor in question and on the reference.
class Trial {
public:
    explicit Trial(const RecordedRun& run) : run_(run) {}

    Result<bool> differs(const records::Record& calls) {
        ASSIGN_OR_RETURN(const records::Comparison comparison, compare(calls));
        return comparison.first.has_value();
    }
    // With the reference's run, as a record.
    Result<records::Comparison> compare(const records::Record& calls) {
        records::RunAgainOptions again = run_.again;
        again.by_causes = true;
        again.digests = records::DigestLevel::kHeads;
        ASSIGN_OR_RETURN(const records::Record computed, records::run_again(calls, again));
        ASSIGN_OR_RETURN(const records::Record right, records::run_again(calls, reference()));
        records::Comparison comparison =
            records::compare(records::RunIndex(right), records::RunIndex(computed), *run_.points,
                             {.sides = {"the reference's run", run_.executor + "'s run", true}});
        for (const records::Record* made : {&right, &computed}) {
            if (!made->end->failure.empty())
                comparison.share.leave_out_uncounted("a run ended early: " + made->end->failure);
        }
        return comparison;
    }
    // What is written: the reference's run, with digests of every operation.
    Result<records::Record> right(const records::Record& calls) {
        records::RunAgainOptions again = reference();
        again.digests = records::DigestLevel::kOps;
        ASSIGN_OR_RETURN(records::Record made, records::run_again(calls, again));
        made.run.profile = std::string(reference::name(witness_profile(run_.profile)));
        return made;
    }

private:
    [[nodiscard]] records::RunAgainOptions reference() const {
        records::RunAgainOptions again = run_.again;
        again.by_causes = true;
        again.digests = records::DigestLevel::kHeads;
        again.executor = "reference";
        again.make_executor = [this](const EngineConfig&, bool) -> Result<std::shared_ptr<reference::NumericExecutor>> {
            return std::make_shared<reference::ReferenceExecutor>(run_.model.config, run_.model.weights, 1,
                                                                  witness_profile(run_.profile));
        };
        return again;
    }

    const RecordedRun& run_;
};

std::string to_text(const records::ShrunkSize& size) {
    return fmt::format("{} sessions, {} rows, {} messages, {} tokens, batches of {}", size.conversations, size.calls,
                       size.messages, size.tokens, size.batch);
}

Status write_record(const std::string& path, files::OutputFile file, const records::Record& record) {
    records::RunDescription run = record.run;
    describe_here(run);
    ASSIGN_OR_RETURN(const auto writer, records::RecordWriter::create(path, std::move(file), run));
    for (const records::Entry& entry : record.entries) writer->add(entry);
    writer->finish(*record.end);
    return writer->close();
}

// --- the operation alone

// Why there is none is an error, too.
Result<ValueCase> case_of(const RecordedRun& run, const records::RecordDifference& found) {
    if (found.op_index < 0 || found.position < 0)
        return error("what differs first is not an operation's output, but {}", found.op);
    if (found.inputs_equal == false)
        return error("{} read what was wrong before it: whoever wrote that is to blame", found.op);
    OperationPlace place{.op = static_cast<size_t>(found.op_index),
                         .begin = found.position,
                         .end = found.position + 1,
                         .position = found.position,
                         .element = std::max<int64_t>(found.element, 0)};
    std::vector<TokenId> tokens;
    if (const records::RequestIndex* request = run.index->find(found.request)) {
        tokens = records::asked_tokens(run.record, request->id);
        for (const records::Share& share : request->shares) {
            const records::SequenceRecord& sequence = share.sequence();
            if (share.step->step != found.step || found.position < sequence.begin || found.position >= sequence.end)
                continue;
            place.begin = sequence.begin;
            place.end = sequence.end;
        }
    }
    if (std::ssize(tokens) <= place.position) {
        return error("the record's request has {} tokens, and position {} differs", tokens.size(), place.position);
    }
    place.end = std::min<int64_t>(place.end, std::ssize(tokens));
    return operation_case(run.model, run.profile, *run.points, place, tokens,
                          fmt::format("{} on {}: {}", run.record.run.model, run.executor, to_string(found)));
}

// `right`: the smallest calls as the reference runs them.
Status write_case(const std::string& path, files::OutputFile& file, RecordedRun& run, records::Record right) {
    right.own_store = std::move(run.record.own_store);  // its tokens live there
    run.index.reset();
    run.record = std::move(right);
    run.index = std::make_unique<records::RunIndex>(run.record);
    run.again.by_causes = true;
    run.again.digests = run.record.run.digests;
    ASSIGN_OR_RETURN(const Verification verified, verify_run(run, {}, false));
    if (!verified.comparison.first) return error("the run did not differ again: it is not the same every time");
    fmt::print("{}\n", to_string(*verified.comparison.first));
    const auto one = case_of(run, *verified.comparison.first);
    if (!one) {
        fmt::print("no case of the operation: {}\n", one.error().message);
        return {};
    }
    const std::string text = value_case_file(*one);
    if (const auto readable = read_value_case_text(path, text); !readable) {
        fmt::print("no case of the operation: {}\n", readable.error().message);
        return {};
    }
    RETURN_IF_ERROR(file.finish_with(text));
    fmt::print("{}: {} alone; verbatim kernel case {} tries it\n", path, one->call.operation->name, path);
    return {};
}

// What the record's own calls show. Of kDifferent the smallest case is written.
Result<records::Verdict> shrink(const ShrinkFlags& flags) {
    const std::string case_to = flags.case_to.empty() ? flags.to + ".case.json" : flags.case_to;
    ASSIGN_OR_RETURN(const auto run, open_recorded_run(flags.record, flags.rerun));
    RETURN_IF_ERROR(check_file_roles({{"record", flags.record}, {"the record's model", run->record.run.model}},
                                     {{"--to", flags.to}, {"--case-to", case_to}}));
    ASSIGN_OR_RETURN(files::OutputFile record_file, files::OutputFile::create(flags.to));
    ASSIGN_OR_RETURN(files::OutputFile case_file, files::OutputFile::create(case_to));
    Trial trial(*run);
    fmt::print("{}: {}\n", flags.record, to_text(records::size_of(run->record)));
    ASSIGN_OR_RETURN(records::Comparison whole, trial.compare(run->record));
    if (!run->record.cut_off.empty()) whole.share.leave_out_uncounted(run->record.cut_off);
    if (whole.verdict() != records::Verdict::kDifferent) {
        fmt::print("{}on {} it is {}: there is nothing to shrink\n", share_lines(whole.share), run->executor,
                   whole.identical() ? "what the reference computes" : "not all compared, and nothing differs");
        return whole.verdict();
    }
    ASSIGN_OR_RETURN(const records::Record smallest,
                     records::shrink(run->record, {.differs = [&](const auto& calls) { return trial.differs(calls); },
                                                   .tried =
                                                       [](const std::string& what, const auto& size, bool still) {
                                                           fmt::print("{}: {}: {}\n", what, to_text(size),
                                                                      still ? "still differs" : "does not");
                                                       }}));
    ASSIGN_OR_RETURN(records::Record right, trial.right(smallest));
    RETURN_IF_ERROR(write_record(flags.to, std::move(record_file), right));
    fmt::print("{}: {}\n", flags.to, to_text(records::size_of(smallest)));
    if (run->profile == witness_profile(run->profile))
        fmt::print("verbatim verify {} --executor {} names the element\n", flags.to, run->executor);
    RETURN_IF_ERROR(write_case(case_to, case_file, *run, std::move(right)));
    return records::Verdict::kDifferent;
}

int run_shrink_command(const ShrinkFlags& flags) {
    const auto shrunk = shrink(flags);
    if (!shrunk) return report_error(shrunk.error());
    return exit_code_of(*shrunk);
}

}  // namespace

void add_shrink_command(CLI::App& app, int& exit_code) {
    auto flags = std::make_shared<ShrinkFlags>();
    CLI::App* verb = app.add_subcommand("shrink", "make the smallest record that still differs from the reference");
    verb->add_option("record", flags->record, "what verbatim replay --record wrote")->type_name("FILE")->required();
    add_output_option(*verb, "--to", flags->to, "where the smallest one is written")->required();
    add_output_option(*verb, "--case-to", flags->case_to,
                      "where the operation that differs is written alone, with its inputs and what it should give")
        ->default_str("TO.case.json");
    add_rerun_options(*verb, flags->rerun);
    add_allow_cut_option(*verb, flags->rerun.allow_cut);
    verb->callback([flags, &exit_code] { exit_code = run_shrink_command(*flags); });
}

}  // namespace verbatim::tools
