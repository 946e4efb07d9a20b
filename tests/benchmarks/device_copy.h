// tests/benchmarks/device_copy.h: a device's bandwidth baselines: its copy engine, with which every other figure is
// compared, a copy kernel, and a library's matmul if one is installed.
#pragma once

#include <cstddef>
#include <string>

namespace verbatim::cuda {

// Medians; the bytes moved are twice the bytes copied.
struct CopySeconds {
    double own = 0;     // cudaMemcpyAsync from one array of the device to another
    double kernel = 0;  // a kernel that does the same
};
// `bytes`: a multiple of 16. Returns CUDA's error text, or an empty text.
std::string time_device_copy(size_t bytes, CopySeconds& seconds);

// bf16 [rows, k] by [outputs, k] transposed, sums and results in binary32, of random numbers; the library chooses the
// order of sums.
struct GemmShape {
    int rows, outputs, k;
};
// Median seconds of cuBLAS, loaded at the call. Returns the reason for a failure, or an empty text.
std::string time_library_gemm(const GemmShape& shape, double& seconds);

}  // namespace verbatim::cuda
