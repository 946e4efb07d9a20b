// `verbatim calibrate`: times this machine's executor and writes a device file for `verbatim simulate`.
#include <CLI/CLI.hpp>
#include <memory>

#include "files/json_text.h"
#include "files/output_file.h"
#include "tools/calibrate/calibrate.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/executor_option.h"
#include "tools/program/file_roles.h"

namespace verbatim::tools {

namespace {

struct CalibrateOptions {
    CalibrateConfig config;
    std::string to;
    OutputFormat format = OutputFormat::kTable;
};

int run_calibrate_command(const CalibrateOptions& options) {
    if (options.config.time == TimeSource::kWork && options.config.num_threads > 1)
        return report_error(Error{"--time work: counts all threads together, wanted --threads 1"}, kExitBadUsage);
    auto output = files::OutputFile::create(options.to);
    if (!output) return report_error(output.error());
    const auto calibration = calibrate(options.config);
    if (!calibration) return report_error(calibration.error());
    const std::string device = json_text(device_json(*calibration)) + "\n";
    if (const Status written = output->finish_with(device); !written) return report_error(written.error());
    fmt::print("{}", options.format == OutputFormat::kJson ? device : calibration_table(*calibration));
    return kExitOk;
}

}  // namespace

void add_calibrate_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<CalibrateOptions>();
    CalibrateConfig& config = options->config;
    CLI::App* verb = app.add_subcommand("calibrate", "time this machine's executor into a device file to simulate");
    verb->add_option("--model", config.model, "a preset, or a checkpoint's folder")->capture_default_str();
    add_executor_option(*verb, config.executor, "what is timed");
    add_output_option(*verb, "--out", options->to, "the device file");
    add_choice_option(*verb, "--time", config.time, time_source_choices(),
                      "of the clock, or what this process worked: for a machine that is shared");
    const auto count = [&](const char* flag, auto& value, int least, int most, const char* what) {
        verb->add_option(flag, value, what)->check(CLI::Range(least, most))->capture_default_str();
    };
    count("--threads", config.num_threads, 1, 1024, "of the executor");
    count("--rounds", config.rounds, 1, 1000, "times that every step is timed");
    count("--max-context", config.max_context, 64, 1 << 20, "tokens of the longest sequence");
    count("--max-sequences", config.max_sequences, 1, 1024, "at once");
    count("--step-tokens", config.step_tokens, 8, 1 << 16, "of the largest step");
    add_seed_option(*verb, config.seed);
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_calibrate_command(*options); });
}

}  // namespace verbatim::tools
