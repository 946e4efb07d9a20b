// tools/program/engine_options.h: flags of one meaning in several verbs: an engine's steps, blocks and threads, and the
// devices of a simulated one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/program/cli.h"
#include "tools/program/number_check.h"

namespace verbatim::tools {

// Integer: int32_t or int64_t.
template <typename Integer>
void add_step_tokens_option(CLI::App& verb, Integer& step_tokens) {
    verb.add_option("--step-tokens", step_tokens, "tokens computed in a step, at most")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
}

inline void add_block_size_option(CLI::App& verb, int32_t& block_size) {
    verb.add_option("--block-size", block_size, "tokens of a KV block")
        ->check(CLI::Range(1, 4096))
        ->capture_default_str();
}

template <typename Integer>
void add_threads_option(CLI::App& verb, Integer& threads, const std::string& description) {
    verb.add_option("--threads", threads, description)->check(CLI::Range(1, 1024))->capture_default_str();
}

// Given or not: count() of what it returns.
inline CLI::Option* add_device_memory_option(CLI::App& verb, uint64_t& bytes) {
    return add_bytes_option(verb, "--memory", bytes, "of the device, for weights, workspace and caches together")
        ->default_str("90 % of it");
}

inline void add_expert_skew_option(CLI::App& verb, double& skew) {
    verb.add_option("--expert-skew", skew,
                    "tokens choose experts as their rank to the power of minus this (Zipf); 0: all equally often")
        ->check(CLI::Range(0.0, 8.0))
        ->check(finite_number())
        ->capture_default_str();
}

// Whole numbers from 1 on, with commas between them. What is there at the call is the default in --help.
inline void add_counts_option(CLI::App& verb, const char* flag, std::vector<int32_t>& counts, const char* description,
                              int32_t most = 1024) {
    CLI::Option* option = verb.add_option(flag, counts, description)->delimiter(',')->check(CLI::Range(1, most));
    if (!counts.empty()) option->capture_default_str();
}

// The GPUs of a replica, for verbs that try several numbers of them.
struct GpuCounts {
    std::vector<int32_t> tensors;
    std::vector<int32_t> experts;
    std::vector<int32_t> stages;
};
inline void add_gpu_counts_options(CLI::App& verb, GpuCounts& gpus) {
    add_counts_option(verb, "--tp", gpus.tensors, "GPUs of a replica that share every layer, such as 1,2,4,8");
    add_counts_option(verb, "--ep", gpus.experts, "groups of these with whole experts each, such as 1,8");
    add_counts_option(verb, "--pp", gpus.stages, "pipeline stages of a replica, such as 1,2");
}

}  // namespace verbatim::tools
