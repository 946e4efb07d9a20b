// tests/properties/numeric_scene.h: an engine over the CPU executor or an emulated device and a small random model,
// with the check that ends every property: all logits, tokens and heads equal the uncached reference's, bit for bit.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/drafting/adversary_drafter.h"
#include "kernels/cpu/cpu_executor.h"
#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "reference/model/random_model.h"
#include "reference/reference_model.h"
#include "tests/reference/quantised_model.h"
#include "tests/support/delayed_executor.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {

// Keeps every row of logits that a token was sampled from, or that was scored.
class LogitTap final : public WrappingExecutor {
public:
    explicit LogitTap(reference::NumericExecutor& inner) : WrappingExecutor(inner), inner_(inner) {}

    Status execute(const StepPlan& plan, StepResult& result) override;
    [[nodiscard]] bool complete_masks_with(std::function<void()> complete) override {
        return inner().complete_masks_with(std::move(complete));
    }

    using Place = std::pair<RequestId, int64_t>;  // and the position of the sampled token
    [[nodiscard]] const std::map<Place, std::vector<float>>& rows() const { return rows_; }
    // How often a position was scored, by request and the position behind it.
    [[nodiscard]] const std::map<Place, int>& scored() const { return scored_; }

private:
    void keep(const ScheduledSequence& sequence, int32_t row, int64_t position);
    reference::NumericExecutor& inner_;
    std::map<Place, std::vector<float>> rows_;
    std::map<Place, int> scored_;
};

// The executor. With options.verify_tokens the CPU runs ordinary sequences in the fast profile, in a separate batch.
// kCpuInt8: the profile exact.int8, the model's matrices in Q8_0, INT4, Q4_0 and INT8 in turn. kCpuMixed: exact, the
// matrices in the types of Q4_K_M files and in float4. kCpuMixedInt8: these in exact.int8. kCpuPortable: loops without
// vectors. kEmulatedCudaInt8: as kCpuInt8. kCpuFp8: exact.fp8, the matrices in FP8 with activations by the row,
// in groups, under static scales and in bf16, and in bf16. kEmulatedCudaFp8: as kCpuFp8.
enum class Machine : uint8_t {
    kCpu,
    kCpuInt8,
    kCpuMixed,
    kCpuMixedInt8,
    kCpuFp8,
    kCpuPortable,
    kEmulatedCuda,
    kEmulatedCudaInt8,
    kEmulatedCudaFp8
};

// The objects that the engine borrows, made before it.
struct NumericParts {
    NumericParts(const reference::ModelConfig& config, uint64_t seed, const SceneOptions& options, int32_t num_threads,
                 Machine machine);
    reference::Model model;
    std::optional<QuantisedMatrices> quantised;  // of machines with types
    reference::ReferenceModel reference;
    SceneOptions pools;  // without those that the model does not need
    simt::Emulator emulator;
    std::unique_ptr<cuda::Device> device;  // of emulated CUDA
    std::unique_ptr<PooledExecutor> computing;
    LogitTap tap;
    DelayedExecutor executor;  // materialises options.lag_steps late
};

// The uncached reference's tokens for a request, as far ahead as needed.
class ReferenceOracle {
public:
    explicit ReferenceOracle(reference::ReferenceModel& model) : model_(model) {}
    [[nodiscard]] TokenId token(const DraftJob& job, const SamplingParams& sampling, int64_t ahead);

private:
    struct Run {
        explicit Run(reference::ReferenceModel& model) : sequence(model) {}
        reference::ReferenceSequence sequence;
        std::vector<TokenId> tokens;  // prompt and output
    };
    reference::ReferenceModel& model_;
    std::map<RequestId, Run> runs_;
};

class NumericScene : public NumericParts, public EngineRig {
public:
    // `seed` determines the model and its family. With options.max_window > 1 an adversary drafts.
    NumericScene(uint64_t seed, const SceneOptions& options, int32_t num_threads = 1, Machine machine = Machine::kCpu);
    NumericScene(const reference::ModelConfig& config, uint64_t seed, const SceneOptions& options,
                 int32_t num_threads = 1, Machine machine = Machine::kCpu);

    // `count` tokens of the vocabulary.
    [[nodiscard]] std::vector<TokenId> text(uint64_t seed, int64_t count) const;
    [[nodiscard]] bool has_kv() const { return pools.num_blocks > 0; }
    [[nodiscard]] bool has_state() const { return pools.num_state_rows > 0; }

    // Compares every row of logits, every sampled token and every head in the cache with the uncached reference: empty,
    // or the first difference. An error too when there was nothing to compare.
    [[nodiscard]] std::string first_difference();

private:
    ReferenceOracle oracle_;
    AdversaryDrafter adversary_;
    [[nodiscard]] std::string compare_request(RequestId request, const Asked& asked);
    [[nodiscard]] std::string compare_scored(RequestId request, const Asked& asked);
    [[nodiscard]] std::string compare_row(RequestId request, int64_t position, std::span<const float> wanted) const;
    [[nodiscard]] std::string compare_heads();
};

}  // namespace verbatim::tests
