// kernels/cuda/ops/conv_steps.h: Mamba-2's convolution and time steps side by side in one launch: neither reads what
// the other writes.
#pragma once

#include "kernels/cuda/ops/conv.h"
#include "kernels/cuda/ops/scan.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// The convolution's blocks, and behind them, in y, blocks that take heads for channels.
template <typename ConvKernel>
struct WithSteps {
    static constexpr int kThreadRows = ConvKernel::kThreadRows;
    ConvKernel conv;
    TimeSteps steps;
    int32_t channel_blocks;
    SIMT_FUNCTION void operator()() const {
        if (simt::block_y() < channel_blocks) return conv();
        const int64_t head = int64_t{simt::block_y() - channel_blocks} * simt::threads_x() + simt::thread_x();
        const int64_t first = (int64_t{simt::block_x()} * kConvGroups + simt::thread_y()) * kThreadRows;
        const int64_t end = first + kThreadRows;
        for (int64_t row = first; row < end && row < steps.raw.num_rows; ++row) steps.compute(row, head);
    }
};
struct ConvAndSteps : WithSteps<Conv> {};
struct ConvStepAndSteps : WithSteps<ConvStep> {};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
