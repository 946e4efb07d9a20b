#include "kernels/cuda/cuda_executor.h"

namespace verbatim::cuda {

CudaExecutor::CudaExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, Device& device,
                           const PoolSizes& pools, reference::Profile profile, int32_t num_threads)
    : PooledExecutor(config, reference::state_tensors(config), pools, profile),
      model_(config, weights),
      backend_(model_, tensors(), device,
               {pools.block_size, tables().config().num_blocks, tables().config().num_state_rows, pools.max_log_tokens},
               profile, num_threads) {}

}  // namespace verbatim::cuda
