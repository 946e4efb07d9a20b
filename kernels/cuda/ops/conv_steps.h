// kernels/cuda/ops/conv_steps.h: owns the launch of Mamba-2's convolution together with its time steps: neither reads
// what the other writes.
#pragma once

#include "kernels/cuda/ops/conv.h"
#include "kernels/cuda/ops/scan.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// The convolution's CTAs, followed in y by CTAs that take heads in place of channels.
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
