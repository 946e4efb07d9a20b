// kernels/cpu/cpu_executor.h: owns an executor on the CPU: every profile, paged KV, pooled state rows, all sequences of
// a step in one batch, threads.
//
//   X1  exact, tensor.sm90: logits, tokens and heads equal the uncached reference's, bit for bit, for every plan that
//       the engine may make, every block size, number of threads and instruction set
//   X2  ordinary requests are computed in the ordinary profile if there is one; the other requests keep their bits
//   X3  a step allocates nothing if a step of its size ran before
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
    PoolSizes pools;             // pools that the model does not use are not allocated
    int32_t max_log_tokens = 0;  // drafts per sequence and step; unused by a model without state
    PoolBudget budget = {};      // that both pools share (kernels/unit_places.h)
    int32_t num_threads = 1;
    std::optional<Isa> isa = {};  // none: the processor's best
    Profile profile = Profile::kExact;
    std::optional<Profile> ordinary_profile = {};  // for ordinary requests; none: as for all others
    // Ordinary rows join the deterministic batch in steps of up to this many rows: on fewer rows a second pass over the
    // weights costs more than the fast profile saves (docs/measurements/windows.md).
    int64_t max_joined_rows = 256;
    WeightFormat weights = WeightFormat::kBf16;  // REQUIRES: kBf16 unless the profile is kFast
};

// Of the packed weights that it wants.
[[nodiscard]] WeightFormat format_of(const CpuExecutorConfig& cpu);

class CpuExecutor final : public PooledExecutor {
public:
    // Borrows config and weights.
    CpuExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, CpuExecutorConfig cpu);
    // With weights packed earlier. REQUIRES: they have the format that `cpu` names.
    CpuExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, CpuExecutorConfig cpu,
                PackedWeights packed);

    // The profile's, or "fast/1 int8": heads with one id never attach to requests with another.
    [[nodiscard]] std::string numerics_id() const override;
    [[nodiscard]] std::string ordinary_numerics_id() const override;
    // The cache's memory, as the system counts it.
    [[nodiscard]] int64_t resident_bytes() const { return arena_.resident_bytes(); }
    // For everything but matmuls of few rows.
    [[nodiscard]] Isa isa() const { return choice_.many.ops->isa; }

protected:
    [[nodiscard]] PooledBackend& backend() override { return backend_; }
    [[nodiscard]] int64_t max_joined_rows() const override { return max_joined_rows_; }
    [[nodiscard]] PooledBackend* ordinary_backend() override {
        return ordinary_backend_ ? &*ordinary_backend_ : nullptr;
    }
    [[nodiscard]] TokenId draw_token(const reference::SamplingArgs& args) override;

private:
    [[nodiscard]] static UnitSizes unit_sizes(const reference::ModelConfig& config, int32_t block_size);

    MatmulChoice choice_;
    KernelModel model_;
    Arena arena_;
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
