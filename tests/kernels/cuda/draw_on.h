// tests/kernels/cuda/draw_on.h: sampling on a device, without an executor.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"
#include "tests/kernels/sampling_cases.h"

namespace verbatim::cuda {

inline DeviceDraw describe(const tests::SamplingCase& one, std::vector<DeviceTokenCount>& counts) {
    std::map<int32_t, int32_t> times;
    for (const int32_t id : one.prompt()) times[id];
    for (const int32_t id : one.generated()) ++times[id];
    const auto first = static_cast<int32_t>(counts.size());
    for (const auto& [id, count] : times) counts.push_back({id, count});
    return {.seed = one.params.seed,
            .position = one.position,
            .temperature = one.params.temperature,
            .top_p = one.params.top_p,
            .top_k = one.params.top_k,
            .repetition = one.params.repetition_penalty,
            .presence = one.params.presence_penalty,
            .frequency = one.params.frequency_penalty,
            .first_count = first,
            .num_counts = static_cast<int32_t>(times.size())};
}

// The tokens that a device samples for rows of one width.
inline std::vector<int32_t> draw_on(Device& device, const std::vector<tests::SamplingCase>& cases) {
    const auto num_rows = static_cast<int64_t>(cases.size());
    const auto width = static_cast<int64_t>(cases.front().logits.size());
    std::vector<float> logits;
    std::vector<DeviceDraw> draws;
    std::vector<DeviceTokenCount> counts(1);  // one that belongs to no sequence
    for (const tests::SamplingCase& one : cases) {
        logits.insert(logits.end(), one.logits.begin(), one.logits.end());
        draws.push_back(describe(one, counts));
    }
    const DeviceArray<float> device_logits(device, std::span<const float>(logits));
    const DeviceArray<DeviceDraw> device_draws(device, std::span<const DeviceDraw>(draws));
    const DeviceArray<DeviceTokenCount> device_counts(device, std::span<const DeviceTokenCount>(counts));
    const DeviceArray<int32_t> drawn(device, num_rows);
    const DeviceArray<float> scaled(device, num_rows * width);
    const DeviceArray<float> scores(device, num_rows * draw_parts(width));
    const DeviceArray<int32_t> ids(device, num_rows * draw_parts(width));
    const DeviceArray<uint64_t> lowest(device, num_rows);
    device.draw({.draws = device_draws.data(),
                 .counts = device_counts.data(),
                 .drawn = drawn.data(),
                 .max_counts = static_cast<int64_t>(counts.size())},
                {device_logits.data(), num_rows, width, width},
                {scaled.data(), lowest.data(), scores.data(), ids.data()});
    std::vector<int32_t> tokens(cases.size());
    drawn.download(0, tokens);
    return tokens;
}

}  // namespace verbatim::cuda
