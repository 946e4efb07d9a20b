#include "tools/calibrate/calibrate.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

nlohmann::ordered_json errors_json(const StepErrors& errors) {
    return {{"steps", errors.num_steps},
            {"mean", errors.mean},
            {"p50", errors.p50},
            {"p95", errors.p95},
            {"of_sum", errors.of_sum}};
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::string source_of(const Calibration& calibration) {
    const CalibrateConfig& config = calibration.config;
    return fmt::format("verbatim calibrate --model {} --executor {} --threads {} --rounds {}: median of {} time",
                       config.model, config.executor, config.num_threads, config.rounds,
                       config.time == TimeSource::kWork ? "processor" : "wall");
}

}  // namespace

nlohmann::ordered_json device_json(const Calibration& calibration) {
    const StepTimes& times = calibration.times;
    const std::string source = source_of(calibration);
    nlohmann::ordered_json json = {{"name", fmt::format("{} of this machine", calibration.config.executor)},
                                   {"memory_bytes", calibration.memory_bytes},
                                   {"memory_bytes_per_s", calibration.stream_bytes_per_s},
                                   {"bf16_flops", calibration.peak_flops},
                                   {"memory_efficiency", 1},
                                   {"flops_efficiency", 1},
                                   {"kernel_ns", 0},
                                   {"step_overhead_ns", 0},
                                   {"workspace_bytes", 0}};
    json["steps"] = {{"model", times.model},
                     {"tokens", times.tokens},
                     {"base_ns", times.base_ns},
                     {"sequence_ns", times.sequence_ns},
                     {"chunk_pair_ns", times.chunk_pair_ns},
                     {"decode_pair_ns", times.decode_pair_ns},
                     {"logit_row_ns", times.logit_row_ns},
                     {"state_write_ns", times.state_write_ns},
                     {"held_out", errors_json(calibration.held_out)},
                     {"noise", nullptr}};
    if (calibration.config.rounds > 1) json["steps"]["noise"] = calibration.noise;
    json["sources"] = {{"memory_bytes", "what the system said was free"},
                       {"memory_bytes_per_s", "measured: streaming reads"},
                       {"bf16_flops", "measured: the widest multiply-adds"},
                       {"memory_efficiency", "measured, not a data sheet's"},
                       {"flops_efficiency", "measured, not a data sheet's"},
                       {"kernel_ns", "part of the steps' times"},
                       {"step_overhead_ns", "none: the steps' times are the executor's"},
                       {"workspace_bytes", "none"},
                       {"steps", source}};
    return json;
}

std::string calibration_table(const Calibration& calibration) {
    Table errors({"steps", "count", "mean error", "p50", "p95", "of their sum"});
    const auto add = [&](const char* what, const StepErrors& of) {
        errors.add_row({what, fmt::format("{}", of.num_steps), percent(of.mean), percent(of.p50), percent(of.p95),
                        percent(of.of_sum)});
    };
    add("learned from", calibration.known);
    add("held out", calibration.held_out);
    const StepTimes& times = calibration.times;
    Table parts;
    parts.add_row({"step of 1 token, us", fmt::format("{:.1f}", times.base_ns.front() / 1e3)});
    parts.add_row({fmt::format("step of {:.0f} tokens, us", times.tokens.back()),
                   fmt::format("{:.1f}", times.base_ns.back() / 1e3)});
    parts.add_row({"each sequence, us", fmt::format("{:.2f}", times.sequence_ns / 1e3)});
    parts.add_row({"visible pair of a chunk, ns", fmt::format("{:.3f}", times.chunk_pair_ns)});
    parts.add_row({"visible pair of a decode, ns", fmt::format("{:.3f}", times.decode_pair_ns)});
    parts.add_row({"row of logits, us", fmt::format("{:.2f}", times.logit_row_ns / 1e3)});
    parts.add_row({"state written, us", fmt::format("{:.2f}", times.state_write_ns / 1e3)});
    parts.add_row({"noise of one timing", calibration.config.rounds > 1 ? percent(calibration.noise) : "-"});
    return fmt::format("{}\n\n{}\n{}", source_of(calibration), parts.to_string(), errors.to_string());
}

}  // namespace verbatim::tools
