// simulator/device.h: owns the roofline parameters of one GPU. A device file (simulator/devices/) has these values and
// the source of each.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "simulator/step_times.h"

namespace verbatim {

struct Device {
    std::string name;
    int64_t memory_bytes = 0;
    double memory_bytes_per_s = 0;
    double bf16_flops = 0;         // operations per second; a fused multiply-add counts as two
    double memory_efficiency = 1;  // share of memory_bytes_per_s that kernels achieve
    double flops_efficiency = 1;   // share of bf16_flops that kernels achieve
    double kernel_ns = 0;          // fixed time per kernel
    double step_overhead_ns = 0;   // host time per step: scheduling, launching, sampling
    int64_t workspace_bytes = 0;   // not available for weights and caches
    std::string tables;            // measured kernels: path prefix of the tables, relative to the device file; "": none
    StepTimes steps;               // measured whole steps of one model (verbatim calibrate); empty: none
    std::map<std::string, std::string> sources;  // source of each value
};

}  // namespace verbatim
