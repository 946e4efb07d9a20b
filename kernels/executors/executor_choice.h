// kernels/executors/executor_choice.h: executors by the names of --executor and --beside, in the profile of --profile.
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
#include "kernels/simt/emulator.h"
#include "reference/model/weights.h"
#include "reference/numeric_executor.h"
#include "reference/numerics/profile.h"

namespace verbatim::executors {

// "cpu", "reference", "cuda", "cuda-emulated".
std::span<const std::string_view> executor_names();

struct ExecutorOptions {
    PoolSizes pools;             // pools that the model does not need are not allocated
    PoolBudget budget = {};      // that both pools share; none: each of them is allocated as a whole
    int32_t max_log_tokens = 0;  // of a sequence: the maximum number of drafts; unused by a model without state
    int32_t num_threads = 1;
    uint64_t seed = 0;            // of the thread order in the emulator
    std::optional<cpu::Isa> isa;  // of "cpu"; none: the best on this machine
    // Of "cpu", for a checkpoint's packed weights (kernels/cpu/packed_file.h); empty: they are not kept.
    std::string packed_file;
    reference::Profile profile = reference::Profile::kExact;
    cpu::WeightFormat weights = cpu::WeightFormat::kBf16;  // of "cpu"
    std::optional<reference::Profile> ordinary_profile;  // of "cpu": the arithmetic of ordinary requests, if it differs
};

// The bytes of a block of `block_size` tokens and of a state row of the model.
[[nodiscard]] UnitBytes unit_bytes(const reference::ModelGeometry& geometry, int32_t block_size);

// The cache for a model of that shape with these pools: a pool that the model does not use is empty.
[[nodiscard]] CacheConfig cache_config(const reference::ModelGeometry& geometry, const PoolSizes& pools);

// Whether pools of this size fit into the machine's memory, if nothing else used it. Their pages are touched on first
// use; the bookkeeping of units is allocated at once. Error: kMachine.
Status fit_into_memory(const PoolSizes& pools, const UnitBytes& unit);
Status fit_into_memory(double bytes);

// An executor with the objects that it borrows.
struct ChosenExecutor {
    std::unique_ptr<simt::Emulator> emulator;
    std::unique_ptr<cuda::Device> device;
    std::unique_ptr<reference::NumericExecutor> executor;
};

// The default profile of an executor: exact, but tensor.sm90 on a device that has it. Error: the machine lacks a
// requirement.
Result<reference::Profile> default_profile(const std::string& name);

// Whether the executor supports the profile.
Status computes_in(const std::string& name, reference::Profile profile);

// Whether the profile computes the model's weights: exact.int8 only where a matrix has integers in blocks, exact.fp8
// only where its recipe has FP8 activations that it computes, and exact any.
Status takes_weights(reference::Profile profile, const reference::Model& model);

// Whether the executor supports a separate arithmetic for ordinary requests (--policy).
Status has_two_arithmetics(const std::string& name);

// The instruction set in a record of such a run: the one in the options, or the fastest here if bits depend on it; a
// recorded run computes with that one alone. None: bits do not depend on it.
[[nodiscard]] std::optional<cpu::Isa> isa_to_record(const std::string& name, const ExecutorOptions& options);

// Borrows the model. Errors: no such name, no such device, a model or a profile that the executor does not support.
Result<ChosenExecutor> choose_executor(const std::string& name, const ExecutorOptions& options,
                                       const reference::Model& model);

}  // namespace verbatim::executors
