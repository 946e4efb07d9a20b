// tools/simulate/cluster_options.h: the flags for prompts apart from answers and for replicas that come and go, and the
// report of both.
#pragma once

#include <cstdint>
#include <string>

#include "simulator/run.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace verbatim::tools {

// The flags' values.
struct ClusterFlags {
    int32_t num_prefill = 0;  // 0: not apart
    int32_t num_decode = 0;
    double transfer_gbps = 50;
    int64_t transfer_latency_us = 10;
    std::string autoscale;  // empty: a fixed number
    std::string scale_on = "requests=32";
    std::string startup = "60s";
    std::string cooldown = "300s";
    std::string interval = "15s";
    // Error: a value that cannot be read, or one flag of two.
    [[nodiscard]] Status set(SimulateConfig& config) const;
};
void add_cluster_options(CLI::App& verb, ClusterFlags& flags);

// Whether a run has several engines, of which no single one's steps are shown.
[[nodiscard]] bool has_several_engines(const SimulateConfig& config);

// The transfers of heads, and the replicas that came and went. Empty for other runs.
[[nodiscard]] std::string cluster_table(const SimulateRun& run);

}  // namespace verbatim::tools
