#include "kernels/cpu/cpu_executor.h"

#include <utility>

#include "engine/base/check.h"

namespace verbatim::cpu {

using reference::ModelConfig;

WeightFormat format_of(const CpuExecutorConfig& cpu) {
    if (cpu.profile == Profile::kExactFp8) return WeightFormat::kFp8Blocks;
    return cpu.profile == Profile::kExactInt8 ? WeightFormat::kInt8Blocks : cpu.weights;
}

namespace {

PackedWeights pack(const ModelConfig& config, const reference::ModelWeights& weights, const CpuExecutorConfig& cpu) {
    reference::WorkerPool pool(cpu.num_threads);
    return {config, weights, pool, format_of(cpu)};
}

}  // namespace

PooledExecutor::UnitSizes CpuExecutor::unit_sizes(const ModelConfig& config, int32_t block_size) {
    const reference::StateTensors tensors = reference::state_tensors(config);
    return {{PagedKv::block_bytes(tensors, block_size), kArenaAlignment},
            {StateRows::row_bytes(tensors), kArenaAlignment}};
}

CpuExecutor::CpuExecutor(const ModelConfig& config, const reference::ModelWeights& weights, CpuExecutorConfig cpu)
    : CpuExecutor(config, weights, cpu, pack(config, weights, cpu)) {}

CpuExecutor::CpuExecutor(const ModelConfig& config, const reference::ModelWeights& weights, CpuExecutorConfig cpu,
                         PackedWeights packed)
    : PooledExecutor(config, reference::state_tensors(config), {cpu.pools, cpu.max_log_tokens, cpu.budget},
                     unit_sizes(config, cpu.pools.block_size), cpu.profile),
      choice_(matmul_choice(cpu.isa, cpu.profile)),
      model_(config, weights),
      arena_(places()),
      kv_(tensors(), cpu.pools.block_size, arena_.units(places(), UnitKind::kBlock)),
      states_(tensors(), arena_.units(places(), UnitKind::kRow)),
      log_(config, cpu.max_log_tokens),
      pool_(cpu.num_threads),
      weights_(std::move(packed)),
      backend_(model_, weights_, choice_, {kv_, states_, log_, &arena_}, pool_),
      ordinary_profile_(cpu.ordinary_profile),
      max_joined_rows_(cpu.max_joined_rows) {
    CHECK(weights_.format() == format_of(cpu), "weights packed in another format than the executor's");
    CHECK(profile() == Profile::kFast || cpu.weights == WeightFormat::kBf16, "the {} profile has bf16 weights",
          name(profile()));
    CHECK(!weights.quantised || (takes_blocks(profile()) && !ordinary_profile_),
          "weights in blocks are computed in exact, exact.int8 or exact.fp8, all requests alike");
    CHECK(profile() != Profile::kExactInt8 || weights.quantised, "exact.int8 is of weights in blocks");
    CHECK(profile() != Profile::kExactFp8 || weights.has_fp8_activations,
          "exact.fp8 is of recipes with FP8 activations");
    if (!ordinary_profile_) return;
    ordinary_choice_ = matmul_choice(cpu.isa, *ordinary_profile_);
    ordinary_backend_.emplace(model_, weights_, ordinary_choice_, CpuMemory{kv_, states_, log_, &arena_}, pool_);
}

std::string CpuExecutor::numerics_id() const {
    return std::string(reference::numerics_id(profile(), model_.weights().quantised)) +
           (weights_.format() == WeightFormat::kInt8 ? " int8" : "");
}

std::string CpuExecutor::ordinary_numerics_id() const {
    return ordinary_profile_ ? std::string(reference::numerics_id(*ordinary_profile_)) : numerics_id();
}

TokenId CpuExecutor::draw_token(const reference::SamplingArgs& args) {
    return sample(args, *choice_.many.ops->rows, sampling_);
}

}  // namespace verbatim::cpu
