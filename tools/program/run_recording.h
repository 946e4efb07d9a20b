// tools/program/run_recording.h: `--record FILE --digests LEVEL` of the verbs that run an engine.
#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "engine/executor.h"
#include "engine/recorder.h"
#include "engine/timed_executor.h"
#include "files/output_file.h"
#include "kernels/steady_clock.h"
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
    bool times = false;  // each step's wall-clock time, without that of its digests

    // The engine has to digest committed states (EngineConfig::digest_heads).
    [[nodiscard]] bool has_states() const { return !path.empty() && digests != records::DigestLevel::kNone; }
};
void add_record_options(CLI::App& verb, RecordFlags& flags);

// Writes a run's record.
class RunRecording {
public:
    // Creates the file alone, before long work. Prints on stderr where a killed run's record stays. Not wanted if the
    // flags name none. Errors: the file cannot be created.
    static Result<files::OutputFile> create_file(const RecordFlags& flags);
    // `file`: from create_file(flags). `run` lacks only this program's and machine's description. The first write that
    // fails is reported on stderr at once, followed by `then`. Errors: the file cannot be written.
    static Result<std::unique_ptr<RunRecording>> start(const RecordFlags& flags, files::OutputFile file,
                                                       records::RunDescription run, const std::string& then);

    [[nodiscard]] Recorder& recorder() { return recorder_; }
    // Wraps `executor`, with `numeric` in it, to record its digests, and its steps' times where the flags say so.
    // Borrows both, until look_away() or the end of its life.
    [[nodiscard]] Executor& watch(Executor& executor, reference::NumericExecutor& numeric);
    // Releases the executor that watch() returned.
    void look_away();
    // Ends the record; the executor of watch() still computes. `failure`: why the run ends. Errors: the file could not
    // be written.
    Status finish(const std::string& failure = {});
    [[nodiscard]] bool is_finished() const { return finished_; }
    // Thread-safe.
    [[nodiscard]] int64_t file_bytes() const { return writer_->file_bytes(); }
    [[nodiscard]] bool failed() const { return writer_->failed(); }

private:
    RunRecording(const RecordFlags& flags, std::unique_ptr<records::RecordWriter> writer)
        : level_(flags.digests),
          has_times_(flags.times),
          writer_(std::move(writer)),
          recorder_(flags.digests, *writer_) {}

    records::DigestLevel level_;
    bool has_times_;
    SteadyClock clock_;
    std::unique_ptr<records::RecordWriter> writer_;
    records::RunRecorder recorder_;
    std::unique_ptr<TimedExecutor> timed_;
    std::unique_ptr<records::DigestingExecutor> digesting_;
    bool finished_ = false;
};

// Adds this program's and machine's description.
void describe_here(records::RunDescription& run);

}  // namespace verbatim::tools
