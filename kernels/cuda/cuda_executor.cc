#include "kernels/cuda/cuda_executor.h"

namespace verbatim::cuda {

CudaExecutor::CudaExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, Device& device,
                           const PooledExecutorConfig& pooled, reference::Profile profile, int32_t num_threads)
    : PooledExecutor(config, reference::state_tensors(config), pooled,
                     {block_size_of(config, pooled.pools.block_size), row_size_of(reference::state_tensors(config))},
                     profile),
      model_(config, weights),
      backend_(model_, tensors(), device, {tables().config().pools, pooled.max_log_tokens}, places(), profile,
               num_threads) {}

std::string CudaExecutor::numerics_id() const {
    return std::string(reference::numerics_id(profile(), model_.weights().quantised));
}

}  // namespace verbatim::cuda
