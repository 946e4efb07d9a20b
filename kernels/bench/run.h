// kernels/bench/run.h: the measurements of `verbatim bench` and their results.
//
//   B1  every repetition computes different tokens
//   B2  an exact row's result is checked after its clock has stopped: its logits equal those of a run in other chunks
//       (up to kMaxCheckedTokens; beyond that they are finite), and those of a short prompt equal the uncached
//       reference's. Rows of the other profiles are finite
//   B3  the first steps of a row are not timed; a row's figure is the median
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/bench/cost.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/machine.h"
#include "reference/model/model_config.h"

namespace verbatim::bench {

inline constexpr int64_t kMaxCheckedTokens = 4096;

struct BenchPhases {
    bool prefill = true;  // prompts of every context and batch
    bool decode = true;   // one token for each sequence of every batch, after every context
    bool turn = false;    // first token of a turn that attaches to a head, for every length
    bool behind = false;  // a chunk, and one token, after a context of every length
    bool load = false;    // from a checkpoint's file to a ready executor
};

// "exact", "exact.int8" (of quantised weights), "exact.fp8" (of recipes with FP8 activations), "fast" (bf16 weights),
// "fast_int8".
struct BenchProfile {
    std::string_view name;
    cpu::Profile profile = cpu::Profile::kExact;
    cpu::WeightFormat weights = cpu::WeightFormat::kBf16;

    [[nodiscard]] bool is_exact() const { return profile != cpu::Profile::kFast; }  // promises bits
    // Of matrices that are bf16.
    [[nodiscard]] int32_t bytes_per_weight() const { return weights == cpu::WeightFormat::kInt8 ? 1 : 2; }
};
std::span<const BenchProfile> bench_profiles();

struct BenchConfig {
    std::string model;       // a preset's name or a checkpoint's folder
    int64_t num_layers = 0;  // of a preset, the first layers; 0: all
    int32_t num_threads = 1;
    std::optional<cpu::Isa> isa;
    uint64_t seed = 0;
    BenchPhases phases;
    std::vector<std::string> profiles = {"exact"};          // names of bench_profiles()
    std::vector<int64_t> contexts = {512};                  // tokens
    std::vector<int64_t> batches = {1, 16};                 // sequences
    std::vector<int64_t> heads = {1024, 1031, 4096, 4103};  // tokens
    std::vector<int64_t> behind = {32768, 131072};          // tokens
    int64_t suffix_tokens = 64;
    int64_t repeats = 5;       // of a prefill; decoding times four steps per repeat
    int64_t row_seconds = 20;  // no repetition starts later
    int64_t step_tokens = 512;
    int32_t block_size = 16;    // tokens
    uint64_t stream_bytes = 0;  // for measuring the machine; 0: four times the last-level cache
    std::string scratch;        // where a preset's checkpoint is written for loading; empty: the system's folder
};

// Median, minimum and maximum of some times in seconds.
struct Spread {
    double median = 0;
    double min = 0;
    double max = 0;
};
Spread spread_of(std::vector<double> times_s);  // REQUIRES: not empty

// The times and memory of loading a checkpoint.
struct LoadFigures {
    int64_t file_bytes = 0;
    std::vector<double> read_times_s;   // reading the file alone, into allocated memory
    std::vector<double> fresh_times_s;  // getting fresh memory of the file's size from the system
    int64_t resident_bytes = 0;         // added to this process by loading
    int64_t wanted_bytes = 0;           // weights and pools
};

struct BenchRow {
    // "prefill", "decode", "ttft_cached", "prefill_behind", "decode_behind", "load" and its variants (bench_load.h)
    std::string phase;
    std::string_view profile = "exact";
    int64_t batch = 1;
    int64_t context = 0;     // for a prefill: tokens of a prompt; else tokens before the timed ones
    int64_t num_tokens = 0;  // computed by one repetition
    std::vector<double> times_s;
    WalkCost cost;                                    // of one repetition
    std::array<double, kNumWalkOps> op_times_s = {};  // of one observed repetition; zeros: none was observed
    double watched_s = 0;                             // the whole time of that repetition
    std::string check;                                // "recomputed", "finite"
    bool wrong = false;                               // the check failed
    std::vector<double> suffix_times_s;               // "ttft_cached": the same suffix without an attach
    std::optional<LoadFigures> load;
    std::vector<double> processor_times_s;  // of each repetition, mean over the threads; empty: not measured
    double processor_share = 0;             // processor time over wall time, of all threads; 0: not measured
    MachineLimits nearby;                   // the machine's best between the row's repetitions
    std::vector<double> streams_before;     // bytes per second, just before each repetition; empty: not measured
};

struct BenchReport {
    BenchConfig config;
    std::string isa;
    reference::ModelGeometry geometry;
    int64_t stream_buffer_bytes = 0;
    MachineLimits machine;         // the best before, between and after the rows
    int64_t reference_tokens = 0;  // of the prompt that was compared with the uncached reference
    bool reference_wrong = false;
    std::vector<BenchRow> rows;

    // A check failed.
    [[nodiscard]] bool wrong() const;
};

// The preset's shapes with the requested number of layers. Errors: no such preset; more layers than it has.
Result<reference::ModelConfig> bench_shapes(const BenchConfig& config);

// Errors: no such model; more positions than a checkpoint has; more memory than the machine has.
Result<BenchReport> run_bench(const BenchConfig& config);

}  // namespace verbatim::bench
