#include "reference/records/run_recording.h"

#include <utility>

#include "engine/base/check.h"

namespace verbatim::records {

Result<std::unique_ptr<RunRecording>> RunRecording::start(const RecordingOptions& options, files::OutputFile file,
                                                          RunDescription run,
                                                          std::function<void(const Error&)> on_failure) {
    run.digests = options.digests;
    ASSIGN_OR_RETURN(auto writer, RecordWriter::create(options.path, std::move(file), run));
    writer->on_failure(std::move(on_failure));
    return std::unique_ptr<RunRecording>(new RunRecording(options, std::move(writer)));
}

Executor& RunRecording::watch(Executor& executor, reference::NumericExecutor& numeric) {
    look_away();
    if (has_times_) timed_ = std::make_unique<TimedExecutor>(executor, clock_);
    Executor& used = timed_ ? *timed_ : executor;
    if (level_ == DigestLevel::kNone) return used;
    digesting_ = std::make_unique<DigestingExecutor>(used, numeric, level_);
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

}  // namespace verbatim::records
