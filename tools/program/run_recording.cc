#include "tools/program/run_recording.h"
#include "tools/program/file_roles.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "tools/program/choice_option.h"

namespace verbatim::tools {
namespace {

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
        const size_t colon = line.find(": ");
        if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
    }
    return "an unknown processor";
}

}  // namespace

void add_record_options(CLI::App& verb, RecordFlags& flags) {
    add_output_option(verb, "--record", flags.path,
                      "writes what comes in, what is computed, and digests of it to this file, for verbatim verify");
    Choices<records::DigestLevel> levels;
    for (int i = 0; i < static_cast<int>(records::DigestLevel::kCount); ++i) {
        const auto level = static_cast<records::DigestLevel>(i);
        levels.emplace_back(records::name(level), level);
    }
    add_choice_option(
        verb, "--digests", flags.digests, levels,
        "of what --record holds digests: of nothing; of logits and committed states; of every layer, too; "
        "of every operation, too")
        ->needs("--record");
    verb.add_flag("--record-times", flags.times,
                  "the record has each step's wall-clock time, too: for verbatim simulate --from")
        ->needs("--record");
}

void describe_here(records::RunDescription& run) {
    run.program = "verbatim " VERBATIM_VERSION;
    run.machine = fmt::format("{}, {} threads", processor_name(), std::thread::hardware_concurrency());
}

Result<files::OutputFile> RunRecording::create_file(const RecordFlags& flags) {
    ASSIGN_OR_RETURN(files::OutputFile file, records::RecordWriter::create_file(flags.path));
    if (!file.moved().empty())
        fmt::print(stderr, "verbatim: a run that was killed left {}: it is {} now\n", file.partial().string(),
                   file.moved().string());
    return file;
}

Result<std::unique_ptr<RunRecording>> RunRecording::start(const RecordFlags& flags, files::OutputFile file,
                                                          records::RunDescription run, const std::string& then) {
    describe_here(run);
    run.digests = flags.digests;
    ASSIGN_OR_RETURN(auto writer, records::RecordWriter::create(flags.path, std::move(file), run));
    writer->on_failure([then](const Error& failure) {
        std::fputs(fmt::format("verbatim: error: --record: {}: {}\n", failure.message, then).c_str(), stderr);
    });
    return std::unique_ptr<RunRecording>(new RunRecording(flags, std::move(writer)));
}

Executor& RunRecording::watch(Executor& executor, reference::NumericExecutor& numeric) {
    look_away();
    if (has_times_) timed_ = std::make_unique<TimedExecutor>(executor, clock_);
    Executor& used = timed_ ? *timed_ : executor;
    if (level_ == records::DigestLevel::kNone) return used;
    digesting_ = std::make_unique<records::DigestingExecutor>(used, numeric, level_);
    recorder_.take_digests_of(digesting_.get());
    return *digesting_;
}

Status RunRecording::finish(const std::string& failure) {
    CHECK(!finished_);
    finished_ = true;
    recorder_.finish(failure);
    return writer_->close();
}

void RunRecording::look_away() {
    recorder_.take_digests_of(nullptr);
    digesting_.reset();
    timed_.reset();
}

}  // namespace verbatim::tools
