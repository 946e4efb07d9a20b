// kernels/cuda/launch_on.h: what every operation's launch needs of a machine (kernels/cuda/device_on.h): views of rows,
// grids.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/rows.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

template <typename Machine>
class LaunchOn : public Machine {
public:
    using Machine::launch;
    using Machine::Machine;
    using Machine::view;

protected:
    static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }
    static simt::Dim3 grid(int64_t x, int64_t y = 1, int64_t z = 1) {
        return {static_cast<int32_t>(x), static_cast<int32_t>(y), static_cast<int32_t>(z)};
    }
    static DeviceRows<const float> read_only(Floats x) { return {x.data, x.num_rows, x.width, x.stride}; }
    template <typename T>
    static const T* read_only(T* data) {
        return data;
    }

    template <typename T>
    KernelRows<T> rows(DeviceRows<T> x) {
        const int64_t count = x.num_rows == 0 ? 0 : (x.num_rows - 1) * x.stride + x.width;
        return {view(x.data, count), x.num_rows, x.width, x.stride};
    }
    KernelPairs pairs_of(Floats x, uint32_t* pairs) {
        return {view(pairs, x.num_rows * row_pairs_of(x.width)), row_pairs_of(x.width)};
    }
    // Of 256 threads each.
    [[nodiscard]] int64_t num_processors() const { return std::max<int64_t>(this->resident_blocks() / 8, 1); }
    // Blocks of 64 threads along the pairs of each of x's rows, with those that pad it.
    template <typename Kernel>
    void launch_pairs(const char* name, Floats x, const Kernel& kernel) {
        launch(name, grid(x.num_rows, parts(row_pairs_of(x.width), kRowThreads)), {kRowThreads}, kernel);
    }
    // Blocks of 64 threads along each of x's rows.
    template <typename Kernel>
    void launch_rows(const char* name, Floats x, const Kernel& kernel) {
        launch(name, grid(x.num_rows, parts(x.width, kRowThreads)), {kRowThreads}, kernel);
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
