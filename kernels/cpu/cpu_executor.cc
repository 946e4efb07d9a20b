#include "kernels/cpu/cpu_executor.h"

#include "engine/base/check.h"

namespace verbatim::cpu {

using reference::ModelConfig;

CpuExecutor::CpuExecutor(const ModelConfig& config, const reference::ModelWeights& weights, CpuExecutorConfig cpu)
    : PooledExecutor(config, {cpu.block_size, cpu.num_blocks, cpu.num_state_rows}, cpu.profile),
      format_(cpu.weights),
      choice_(matmul_choice(cpu.isa, cpu.profile)),
      model_(config, weights),
      kv_(config, cpu.block_size, tables().config().num_blocks),
      states_(config, tables().config().num_state_rows),
      pool_(cpu.num_threads),
      weights_(config, weights, pool_, cpu.weights),
      backend_(model_, weights_, choice_, kv_, states_, pool_) {
    CHECK(profile() == Profile::kFast || format_ == WeightFormat::kBf16, "the {} profile has bf16 weights",
          name(profile()));
}

std::string CpuExecutor::numerics_id() const {
    return NumericExecutor::numerics_id() + (format_ == WeightFormat::kInt8 ? " int8" : "");
}

TokenId CpuExecutor::draw_token(const reference::SamplingArgs& args) const {
    return sample(args, *choice_.many->rows, sampling_);
}

}  // namespace verbatim::cpu
