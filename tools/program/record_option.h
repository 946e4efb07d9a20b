// tools/program/record_option.h: `--record FILE --digests LEVEL` of the verbs that run an engine.
#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "files/output_file.h"
#include "reference/records/format.h"
#include "reference/records/run_recording.h"

namespace CLI {
class App;
}  // namespace CLI

namespace verbatim::tools {

void add_record_options(CLI::App& verb, records::RecordingOptions& options);

// Creates the file alone, before long work. Prints on stderr where a killed run's record stays. Not wanted if the
// options name none. Errors: the file cannot be created.
[[nodiscard]] Result<files::OutputFile> create_record_file(const records::RecordingOptions& options);
// `file`: from create_record_file(options). `run` lacks only this program's and machine's description. The first write
// that fails is reported on stderr at once, followed by `then`. Errors: the file cannot be written.
[[nodiscard]] Result<std::unique_ptr<records::RunRecording>> start_recording(const records::RecordingOptions& options,
                                                                             files::OutputFile file,
                                                                             records::RunDescription run,
                                                                             const std::string& then);

// Adds this program's and machine's description.
void describe_here(records::RunDescription& run);

}  // namespace verbatim::tools
