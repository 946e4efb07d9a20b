#include "kernels/executors/executor_choice.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_executor.h"
#include "kernels/cpu/packed_file.h"
#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/tensor_self_test.h"
#include "reference/model/integer_blocks.h"
#include "reference/reference_executor.h"
#if defined(VERBATIM_HAS_CUDA)
#include "kernels/cuda/gpu_device.h"
#endif

namespace verbatim::executors {
namespace {

using reference::Profile;

constexpr std::array<std::string_view, 4> kExecutorNames = {"cpu", "reference", "cuda", "cuda-emulated"};

Result<std::unique_ptr<cpu::CpuExecutor>> make_cpu_executor(const ExecutorOptions& options,
                                                            const reference::Model& model) {
    const cpu::CpuExecutorConfig config{.pools = options.pools,
                                        .max_log_tokens = options.max_log_tokens,
                                        .budget = options.budget,
                                        .num_threads = options.num_threads,
                                        .isa = options.isa,
                                        .profile = options.profile,
                                        .ordinary_profile = options.ordinary_profile,
                                        .weights = options.weights};
    if (options.packed_file.empty()) return std::make_unique<cpu::CpuExecutor>(model.config, model.weights, config);
    reference::WorkerPool threads(options.num_threads);
    ASSIGN_OR_RETURN(cpu::KeptWeights kept, cpu::keep_packed(options.packed_file, model, threads, format_of(config)));
    fmt::print(stderr, "verbatim: packed weights {} {}\n", kept.were_kept ? "read from" : "written to",
               options.packed_file);
    return std::make_unique<cpu::CpuExecutor>(model.config, model.weights, config, std::move(kept.weights));
}

constexpr std::string_view kQuantised = "the model has quantised weights";

// Whether the options are of weights such as the model's.
Status fits_weights(const ExecutorOptions& options, const reference::Model& model) {
    RETURN_IF_ERROR(takes_weights(options.profile, model));
    if (!model.weights.quantised) return {};
    if (options.ordinary_profile) return error("--policy: {}, which have one arithmetic for all requests", kQuantised);
    if (options.weights != cpu::WeightFormat::kBf16) return error("--weights int8: {} already", kQuantised);
    return {};
}

// Of matrices in blocks whose groups are neighbours; others are computed in exact.int8 as in exact.
bool has_integers(const reference::Model& model) {
    return std::ranges::any_of(reference::matrices_of(model.config), [&](reference::MatrixId id) {
        const reference::MatrixView weight = reference::linear_of(model.weights, id).weight;
        return weight.is_quantised() && reference::find_integer_format(*weight.format) != nullptr;
    });
}

std::vector<Profile> profiles_of(const std::string& name) {
    if (name == "reference") return {Profile::kExact, Profile::kTensorSm90, Profile::kExactInt8, Profile::kExactFp8};
    return {reference::kProfiles.begin(), reference::kProfiles.end()};
}

Result<std::unique_ptr<cuda::Device>> gpu() {
#if defined(VERBATIM_HAS_CUDA)
    return cuda::make_gpu_device({.resets_after_errors = true});
#else
    return error(
        "cuda: this program was built without CUDA: nvcc or a GPU was not found then; in a new build folder, "
        "VERBATIM_CUDA=ON in the environment asks for nvcc alone; cuda-emulated runs everywhere");
#endif
}

Status run_on(ChosenExecutor& chosen, const ExecutorOptions& options, const reference::Model& model) {
    const PooledExecutorConfig pooled{options.pools, options.max_log_tokens, options.budget};
    auto problems = cuda::unsupported(model.config, options.pools, chosen.device->limits());
    for (std::string& problem : cuda::unsupported_weights(model.config, model.weights))
        problems.push_back(std::move(problem));
    if (problems.empty() && options.budget.total_bytes > 0)
        problems = cuda::unsupported_budget(model.config, pooled, chosen.device->limits());
    if (!problems.empty()) return error("{}", fmt::join(problems, "; "));
    RETURN_IF_ERROR(chosen.device->computes_in(options.profile));
    chosen.executor = std::make_unique<cuda::CudaExecutor>(model.config, model.weights, *chosen.device, pooled,
                                                           options.profile, options.num_threads);
    Status made = chosen.device->synchronize();
    if (!made) made.error().message += ": is there room for the weights and for the cache that the flags ask for?";
    return made;
}

}  // namespace

UnitBytes unit_bytes(const reference::ModelGeometry& geometry, int32_t block_size) {
    return {geometry.kv_bytes_per_token * block_size, geometry.state_bytes_per_row, block_size};
}

CacheConfig cache_config(const reference::ModelGeometry& geometry, const PoolSizes& pools) {
    CacheConfig cache;
    cache.has_kv = geometry.kv_bytes_per_token > 0;
    cache.has_state = geometry.state_bytes_per_row > 0;
    cache.pools = pools;
    if (!cache.has_kv) cache.pools.num_blocks = 0;
    if (!cache.has_state) cache.pools.num_state_rows = 0;
    return cache;
}

Status fit_into_memory(const PoolSizes& pools, const UnitBytes& unit) {
    return fit_into_memory(static_cast<double>(unit.kv_block) * pools.num_blocks +
                           static_cast<double>(unit.state_row) * pools.num_state_rows);
}

Status fit_into_memory(double bytes) {
    const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    constexpr double kGiB = 1 << 30;
    if (bytes <= memory) return {};
    return tl::unexpected(Error{fmt::format("{:.1f} GiB of KV and states are more than the {:.1f} GiB of this machine: "
                                            "ask for a smaller cache",
                                            bytes / kGiB, memory / kGiB),
                                ErrorKind::kMachine});
}

std::span<const std::string_view> executor_names() { return kExecutorNames; }

Status computes_in(const std::string& name, Profile profile) {
    const std::vector<Profile> profiles = profiles_of(name);
    if (std::ranges::count(profiles, profile) > 0) return {};
    std::vector<std::string_view> names;
    for (const Profile one : profiles) names.push_back(reference::name(one));
    return error("--profile {}: the executor {} computes in {} only", reference::name(profile), name,
                 fmt::join(names, ", "));
}

Status takes_weights(Profile profile, const reference::Model& model) {
    const reference::ModelWeights& weights = model.weights;
    if (profile == Profile::kExactInt8 && !weights.quantised)
        return error("--profile exact.int8: the model has no quantised weights, which it computes with");
    if (profile == Profile::kExactInt8 && !has_integers(model))
        return error(
            "--profile exact.int8: none of the model's weights would be multiplied as integers: exact computes it");
    if (profile == Profile::kExactFp8 && !weights.fp8_problem.empty())
        return error("--profile exact.fp8: {}", weights.fp8_problem);
    if (profile == Profile::kExactFp8 && !weights.has_fp8_activations)
        return error("--profile exact.fp8: the model has no FP8 weights whose recipe quantises activations");
    if (weights.quantised && !takes_blocks(profile))
        return error("--profile {}: {}, which are computed in exact, exact.int8 or exact.fp8", reference::name(profile),
                     kQuantised);
    return {};
}

Result<Profile> default_profile(const std::string& name) {
    if (name != "cuda") return Profile::kExact;
    ASSIGN_OR_RETURN(const auto device, gpu());
    return device->computes_in(Profile::kTensorSm90) ? Profile::kTensorSm90 : Profile::kExact;
}

Status has_two_arithmetics(const std::string& name) {
    if (name == "cpu") return {};
    return error("--policy: the executor {} has one arithmetic for all requests; cpu has two", name);
}

std::optional<cpu::Isa> isa_to_record(const std::string& name, const ExecutorOptions& options) {
    const bool is_fast = options.profile == Profile::kFast || options.ordinary_profile == Profile::kFast;
    if (options.isa || name != "cpu" || !is_fast) return options.isa;
    return cpu::matmul_choice({}, Profile::kFast).many.ops->isa;
}

Result<ChosenExecutor> choose_executor(const std::string& name, const ExecutorOptions& options,
                                       const reference::Model& model) {
    ChosenExecutor chosen;
    RETURN_IF_ERROR(computes_in(name, options.profile));
    if (options.ordinary_profile) RETURN_IF_ERROR(has_two_arithmetics(name));
    RETURN_IF_ERROR(fits_weights(options, model));
    if (name == "reference") {
        chosen.executor = std::make_unique<reference::ReferenceExecutor>(model.config, model.weights,
                                                                         options.num_threads, options.profile);
    } else if (name == "cpu") {
        ASSIGN_OR_RETURN(chosen.executor, make_cpu_executor(options, model));
    } else if (name == "cuda-emulated") {
        chosen.emulator = std::make_unique<simt::Emulator>(simt::Schedule::kRandom, options.seed);
        chosen.device =
            cuda::make_emulated_device(*chosen.emulator, {.num_self_test_tiles = cuda::kEmulatedSelfTestTiles});
        RETURN_IF_ERROR(run_on(chosen, options, model));
    } else if (name == "cuda") {
        ASSIGN_OR_RETURN(chosen.device, gpu());
        RETURN_IF_ERROR(run_on(chosen, options, model));
    } else {
        return error("no executor is called '{}': there are {}", name, fmt::join(kExecutorNames, ", "));
    }
    return chosen;
}

}  // namespace verbatim::executors
