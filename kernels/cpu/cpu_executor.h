// kernels/cpu/cpu_executor.h: every profile on the CPU: paged KV, pooled state rows, every sequence of
// a step in one batch, threads.
//
//   X1  exact, tensor.sm90: logits, tokens and heads are those of the uncached reference, bit for bit, for any plan
//       that the engine may make, any block size, number of threads and instruction set
//   X2  with an ordinary profile, ordinary requests are computed in it; the others keep their bits
//   X3  a step allocates nothing that a step of its size before it did not
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/pool_sizes.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/ops/sampling.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/paged_kv.h"
#include "kernels/cpu/state_log.h"
#include "kernels/cpu/state_rows.h"
#include "kernels/kernel_model.h"
#include "kernels/pooled_executor.h"
#include "reference/worker_pool.h"

namespace verbatim::cpu {

struct CpuExecutorConfig {
    PoolSizes pools;             // those that the model does not need are not made
    int32_t max_log_tokens = 0;  // of a sequence: so many drafts at once; unused by a model without state
    int32_t num_threads = 1;
    std::optional<Isa> isa = {};  // none: the best that this processor has
    Profile profile = Profile::kExact;
    std::optional<Profile> ordinary_profile = {};  // of ordinary requests; none: the same as of all others
    // Of a step: ordinary rows join deterministic ones. A second pass over the weights costs more than the fast profile
    // saves on fewer (docs/measurements/windows.md).
    int64_t max_joined_rows = 256;
    WeightFormat weights = WeightFormat::kBf16;  // REQUIRES: kBf16 unless the profile is kFast
};

class CpuExecutor final : public PooledExecutor {
public:
    // Borrows config and weights.
    CpuExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, CpuExecutorConfig cpu);
    // With the same weights packed before. REQUIRES: in the format that `cpu` names.
    CpuExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, CpuExecutorConfig cpu,
                PackedWeights packed);

    // The profile's, or "fast/1 int8": heads of one are never attached in another.
    [[nodiscard]] std::string numerics_id() const override;
    [[nodiscard]] std::string ordinary_numerics_id() const override;
    // Of everything but matmuls of few rows.
    [[nodiscard]] Isa isa() const { return choice_.many.ops->isa; }

protected:
    [[nodiscard]] PooledBackend& backend() override { return backend_; }
    [[nodiscard]] int64_t max_joined_rows() const override { return max_joined_rows_; }
    [[nodiscard]] PooledBackend* ordinary_backend() override {
        return ordinary_backend_ ? &*ordinary_backend_ : nullptr;
    }
    [[nodiscard]] TokenId draw_token(const reference::SamplingArgs& args) override;

private:
    MatmulChoice choice_;
    KernelModel model_;
    PagedKv kv_;
    StateRows states_;
    StateLog log_;
    reference::WorkerPool pool_;
    PackedWeights weights_;
    CpuBackend backend_;
    std::optional<Profile> ordinary_profile_;
    int64_t max_joined_rows_;
    MatmulChoice ordinary_choice_;
    std::optional<CpuBackend> ordinary_backend_;
    SamplingScratch sampling_;
};

}  // namespace verbatim::cpu
