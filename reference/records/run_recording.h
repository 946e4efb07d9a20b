// reference/records/run_recording.h: writes the record of a run while it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "engine/base/result.h"
#include "engine/executor.h"
#include "engine/recorder.h"
#include "engine/timed_executor.h"
#include "files/output_file.h"
#include "files/steady_clock.h"
#include "reference/numeric_executor.h"
#include "reference/records/format.h"
#include "reference/records/record_file.h"
#include "reference/records/run_recorder.h"
#include "reference/records/step_digests.h"

namespace verbatim::records {

struct RecordingOptions {
    std::string path;  // empty: nothing is recorded
    DigestLevel digests = DigestLevel::kLayers;
    bool times = false;  // each step's wall-clock time, without that of its digests

    // The engine has to digest committed states (EngineConfig::digest_heads).
    [[nodiscard]] bool has_states() const { return !path.empty() && digests != DigestLevel::kNone; }
};

class RunRecording {
public:
    // `file`: from RecordWriter::create_file(options.path), before long work. `on_failure` gets the first write that
    // fails, at once. Errors: the file cannot be written.
    static Result<std::unique_ptr<RunRecording>> start(const RecordingOptions& options, files::OutputFile file,
                                                       RunDescription run,
                                                       std::function<void(const Error&)> on_failure);

    [[nodiscard]] Recorder& recorder() { return recorder_; }
    // Wraps `executor`, with `numeric` in it, to record its digests, and its steps' times if the options say so.
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
    RunRecording(const RecordingOptions& options, std::unique_ptr<RecordWriter> writer)
        : level_(options.digests),
          has_times_(options.times),
          writer_(std::move(writer)),
          recorder_(options.digests, *writer_) {}

    DigestLevel level_;
    bool has_times_;
    SteadyClock clock_;
    std::unique_ptr<RecordWriter> writer_;
    RunRecorder recorder_;
    std::unique_ptr<TimedExecutor> timed_;
    std::unique_ptr<DigestingExecutor> digesting_;
    bool finished_ = false;
};

}  // namespace verbatim::records
