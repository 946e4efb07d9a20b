// tests/benchmarks/device_copy.h: what a device's memory gives: the copy that every other figure is held against.
#pragma once

#include <cstddef>
#include <string>

namespace verbatim::cuda {

// Seconds of a kernel that copies `bytes` (a multiple of 16) from one array to another, the best of a few; twice as
// many bytes move. Returns CUDA's own words when it fails, else nothing.
std::string time_device_copy(size_t bytes, double& seconds);

}  // namespace verbatim::cuda
