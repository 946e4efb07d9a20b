// simulator/device.h: owns the roofline parameters of one GPU. A device file (simulator/devices/) has these values and
// the source of each.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "simulator/step_times.h"

namespace verbatim {

// More tokens in a step need more workspace (ModelShape::activation_bytes_per_token).
inline constexpr int64_t kWorkspaceTokens = 8192;

struct Device {
    std::string name;
    int64_t memory_bytes = 0;
    double memory_bytes_per_s = 0;
    double bf16_flops = 0;  // operations per second; a fused multiply-add counts as two
    double fp8_flops = 0;   // likewise; 0: it has no such units
    double fp4_flops = 0;
    double memory_efficiency = 1;     // share of memory_bytes_per_s that kernels achieve
    double flops_efficiency = 1;      // share of the peak that kernels achieve, in every format
    double kernel_ns = 0;             // fixed time per kernel
    double step_overhead_ns = 0;      // host time per step: scheduling, launching, sampling
    double sequence_overhead_ns = 0;  // and per sequence in it: block tables, detokenizing, streaming
    // A kernel that is known by its roofline alone takes between this many times the roofline's time.
    double roofline_fast = 1;
    double roofline_slow = 1;
    // Between GPUs, per GPU and direction; 0: unknown. A node's GPUs are linked, nodes by the network.
    double link_bytes_per_s = 0;
    double link_latency_ns = 0;  // of a message between two GPUs
    double network_bytes_per_s = 0;
    int32_t node_gpus = 1;
    double power_w = 0;           // of the board; 0: unknown
    int64_t workspace_bytes = 0;  // not available for weights and caches, with steps of kWorkspaceTokens at most
    std::string tables;           // measured kernels: path prefix of the tables, relative to the device file; "": none
    StepTimes steps;              // measured whole steps of one model (verbatim calibrate); empty: none
    std::map<std::string, std::string> sources;  // source of each value
};

}  // namespace verbatim
