#include "tools/program/record_option.h"
#include "tools/program/file_roles.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <thread>
#include <utility>

#include "reference/records/record_file.h"
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

void add_record_options(CLI::App& verb, records::RecordingOptions& options) {
    add_output_option(verb, "--record", options.path,
                      "writes what comes in, what is computed, and digests of it to this file, for verbatim verify");
    Choices<records::DigestLevel> levels;
    for (int i = 0; i < static_cast<int>(records::DigestLevel::kCount); ++i) {
        const auto level = static_cast<records::DigestLevel>(i);
        levels.emplace_back(records::name(level), level);
    }
    add_choice_option(
        verb, "--digests", options.digests, levels,
        "of what --record holds digests: of nothing; of logits and committed states; of every layer, too; "
        "of every operation, too")
        ->needs("--record");
    verb.add_flag("--record-times", options.times,
                  "the record has each step's wall-clock time, too: for verbatim simulate --from")
        ->needs("--record");
}

void describe_here(records::RunDescription& run) {
    run.program = "verbatim " VERBATIM_VERSION;
    run.machine = fmt::format("{}, {} threads", processor_name(), std::thread::hardware_concurrency());
}

Result<files::OutputFile> create_record_file(const records::RecordingOptions& options) {
    ASSIGN_OR_RETURN(files::OutputFile file, records::RecordWriter::create_file(options.path));
    if (!file.moved().empty())
        fmt::print(stderr, "verbatim: a run that was killed left {}: it is {} now\n", file.partial().string(),
                   file.moved().string());
    return file;
}

Result<std::unique_ptr<records::RunRecording>> start_recording(const records::RecordingOptions& options,
                                                               files::OutputFile file, records::RunDescription run,
                                                               const std::string& then) {
    describe_here(run);
    return records::RunRecording::start(options, std::move(file), std::move(run), [then](const Error& failure) {
        std::fputs(fmt::format("verbatim: error: --record: {}: {}\n", failure.message, then).c_str(), stderr);
    });
}

}  // namespace verbatim::tools
