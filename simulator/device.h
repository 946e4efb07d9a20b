// simulator/device.h: one GPU as a roofline sees it. A device file (simulator/devices/) has these values and says where
// each of them comes from.
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
    double bf16_flops = 0;         // operations per second, a fused multiply-add being two
    double memory_efficiency = 1;  // share of memory_bytes_per_s that kernels reach
    double flops_efficiency = 1;   // share of bf16_flops that kernels reach
    double kernel_ns = 0;          // that a kernel takes beside its work
    double step_overhead_ns = 0;   // of the host, per step: scheduling, launching, sampling
    int64_t workspace_bytes = 0;   // not there for weights and caches
    std::string tables;            // measured kernels: files that begin so, beside the device file; "": none
    StepTimes steps;               // measured whole steps of one model (verbatim calibrate); empty: none
    std::map<std::string, std::string> sources;  // per value: where it comes from
};

}  // namespace verbatim
