#include "tools/simulate/cluster_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "simulator/metrics.h"
#include "tools/program/cli.h"
#include "tools/program/number_check.h"

namespace verbatim::tools {
namespace {

Result<int64_t> time_of(const char* flag, const std::string& text) {
    if (text == "0") return 0;
    const auto time_ns = parse_time_ns(text);
    if (!time_ns) return error("{}: got \"{}\", wanted a time such as 60s or 500ms", flag, text);
    return *time_ns;
}

void add_scale_options(CLI::App& verb, ClusterFlags& flags) {
    CLI::Option* autoscale =
        verb.add_option("--autoscale", flags.autoscale, "so many replicas as the load wants, within these bounds")
            ->type_name("MIN..MAX");
    verb.add_option("--scale-on", flags.scale_on,
                    "what a replica is to have: requests=N, waiting=N (without their first token) or busy=SHARE of "
                    "the time")
        ->needs(autoscale)
        ->capture_default_str();
    verb.add_option("--scale-startup", flags.startup, "from the decision until a replica takes requests")
        ->needs(autoscale)
        ->capture_default_str();
    verb.add_option("--scale-cooldown", flags.cooldown, "fewer replicas only if fewer were wanted for so long")
        ->needs(autoscale)
        ->capture_default_str();
    verb.add_option("--scale-interval", flags.interval, "between two decisions")
        ->needs(autoscale)
        ->capture_default_str();
}

std::string seconds_of(int64_t ns) { return fmt::format("{:.1f}", static_cast<double>(ns) * 1e-9); }

}  // namespace

Status ClusterFlags::set(SimulateConfig& config) const {
    if ((num_prefill > 0) != (num_decode > 0))
        return error("--prefill-replicas and --decode-replicas: each needs the other");
    if (num_prefill > 0) {
        config.apart = PrefillApart{.num_prefill = num_prefill,
                                    .num_decode = num_decode,
                                    .bytes_per_us = std::max<int64_t>(1, std::llround(transfer_gbps * 1000)),
                                    .latency_ns = transfer_latency_us * 1000};
    }
    if (autoscale.empty()) return {};
    AutoscaleConfig scale;
    ASSIGN_OR_RETURN(const auto bounds, parse_scale_range(autoscale));
    ASSIGN_OR_RETURN(const auto target, parse_scale_target(scale_on));
    std::tie(scale.least, scale.most) = bounds;
    std::tie(scale.metric, scale.target) = target;
    ASSIGN_OR_RETURN(scale.startup_ns, time_of("--scale-startup", startup));
    ASSIGN_OR_RETURN(scale.cooldown_ns, time_of("--scale-cooldown", cooldown));
    ASSIGN_OR_RETURN(scale.interval_ns, time_of("--scale-interval", interval));
    if (scale.interval_ns == 0) return error("--scale-interval: got 0, wanted more");
    config.autoscale = scale;
    return {};
}

void add_cluster_options(CLI::App& verb, ClusterFlags& flags) {
    CLI::Option* prefill =
        verb.add_option("--prefill-replicas", flags.num_prefill, "replicas that compute prompts alone")
            ->check(CLI::Range(1, 1024))
            ->default_str("");
    verb.add_option("--decode-replicas", flags.num_decode, "replicas that answer, with the heads of the others")
        ->check(CLI::Range(1, 1024))
        ->default_str("");
    verb.add_option("--transfer-gbps", flags.transfer_gbps,
                    "of a GPU's heads on their way to the replica that answers, in 10^9 bytes/s")
        ->check(CLI::Range(0.001, 1e6))
        ->check(finite_number())
        ->needs(prefill)
        ->capture_default_str();
    verb.add_option("--transfer-latency", flags.transfer_latency_us, "of each of these heads, in us")
        ->check(CLI::Range(int64_t{0}, int64_t{1'000'000'000}))
        ->needs(prefill)
        ->capture_default_str();
    add_scale_options(verb, flags);
}

bool has_several_engines(const SimulateConfig& config) {
    return config.num_replicas > 1 || config.apart || config.autoscale;
}

std::string cluster_table(const SimulateRun& run) {
    if (!run.config.apart && !run.config.autoscale) return "";
    std::string text;
    if (run.config.apart) {
        const double heads = static_cast<double>(std::max<int64_t>(run.transfers.heads, 1));
        Table transfers({"heads sent", "value"});
        transfers.add_row({"heads", fmt::format("{}", run.transfers.heads)});
        transfers.add_row({"bytes of a GPU", format_bytes(static_cast<uint64_t>(run.transfers.bytes))});
        transfers.add_row(
            {"mean wait, s", fmt::format("{:.4f}", static_cast<double>(run.transfers.wait_ns) * 1e-9 / heads)});
        transfers.add_row({"no room", fmt::format("{}", run.transfers.without_room)});
        text += transfers.to_string() + "\n";
    }
    Table replicas({"replica", "from, s", "until, s", "requests", "steps"});
    for (size_t i = 0; i < run.replicas.size(); ++i) {
        const ReplicaSummary& replica = run.replicas[i];
        const char* computes = replica.role == EngineRole::kPrompts   ? ", prompts"
                               : replica.role == EngineRole::kAnswers ? ", answers"
                                                                      : "";
        replicas.add_row({fmt::format("{}{}", i, computes), seconds_of(replica.begin_ns),
                          seconds_of(replica.virtual_ns), fmt::format("{}", replica.rows),
                          fmt::format("{}", replica.steps)});
    }
    return text + replicas.to_string() + "\n";
}

}  // namespace verbatim::tools
