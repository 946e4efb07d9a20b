// tools/calibrate/calibrate.h: times steps of many shapes on an executor of this machine, and fits a cost model.
//
// The steps are the engine's: scenes of requests that arrive one after another, with prompts from short to long, step
// budgets from small to large, and few to many concurrent requests. The engine decides the same in every round, so the
// same step is timed once per round, and its time is the median.
//   G1  one step in four, by the seed, is held out: the printed errors are those of steps outside the fit
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "simulator/step_table.h"
#include "tools/program/time_source.h"

namespace verbatim::tools {

struct CalibrateConfig {
    std::string model = "tiny-granite";
    std::string executor = "cpu";
    TimeSource time = TimeSource::kWall;
    int32_t num_threads = 1;
    int32_t rounds = 5;
    int64_t max_context = 2048;  // tokens, of the longest sequence
    int32_t max_sequences = 16;  // concurrent
    int32_t step_tokens = 512;   // the largest step
    uint64_t seed = 0;
};

struct Calibration {
    CalibrateConfig config;
    StepTimes times;
    StepErrors known;     // of the fitted steps
    StepErrors held_out;  // of the held-out steps
    double noise = 0;     // median over steps and rounds of |time / the step's median - 1|
    int64_t memory_bytes = 0;
    double stream_bytes_per_s = 0;
    double peak_flops = 0;
};

// Errors: no such model or executor.
Result<Calibration> calibrate(const CalibrateConfig& config);

// The file that `verbatim simulate --device` reads.
[[nodiscard]] nlohmann::ordered_json device_json(const Calibration& calibration);
[[nodiscard]] std::string calibration_table(const Calibration& calibration);

}  // namespace verbatim::tools
