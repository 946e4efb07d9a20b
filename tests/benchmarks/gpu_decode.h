// tests/benchmarks/gpu_decode.h: decode steps of a whole model, as single launches and as graphs, against the bytes
// that a step must move.
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
    int32_t context = 128;  // tokens of every sequence before the first timed step
};
struct DecodeConfig {
    std::vector<DecodeShape> shapes = {{1, 128}, {8, 128}, {32, 128}, {1, 4096}, {8, 4096}, {1, 32768}};
    int num_steps = 21;
    int64_t prefill_rows = 2048;  // maximum per step
    double copy_bytes_per_s = 0;  // of the device's memory; 0: unknown
    uint64_t seed = 1;            // of the prompts
};

// Prints a line on stdout per shape: the median of its steps. Errors are the device's.
Status measure_decode(Device& device, const reference::Model& model, const std::string& model_name,
                      reference::Profile profile, const DecodeConfig& config);

}  // namespace verbatim::cuda
