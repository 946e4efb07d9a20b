// tools/program/run_recording.h: `--record FILE --digests LEVEL` of the verbs that run an engine.
#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "engine/executor.h"
#include "engine/recorder.h"
#include "files/output_file.h"
#include "reference/numeric_executor.h"
#include "reference/records/format.h"
#include "reference/records/record_file.h"
#include "reference/records/run_recorder.h"
#include "reference/records/step_digests.h"

namespace CLI {
class App;
}  // namespace CLI

namespace verbatim::tools {

struct RecordFlags {
    std::string path;  // empty: nothing is recorded
    records::DigestLevel digests = records::DigestLevel::kLayers;
};
void add_record_options(CLI::App& verb, RecordFlags& flags);

// A run's record in the making.
class RunRecording {
public:
    // The file alone, before work that takes long. Says on stderr what becomes of a killed run's. Not wanted where the
    // flags name none. Errors: the file cannot be made.
    static Result<files::OutputFile> create_file(const RecordFlags& flags);
    // `file`: what create_file(flags) made. `run` is complete but for what every record of this program on this machine
    // says. The first write that fails is said on stderr at once, followed by `then`. Errors: the file cannot be
    // written.
    static Result<std::unique_ptr<RunRecording>> start(const RecordFlags& flags, files::OutputFile file,
                                                       records::RunDescription run, const std::string& then);

    [[nodiscard]] Recorder& recorder() { return recorder_; }
    // `executor` with `numeric` in it, looked at. Borrows both, until look_away() or for its life.
    [[nodiscard]] Executor& watch(Executor& executor, reference::NumericExecutor& numeric);
    // What watch() returned is gone.
    void look_away();
    // The record ends here; what watch() returned goes on computing. `failure`: why the run does. Errors: the file
    // could not be written.
    Status finish(const std::string& failure = {});
    [[nodiscard]] bool is_finished() const { return finished_; }
    // From any thread.
    [[nodiscard]] int64_t file_bytes() const { return writer_->file_bytes(); }
    [[nodiscard]] bool failed() const { return writer_->failed(); }

private:
    RunRecording(records::DigestLevel level, std::unique_ptr<records::RecordWriter> writer)
        : level_(level), writer_(std::move(writer)), recorder_(level, *writer_) {}

    records::DigestLevel level_;
    std::unique_ptr<records::RecordWriter> writer_;
    records::RunRecorder recorder_;
    std::unique_ptr<records::DigestingExecutor> digesting_;
    bool finished_ = false;
};

// What a description says of this program and this machine.
void describe_here(records::RunDescription& run);

}  // namespace verbatim::tools
