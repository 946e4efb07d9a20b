// kernels/sandbox/cuda_kernel.h: owns the launch of CUDA kernels behind kernels/sandbox/kernel.h, written in the
// vocabulary of kernels/simt/simt.h: on the emulator when g++ compiles the file, on a GPU's stream when nvcc does.
//
// Pointers in the arguments are device pointers. The host may read only sizes and scalars.
#pragma once

#include <cstdint>

#include "kernels/sandbox/kernel.h"
#include "kernels/simt/simt.h"

namespace verbatim::sandbox {
inline namespace SIMT_MACHINE {

// Elements [0, count) of device memory; null gives an empty view.
template <typename T>
simt::Global<T> view(const verbatim_run& run, T* data, int64_t count) {
    if (data == nullptr || count == 0) return {};
#if defined(__CUDACC__)
    static_cast<void>(run);
    return {data};
#else
    return simt::Global<T>(*static_cast<simt::Emulator*>(run.device), data, count);
#endif
}

// Rows of a C struct: rows[r, i] is element i of row r.
template <typename T>
struct RowsView {
    simt::Global<T> data;
    int64_t num_rows;
    int64_t width;
    int64_t stride;
    SIMT_FUNCTION int64_t at(int64_t r, int64_t i) const { return r * stride + i; }
};
template <typename T>
RowsView<T> rows_view(const verbatim_run& run, T* data, int64_t num_rows, int64_t width, int64_t stride) {
    const int64_t count = data == nullptr || num_rows == 0 ? 0 : (num_rows - 1) * stride + width;
    return {view(run, data, count), num_rows, width, stride};
}
inline RowsView<float> rows_view(const verbatim_run& run, const verbatim_floats& rows) {
    return rows_view(run, rows.data, rows.num_rows, rows.width, rows.stride);
}
inline RowsView<const float> rows_view(const verbatim_run& run, const verbatim_const_floats& rows) {
    return rows_view(run, rows.data, rows.num_rows, rows.width, rows.stride);
}

#if defined(__CUDACC__)
template <typename Kernel>
__global__ void launched(const Kernel kernel) {
    kernel();
}
#endif

// Runs kernel() in every thread of the grid.
template <typename Kernel>
void launch(const verbatim_run& run, const char* name, simt::Dim3 grid, simt::Dim3 block, const Kernel& kernel) {
#if defined(__CUDACC__)
    static_cast<void>(name);
    int shared_bytes = 0;
    if constexpr (requires { Kernel::kSharedBytes; }) {
        shared_bytes = Kernel::kSharedBytes;
        cudaFuncSetAttribute(&launched<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    }
    launched<<<dim3(grid.x, grid.y, grid.z), dim3(block.x, block.y, block.z), shared_bytes,
               static_cast<cudaStream_t>(run.device)>>>(kernel);
#else
    static_cast<simt::Emulator*>(run.device)
        ->launch(
            name, grid, block, [kernel] { kernel(); }, simt::limits_of<Kernel>());
#endif
}

// The number of blocks of `threads` that cover `count` threads, and a thread's global index.
inline int32_t blocks_for(int64_t count, int32_t threads) {
    return static_cast<int32_t>((count + threads - 1) / threads);
}
SIMT_FUNCTION int64_t global_thread() { return int64_t{simt::block_x()} * simt::threads_x() + simt::thread_x(); }
// The caller's block size, or the kernel's own.
inline int32_t block_threads(const verbatim_run& run, int32_t usual) {
    return run.block_threads > 0 ? run.block_threads : usual;
}

}  // namespace SIMT_MACHINE
}  // namespace verbatim::sandbox
