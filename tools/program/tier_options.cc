#include "tools/program/tier_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/flag_effects.h"
#include "tools/program/number_check.h"

namespace verbatim::tools {
namespace {

TierConfig tier_of(const char* name, uint64_t bytes, double gbps, int64_t latency_us) {
    return {.name = name,
            .bytes = static_cast<int64_t>(bytes),
            .bytes_per_us = std::max<int64_t>(1, std::llround(gbps * 1000)),
            .latency_ns = latency_us * 1000};
}

// Both are of the tier that `bytes` gives room.
void add_rate_options(CLI::App& verb, const std::string& name, CLI::Option* bytes, double& gbps, int64_t& latency_us) {
    verb.add_option("--" + name + "-gbps", gbps, "of its reads, and of its writes at the same time, in 10^9 bytes/s")
        ->check(CLI::Range(0.001, 1e6))
        ->check(finite_number())
        ->needs(bytes)
        ->capture_default_str();
    verb.add_option("--" + name + "-latency", latency_us, "of each of its reads and writes, in us")
        ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
        ->needs(bytes)
        ->capture_default_str();
}

}  // namespace

void TierFlags::set(SimulateConfig& config) const {
    config.tiers.clear();
    if (host_bytes > 0) config.tiers.push_back(tier_of("host", host_bytes, host_gbps, host_latency_us));
    if (disk_bytes > 0) config.tiers.push_back(tier_of("disk", disk_bytes, disk_gbps, disk_latency_us));
    config.tier_eviction = eviction;
    config.restore = restore;
}

Status TierFlags::check(const CLI::App& verb) const {
    constexpr const char* kNone = "there is no memory behind the device's; --host-memory or --disk is one";
    std::vector<FlagEffect> flags;
    for (const char* flag : {"--tier-evict", "--restore"}) flags.push_back({flag, has_tier(), kNone});
    for (const char* flag : {"--host-gbps", "--host-latency"})
        flags.push_back({flag, host_bytes > 0, "there is no host memory; --host-memory has more than 0 bytes"});
    for (const char* flag : {"--disk-gbps", "--disk-latency"})
        flags.push_back({flag, disk_bytes > 0, "there is no disk; --disk has more than 0 bytes"});
    return check_flag_effects(verb, flags);
}

void add_tier_options(CLI::App& verb, TierFlags& flags) {
    CLI::Option* host = add_bytes_option(verb, "--host-memory", flags.host_bytes,
                                         "of the host, for heads that the device's memory evicts; by default none")
                            ->default_str("");
    add_rate_options(verb, "host", host, flags.host_gbps, flags.host_latency_us);
    CLI::Option* disk =
        add_bytes_option(verb, "--disk", flags.disk_bytes,
                         "for heads that host memory evicts, or without host memory the device's; by default none")
            ->default_str("");
    add_rate_options(verb, "disk", disk, flags.disk_gbps, flags.disk_latency_us);
    add_choice_option(verb, "--tier-evict", flags.eviction,
                      Choices<TierEviction>{{"value", TierEviction::kValue}, {"lru", TierEviction::kLru}},
                      "which heads of host memory and disk go first: of least value per byte, or least recently used");
    add_choice_option(
        verb, "--restore", flags.restore,
        Choices<RestorePolicy>{
            {"auto", RestorePolicy::kAuto}, {"always", RestorePolicy::kAlways}, {"never", RestorePolicy::kNever}},
        "heads of host memory and disk are read if that is expected to be quicker than computing");
}

std::string tiers_table(const SimulateConfig& config, const RestoreCounts& restores,
                        const std::vector<TierCounts>& tiers) {
    if (tiers.empty()) return "";
    Table counts({"restores", "value"});
    counts.add_row({"heads restored", fmt::format("{}", restores.restores)});
    counts.add_row({"prompt tokens reused by that", fmt::format("{}", restores.restored_tokens)});
    counts.add_row({"computing was quicker", fmt::format("{}", restores.not_worth)});
    counts.add_row({"no room", fmt::format("{}", restores.no_room)});
    Table table({"tier", "bytes", "most used", "heads", "written", "not written", "evictions", "read", "mean read, s"});
    const auto bytes = [](int64_t count) { return format_bytes(static_cast<uint64_t>(count)); };
    for (size_t i = 0; i < tiers.size(); ++i) {
        const TierCounts& tier = tiers[i];
        const double read_s =
            static_cast<double>(tier.read_ns) * 1e-9 / static_cast<double>(std::max<int64_t>(tier.reads, 1));
        table.add_row({config.tiers[i].name, bytes(config.tiers[i].bytes), bytes(tier.peak_bytes),
                       fmt::format("{}", tier.heads), bytes(tier.bytes_written), fmt::format("{}", tier.not_written),
                       fmt::format("{}", tier.evictions), bytes(tier.bytes_read), fmt::format("{:.4f}", read_s)});
    }
    return counts.to_string() + "\n" + table.to_string() + "\n";
}

}  // namespace verbatim::tools
