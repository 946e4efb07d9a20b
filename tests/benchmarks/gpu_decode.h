// tests/benchmarks/gpu_decode.h: decode steps of a whole model: by themselves and by graphs, beside the bytes that a
// step must move.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "kernels/cuda/cuda_ops.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"

namespace verbatim::cuda {

struct DecodeShape {
    int64_t batch = 1;
    int32_t context = 128;  // tokens of every sequence before the first step that is timed
};
struct DecodeConfig {
    std::vector<DecodeShape> shapes = {{1, 128}, {8, 128}, {32, 128}, {1, 4096}, {8, 4096}, {1, 32768}};
    int num_steps = 21;
    int64_t prefill_rows = 2048;  // of a step, at most
    double copy_bytes_per_s = 0;  // that the device's memory gives; 0: unknown
    uint64_t seed = 1;            // of the prompts
};

// A line on stdout per shape: the median of its steps. An error is the device's.
Status measure_decode(Device& device, const reference::Model& model, const std::string& model_name,
                      reference::Profile profile, const DecodeConfig& config);

}  // namespace verbatim::cuda
