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

struct DecodeConfig {
    std::vector<int64_t> batches = {1, 8, 32};
    int32_t context = 128;  // tokens of every sequence before the first step that is timed
    int num_steps = 20;
    double copy_bytes_per_s = 0;  // that the device's memory gives; 0: unknown
};

// A line on stdout per batch. An error is the device's.
Status measure_decode(Device& device, const reference::Model& model, const std::string& model_name,
                      reference::Profile profile, const DecodeConfig& config);

}  // namespace verbatim::cuda
