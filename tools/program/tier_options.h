// tools/program/tier_options.h: the flags for memory behind a simulated device, and the report of what it served.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "simulator/run.h"
#include "simulator/tiers.h"

namespace CLI {
class App;
}  // namespace CLI

namespace verbatim::tools {

// The flags' values.
struct TierFlags {
    uint64_t host_bytes = 0;  // 0: there is no such tier
    double host_gbps = 50;    // 10^9 bytes a second
    int64_t host_latency_us = 10;
    uint64_t disk_bytes = 0;
    double disk_gbps = 5;
    int64_t disk_latency_us = 100;
    TierEviction eviction = TierEviction::kValue;
    RestorePolicy restore = RestorePolicy::kAuto;
    void set(SimulateConfig& config) const;
    [[nodiscard]] bool has_tier() const { return host_bytes > 0 || disk_bytes > 0; }
    // Error: a flag of `verb` is of tiers, and there is none.
    [[nodiscard]] Status check(const CLI::App& verb) const;
};
void add_tier_options(CLI::App& verb, TierFlags& flags);

// What a run's tiers held, wrote and read. Empty without tiers.
[[nodiscard]] std::string tiers_table(const SimulateConfig& config, const RestoreCounts& restores,
                                      const std::vector<TierCounts>& tiers);

}  // namespace verbatim::tools
