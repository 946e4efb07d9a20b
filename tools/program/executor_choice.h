// tools/program/executor_choice.h: executors by the names that --executor and --beside take, in the profile of
// --profile.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "engine/cache/budget.h"
#include "engine/cache/cache.h"
#include "engine/pool_sizes.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/simt/emulator.h"
#include "reference/model/weights.h"
#include "reference/numeric_executor.h"
#include "reference/numerics/profile.h"

namespace verbatim::tools {

// "cpu", "reference", "cuda", "cuda-emulated".
std::span<const std::string_view> executor_names();

struct ExecutorOptions {
    PoolSizes pools;             // those that the model does not need are not made
    int32_t max_log_tokens = 0;  // of a sequence: so many drafts at once; unused by a model without state
    int32_t num_threads = 1;
    uint64_t seed = 0;            // of the order in which emulated threads run
    std::optional<cpu::Isa> isa;  // of "cpu"; none: the best here
    // Of "cpu", for a checkpoint's packed weights (kernels/cpu/packed_file.h); empty: none is kept.
    std::string packed_file;
    reference::Profile profile = reference::Profile::kExact;
    cpu::WeightFormat weights = cpu::WeightFormat::kBf16;  // of "cpu"
    std::optional<reference::Profile> ordinary_profile;  // of "cpu": ordinary requests have an arithmetic of their own
};

// What a block of so many tokens and a state row of the model weigh.
[[nodiscard]] UnitBytes unit_bytes(const reference::ModelGeometry& geometry, int32_t block_size);

// A cache of these pools for a model of that shape: one without KV, or without state, has none of it.
[[nodiscard]] CacheConfig cache_config(const reference::ModelGeometry& geometry, const PoolSizes& pools);

// Whether pools of this size have room in this machine's memory, if nothing else had. Their bytes are touched as they
// are used; what counts units is made at once. Error: kMachine.
Status fit_into_memory(const PoolSizes& pools, const UnitBytes& unit);

// An executor with what it stands on.
struct ChosenExecutor {
    std::unique_ptr<simt::Emulator> emulator;
    std::unique_ptr<cuda::Device> device;
    std::unique_ptr<reference::NumericExecutor> executor;
};

// What the executor of that name computes in unless it is told: exact, but tensor.sm90 on a device that has it. Error:
// the machine lacks what it stands on.
Result<reference::Profile> default_profile(const std::string& name);

// Whether the executor of that name computes in that profile.
Status computes_in(const std::string& name, reference::Profile profile);
// In which the other side of a comparison computes: the same, or exact where the profile promises no bits.
constexpr reference::Profile witness_profile(reference::Profile profile) {
    return profile == reference::Profile::kFast ? reference::Profile::kExact : profile;
}

// Whether the executor of that name has an arithmetic of its own for ordinary requests (--policy).
Status has_two_arithmetics(const std::string& name);

// What a record of such a run names: what the options say, or where bits depend on it and they do not, the one that is
// fastest here. Whoever records computes with that one alone. None: bits do not depend on it.
[[nodiscard]] std::optional<cpu::Isa> isa_to_record(const std::string& name, const ExecutorOptions& options);

// Borrows the model. Errors: no such name, no such device, a model or a profile that it cannot take.
Result<ChosenExecutor> choose_executor(const std::string& name, const ExecutorOptions& options,
                                       const reference::Model& model);

}  // namespace verbatim::tools
