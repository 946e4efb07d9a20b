// kernels/cuda/cuda_executor.h: every profile on a Device: paged KV, pooled state rows, every sequence of a step in one
// batch.
//
//   X1  exact, tensor.sm90: logits, tokens and heads are those of the uncached reference of the profile, bit for bit,
//       for any plan that the engine may make
//   X2  a device's error is the step's error, and with it the slots are forgotten; the conversations are not
//   X3  tokens are drawn on the device; logits come to the host when somebody asks
#pragma once

#include "kernels/cuda/cuda_backend.h"
#include "kernels/kernel_model.h"
#include "kernels/pooled_executor.h"

namespace verbatim::cuda {

class CudaExecutor final : public PooledExecutor {
public:
    // Borrows config, weights and device. REQUIRES: unsupported(config, pooled.pools, device.limits()) is empty, the
    // device computes in the profile. num_threads: that pack the weights.
    CudaExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, Device& device,
                 const PooledExecutorConfig& pooled, reference::Profile profile = reference::Profile::kExact,
                 int32_t num_threads = 1);

protected:
    Status computed() override { return backend_.status(); }
    [[nodiscard]] PooledBackend& backend() override { return backend_; }

private:
    KernelModel model_;
    CudaBackend backend_;
};

}  // namespace verbatim::cuda
