// `verbatim fidelity`: runs a trace on this machine's executor, simulates the same trace, and reports the simulation's
// errors.
#include <CLI/CLI.hpp>
#include <memory>

#include "files/json_text.h"
#include "simulator/device_file.h"
#include "tools/fidelity/fidelity.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/executor_option.h"
#include "tools/program/number_check.h"

namespace verbatim::tools {

namespace {

struct FidelityOptions {
    FidelityConfig config;
    std::string device;
    OutputFormat format = OutputFormat::kTable;
};

int run_fidelity_command(FidelityOptions options) {
    FidelityConfig& config = options.config;
    if (config.time == TimeSource::kWork && config.num_threads > 1)
        return report_error(Error{"--time work: counts all threads together, wanted --threads 1"}, kExitBadUsage);
    const auto device = read_device(options.device);
    if (!device) return report_error(device.error());
    config.read.seed = config.seed;
    config.read.max_context = config.max_context;
    config.read.over_context = traces::OverContext::kScale;
    const auto fidelity = measure_fidelity(config, *device);
    if (!fidelity) return report_error(fidelity.error());
    if (options.format == OutputFormat::kJson) {
        fmt::print("{}\n", json_text(fidelity_json(*fidelity)));
    } else {
        fmt::print("{}", fidelity_table(*fidelity));
    }
    return kExitOk;
}

}  // namespace

void add_fidelity_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<FidelityOptions>();
    FidelityConfig& config = options->config;
    config.read.limit = 100;
    CLI::App* verb = app.add_subcommand("fidelity", "how far a simulation is from the run that it simulates");
    verb->add_option("--trace", config.trace,
                     "a trace file; rows longer than --context are shortened, where the format has blocks")
        ->required();
    verb->add_option("--device", options->device, "what `verbatim calibrate` left")->required();
    verb->add_option("--model", config.model, "a preset, or a checkpoint's folder")->capture_default_str();
    add_executor_option(*verb, config.executor, "what runs for real");
    add_choice_option(*verb, "--time", config.time, time_source_choices(),
                      "of the clock, or what this process worked; as the device was calibrated");
    verb->add_option("--load", config.loads, "shares of capacity")
        ->delimiter(',')
        ->check(CLI::Range(0.01, 10.0))
        ->check(finite_number())
        ->capture_default_str();
    const auto count = [&](const char* flag, auto& value, int least, int most, const char* what) {
        verb->add_option(flag, value, what)->check(CLI::Range(least, most))->capture_default_str();
    };
    count("--limit", config.read.limit, 1, 1 << 30, "rows of the trace");
    count("--context", config.max_context, 64, 1 << 20, "tokens of the longest row");
    count("--rounds", config.rounds, 1, 1000, "real runs of every load");
    count("--threads", config.num_threads, 1, 1024, "of the executor");
    count("--step-tokens", config.step_tokens, 1, 1 << 16, "tokens computed in a step, at most");
    count("--blocks", config.num_blocks, 1, 1 << 30, "of 16 tokens, of the cache");
    count("--state-rows", config.num_state_rows, 1, 1 << 30, "of the cache");
    add_seed_option(*verb, config.seed);
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_fidelity_command(*options); });
}

}  // namespace verbatim::tools
