#include "kernels/cuda/cuda_executor.h"

namespace verbatim::cuda {

CudaExecutor::CudaExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, Device& device,
                           const PoolSizes& pools, reference::Profile profile)
    : PooledExecutor(config, pools, profile),
      model_(config, weights),
      backend_(model_, device, {pools.block_size, tables().config().num_blocks, tables().config().num_state_rows},
               profile) {}

}  // namespace verbatim::cuda
