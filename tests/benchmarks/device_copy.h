// tests/benchmarks/device_copy.h: what a device gives by itself: its own copy, that every other figure is held against,
// a copy by a kernel, and a library's matmul where one is installed.
#pragma once

#include <cstddef>
#include <string>

namespace verbatim::cuda {

// Medians; twice as many bytes move as are copied.
struct CopySeconds {
    double own = 0;     // cudaMemcpyAsync from one array of the device to another
    double kernel = 0;  // a kernel that does the same
};
// `bytes`: a multiple of 16. Returns CUDA's own words when it fails, else nothing.
std::string time_device_copy(size_t bytes, CopySeconds& seconds);

// bf16 [rows, k] by [outputs, k] transposed, sums and results in binary32, of random numbers: the library adds as it
// likes.
struct GemmShape {
    int rows, outputs, k;
};
// Median seconds of cuBLAS, opened by name when it is asked for. Returns why there are none, else nothing.
std::string time_library_gemm(const GemmShape& shape, double& seconds);

}  // namespace verbatim::cuda
