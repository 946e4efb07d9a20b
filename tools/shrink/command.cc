// `verbatim shrink`: from a record whose run differs from the uncached reference's, the smallest one that still does.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "reference/records/comparison.h"
#include "reference/records/record_file.h"
#include "reference/records/run_again.h"
#include "reference/records/run_index.h"
#include "reference/records/shrink.h"
#include "reference/reference_executor.h"
#include "tools/program/cli.h"
#include "tools/program/executor_choice.h"
#include "tools/program/recorded_run.h"
#include "tools/program/run_recording.h"

namespace verbatim::tools {
namespace {

struct ShrinkFlags {
    std::string record;
    std::string to;
    RerunFlags rerun;
};

// Runs calls on the executor in question and on the reference.
class Trial {
public:
    explicit Trial(const RecordedRun& run) : run_(run) {}

    Result<bool> differs(const records::Record& calls) {
        records::RunAgainOptions again = run_.again;
        again.by_causes = true;
        again.digests = records::DigestLevel::kHeads;
        ASSIGN_OR_RETURN(const records::Record computed, records::run_again(calls, again));
        ASSIGN_OR_RETURN(const records::Record right, records::run_again(calls, reference()));
        return records::compare(records::RunIndex(right), records::RunIndex(computed), *run_.points).first.has_value();
    }
    // What is written: the reference's run, with digests of every operation.
    Result<records::Record> right(const records::Record& calls) {
        records::RunAgainOptions again = reference();
        again.digests = records::DigestLevel::kOps;
        return records::run_again(calls, again);
    }

private:
    [[nodiscard]] records::RunAgainOptions reference() const {
        records::RunAgainOptions again = run_.again;
        again.by_causes = true;
        again.digests = records::DigestLevel::kHeads;
        again.executor = "reference";
        again.make_executor = [this](const EngineConfig&) -> Result<std::shared_ptr<reference::NumericExecutor>> {
            return std::make_shared<reference::ReferenceExecutor>(run_.model.config, run_.model.weights, 1,
                                                                  witness_profile(run_.profile));
        };
        return again;
    }

    const RecordedRun& run_;
};

std::string to_text(const records::ShrunkSize& size) {
    return fmt::format("{} conversations, {} calls, {} messages, {} tokens", size.conversations, size.calls,
                       size.messages, size.tokens);
}

Status write_record(const std::string& path, records::Record record) {
    describe_here(record.run);
    ASSIGN_OR_RETURN(const auto writer, records::RecordWriter::create(path, record.run));
    for (records::Entry& entry : record.entries) writer->add(std::move(entry));
    writer->finish(*record.end);
    return writer->close();
}

// Whether there was something to shrink.
Result<bool> shrink(const ShrinkFlags& flags) {
    ASSIGN_OR_RETURN(const auto run, open_recorded_run(flags.record, flags.rerun));
    Trial trial(*run);
    fmt::print("{}: {}\n", flags.record, to_text(records::size_of(run->record)));
    ASSIGN_OR_RETURN(const bool differs, trial.differs(run->record));
    if (!differs) {
        fmt::print("on {} it is what the reference computes: there is nothing to shrink\n", run->executor);
        return false;
    }
    ASSIGN_OR_RETURN(const records::Record smallest,
                     records::shrink(run->record, {.differs = [&](const auto& calls) { return trial.differs(calls); },
                                                   .tried =
                                                       [](const std::string& what, const auto& size, bool still) {
                                                           fmt::print("{}: {}: {}\n", what, to_text(size),
                                                                      still ? "still differs" : "does not");
                                                       }}));
    ASSIGN_OR_RETURN(records::Record right, trial.right(smallest));
    RETURN_IF_ERROR(write_record(flags.to, std::move(right)));
    fmt::print("{}: {}; verbatim verify {} --executor {} names the element\n", flags.to,
               to_text(records::size_of(smallest)), flags.to, run->executor);
    return true;
}

int run_shrink_command(const ShrinkFlags& flags) {
    const auto shrunk = shrink(flags);
    if (!shrunk) return report_error(shrunk.error());
    return *shrunk ? kExitDifference : kExitOk;
}

}  // namespace

void add_shrink_command(CLI::App& app, int& exit_code) {
    auto flags = std::make_shared<ShrinkFlags>();
    CLI::App* verb = app.add_subcommand("shrink", "make the smallest record that still differs from the reference");
    verb->add_option("record", flags->record, "what verbatim replay --record wrote")->type_name("FILE")->required();
    verb->add_option("--to", flags->to, "where the smallest one is written")->type_name("FILE")->required();
    add_rerun_options(*verb, flags->rerun);
    verb->callback([flags, &exit_code] { exit_code = run_shrink_command(*flags); });
}

}  // namespace verbatim::tools
