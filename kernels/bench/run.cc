#include "kernels/bench/run.h"

#include <algorithm>
#include <array>
#include <memory>

#include "engine/base/check.h"
#include "kernels/bench/load.h"
#include "kernels/bench/long_context.h"
#include "kernels/bench/sequences.h"
#include "kernels/bench/throughput.h"
#include "kernels/bench/turns.h"
#include "kernels/cpu/cpu_executor.h"
#include "kernels/executors/executor_choice.h"
#include "kernels/median.h"
#include "reference/loader/model_choice.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "reference/reference_model.h"

namespace verbatim::bench {
namespace {

using reference::Model;
using reference::ModelConfig;
using reference::ModelGeometry;

constexpr int32_t kProbeRounds = 5;
constexpr std::array kProfiles = {
    BenchProfile{"exact", cpu::Profile::kExact, cpu::WeightFormat::kBf16},
    BenchProfile{"exact.int8", cpu::Profile::kExactInt8, cpu::WeightFormat::kBf16},
    BenchProfile{"exact.fp8", cpu::Profile::kExactFp8, cpu::WeightFormat::kBf16},
    BenchProfile{"fast", cpu::Profile::kFast, cpu::WeightFormat::kBf16},
    BenchProfile{"fast_int8", cpu::Profile::kFast, cpu::WeightFormat::kInt8},
};

std::vector<const BenchProfile*> profiles_of(const BenchConfig& config) {
    std::vector<const BenchProfile*> chosen;
    for (const BenchProfile& profile : kProfiles) {
        if (std::ranges::count(config.profiles, profile.name) > 0) chosen.push_back(&profile);
    }
    return chosen;
}

// Every division of the pools that the run will ask for.
std::vector<SequencePools> all_pools(const BenchConfig& config) {
    std::vector<SequencePools> all = {{.num_slots = 1, .tokens_per_slot = 16}};  // for the reference's prompt
    if (config.phases.prefill || config.phases.decode) {
        for (const int64_t context : config.contexts) {
            for (const int64_t batch : config.batches) all.push_back(throughput_pools(config, batch, context));
        }
    }
    if (config.phases.turn) {
        for (const int64_t length : config.heads) all.push_back(turn_pools(config, length));
    }
    if (config.phases.behind) {
        for (const int64_t length : config.behind) all.push_back(behind_pools(config, length));
    }
    return all;
}

int64_t longest_sequence(const BenchConfig& config) {
    int64_t longest = 0;
    for (const SequencePools& pools : all_pools(config)) longest = std::max(longest, pools.tokens_per_slot);
    return longest;
}

Result<cpu::CpuExecutorConfig> executor_config(const BenchConfig& config, const ModelGeometry& geometry) {
    int64_t num_blocks = 0;
    int64_t num_rows = 0;
    for (const SequencePools& pools : all_pools(config)) {
        num_blocks = std::max(num_blocks, pools.num_blocks(config.block_size));
        num_rows = std::max<int64_t>(num_rows, pools.num_state_rows());
    }
    const auto num_parameters = static_cast<double>(geometry.num_parameters);
    double kv = 0;
    double state = 0;
    double weights = 2 * num_parameters;  // as they are; below, as each profile packs them
    for (const BenchProfile* profile : profiles_of(config)) {
        kv += static_cast<double>(geometry.kv_bytes_per_token) * config.block_size * static_cast<double>(num_blocks);
        state += static_cast<double>(geometry.state_bytes_per_row) * static_cast<double>(num_rows);
        weights += profile->bytes_per_weight() * num_parameters;
    }
    const double available = static_cast<double>(available_memory_bytes());
    constexpr double kGiB = 1 << 30;
    if (kv + state + weights > available) {
        return error(
            "{:.1f} GiB of weights, {:.1f} of KV and {:.1f} of states are more than the {:.1f} GiB that are "
            "free: ask for smaller --contexts, --batches, --heads or --behind",
            weights / kGiB, kv / kGiB, state / kGiB, available / kGiB);
    }
    if (num_blocks > INT32_MAX) return error("{} KV blocks are too many: take a larger --block-size", num_blocks);
    return cpu::CpuExecutorConfig{.pools = {.block_size = config.block_size,
                                            .num_blocks = static_cast<int32_t>(num_blocks),
                                            .num_state_rows = static_cast<int32_t>(num_rows)},
                                  .num_threads = config.num_threads,
                                  .isa = config.isa};
}

Result<Model> make_model(const BenchConfig& config) {
    if (!reference::is_preset(config.model))
        return reference::choose_model(config.model, config.seed, {.num_threads = config.num_threads});
    ASSIGN_OR_RETURN(const ModelConfig shapes, bench_shapes(config));
    return reference::make_random_model(shapes, config.seed);
}

// A preset's shapes do not depend on how many positions it was trained for; a checkpoint keeps its word.
Status stretch_positions(const BenchConfig& config, ModelConfig& model) {
    const int64_t longest = longest_sequence(config);
    if (longest <= model.max_position_embeddings) return {};
    if (!reference::is_preset(config.model)) {
        return error(
            "{} has {} positions, the longest sequence asked for takes {}: ask for smaller --contexts, --heads or "
            "--behind",
            config.model, model.max_position_embeddings, longest);
    }
    if (longest > INT32_MAX) return error("sequences of {} tokens are too long: fewer than 2^31 wanted", longest);
    model.max_position_embeddings = static_cast<int32_t>(longest);
    return {};
}

// Compares a prompt with the uncached reference: as long as plain loops compute in a few seconds, in two chunks.
void check_with_reference(const Model& model, const BenchProfile& profile, reference::NumericExecutor& executor,
                          BenchSequences& sequences, BenchReport& report) {
    constexpr int64_t kOperations = 6'000'000'000;
    const int64_t count = std::clamp<int64_t>(kOperations / (2 * report.geometry.num_parameters), 2, 16);
    sequences.divide({.num_slots = 1, .tokens_per_slot = 16});
    const TokenSeq tokens = sequences.fresh_tokens(count);
    sequences.start(0, tokens, count);
    sequences.compute(0, count / 2, false);
    sequences.step();
    sequences.compute(0, count - count / 2, true);
    sequences.step();
    reference::ReferenceModel reference_model(model.config, model.weights, profile.profile);
    reference::ReferenceSequence reference(reference_model);
    reference.append(tokens.to_vector(), reference::LogitRows::kLast);
    const auto logits = reference.logits();
    Digester digester;
    digester.add_all(std::span<const float>(logits.row(0), static_cast<size_t>(logits.width)));
    report.reference_tokens = count;
    report.reference_wrong |=
        digester.digest() != sequences.logits_digest(0) || executor.config().vocab_size != logits.width;
}

// The mean over all matrices.
double bytes_of_weights(const Model& model, const BenchProfile& profile) {
    const auto quantised = static_cast<double>(model.report.num_quantised);
    const auto all = static_cast<double>(reference::geometry(model.config).num_parameters);
    if (!model.weights.quantised) return profile.bytes_per_weight();
    return (static_cast<double>(model.report.quantised_bytes) + (all - quantised) * 2) / all;
}

Status takes_weights(const BenchConfig& config, const Model& model) {
    for (const BenchProfile* profile : profiles_of(config))
        RETURN_IF_ERROR(executors::takes_weights(profile->profile, model));
    return {};
}

// What computes in one profile.
struct ProfileRun {
    ProfileRun(const BenchConfig& config, const BenchProfile& of, const Model& model, cpu::CpuExecutorConfig pools)
        : profile(of),
          bytes_per_weight(bytes_of_weights(model, of)),
          executor(model.config, model.weights, with_profile(pools, of)),
          sequences(executor, config.seed) {}
    static cpu::CpuExecutorConfig with_profile(cpu::CpuExecutorConfig pools, const BenchProfile& of) {
        pools.profile = of.profile;
        pools.weights = of.weights;
        return pools;
    }
    const BenchProfile& profile;
    double bytes_per_weight;
    cpu::CpuExecutor executor;
    BenchSequences sequences;
};

// The rows of a context and batch in every profile, then those of the next, and the machine between them.
void run_rows(const BenchConfig& config, std::span<const std::unique_ptr<ProfileRun>> runs, BenchReport& report) {
    MachineProbe probe(config.num_threads, static_cast<int64_t>(config.stream_bytes));
    report.stream_buffer_bytes = probe.buffer_bytes();
    report.machine = probe.measure(kProbeRounds);
    const auto add = [&](std::vector<BenchRow> rows) {
        const MachineLimits now = probe.measure(kProbeRounds);
        for (BenchRow& row : rows) {
            row.nearby = best_of(row.nearby, now);
            report.machine = best_of(report.machine, row.nearby);
            report.rows.push_back(std::move(row));
        }
    };
    std::vector<BenchSubject> subjects;
    for (const auto& run : runs)
        subjects.push_back({run->profile, run->bytes_per_weight, run->executor, run->sequences});
    if (config.phases.prefill || config.phases.decode) {
        for (const int64_t context : config.contexts) {
            for (const int64_t batch : config.batches) add(bench_throughput(config, subjects, probe, batch, context));
        }
    }
    if (config.phases.turn) {
        for (const int64_t length : config.heads) {
            for (const BenchSubject& subject : subjects) add({bench_turn(config, subject, length)});
        }
    }
    if (config.phases.behind) {
        for (const int64_t length : config.behind) add(bench_long_context(config, subjects, probe, length));
    }
}

}  // namespace

std::span<const BenchProfile> bench_profiles() { return kProfiles; }

Spread spread_of(std::vector<double> times_s) {
    const auto [min, max] = std::ranges::minmax(times_s);
    return {median(std::move(times_s)), min, max};
}

bool BenchReport::wrong() const {
    return reference_wrong || std::ranges::any_of(rows, [](const BenchRow& row) { return row.wrong; });
}

Result<ModelConfig> bench_shapes(const BenchConfig& config) {
    ASSIGN_OR_RETURN(ModelConfig shapes, reference::preset(config.model));
    const auto has = static_cast<int64_t>(shapes.layers.size());
    if (config.num_layers > has) {
        return error("--layers {}: {} has {}: ask for as many at most", config.num_layers, config.model, has);
    }
    if (config.num_layers > 0) shapes.layers.resize(static_cast<size_t>(config.num_layers));
    if (const std::vector<std::string> problems = reference::validate(shapes); !problems.empty())
        return error("--layers {} of {}: {}", config.num_layers, config.model, problems[0]);
    return shapes;
}

Result<BenchReport> run_bench(const BenchConfig& config) {
    BenchReport report;
    report.config = config;
    if (reference::is_preset(config.model)) {  // before the weights are made: reports impossible options at once
        ASSIGN_OR_RETURN(const ModelConfig shapes, bench_shapes(config));
        RETURN_IF_ERROR(executor_config(config, reference::geometry(shapes)));
    }
    if (config.phases.load) {
        const cpu::CpuExecutorConfig pools{.pools = {.num_blocks = 64, .num_state_rows = 4},
                                           .num_threads = config.num_threads,
                                           .profile = profiles_of(config).front()->profile};
        ASSIGN_OR_RETURN(report.rows, bench_load(config, pools));
    }
    ASSIGN_OR_RETURN(Model model, make_model(config));
    RETURN_IF_ERROR(takes_weights(config, model));
    report.geometry = reference::geometry(model.config);
    RETURN_IF_ERROR(stretch_positions(config, model.config));
    ASSIGN_OR_RETURN(const cpu::CpuExecutorConfig pools, executor_config(config, report.geometry));
    std::vector<std::unique_ptr<ProfileRun>> runs;
    for (const BenchProfile* profile : profiles_of(config)) {
        ProfileRun& run = *runs.emplace_back(std::make_unique<ProfileRun>(config, *profile, model, pools));
        report.isa = cpu::isa_name(run.executor.isa());
        if (profile->is_exact()) check_with_reference(model, *profile, run.executor, run.sequences, report);
    }
    run_rows(config, runs, report);
    return report;
}

}  // namespace verbatim::bench
