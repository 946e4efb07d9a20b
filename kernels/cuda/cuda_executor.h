// kernels/cuda/cuda_executor.h: owns an executor on a Device: every profile, paged KV, pooled state rows, all sequences
// of a step in one batch.
//
//   X1  exact, exact.int8, exact.fp8, tensor.sm90: logits, tokens and heads equal the profile's uncached reference bit
//       for bit, for every plan that the engine may make
//   X2  a device error is the step's error and clears the slots; conversations survive it
//   X3  tokens are drawn on the device; logits are downloaded on request only
#pragma once

#include "kernels/cuda/cuda_backend.h"
#include "kernels/kernel_model.h"
#include "kernels/pooled_executor.h"

namespace verbatim::cuda {

class CudaExecutor final : public PooledExecutor {
public:
    // Borrows config, weights and device. REQUIRES: unsupported(config, pooled.pools, device.limits()) and
    // unsupported_weights(config, weights) are empty, the device computes in the profile, which takes quantised weights
    // if there are any. num_threads: threads that pack the weights.
    CudaExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, Device& device,
                 const PooledExecutorConfig& pooled, reference::Profile profile = reference::Profile::kExact,
                 int32_t num_threads = 1);

    [[nodiscard]] std::string numerics_id() const override;

protected:
    [[nodiscard]] Status backend_status() override { return backend_.status(); }
    [[nodiscard]] PooledBackend& backend() override { return backend_; }

private:
    KernelModel model_;
    CudaBackend backend_;
};

}  // namespace verbatim::cuda
