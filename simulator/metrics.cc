#include "simulator/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/base/check.h"
#include "traces/strict.h"

namespace verbatim {
namespace {

constexpr double kNsPerS = 1e9;

double percentile_s(const std::vector<int64_t>& sorted, int64_t percent) {
    return static_cast<double>(at_rank(sorted, percent, 100)) / kNsPerS;
}

double share(int64_t part, int64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

HitRate hit_rate_of(std::span<const RowTimes> rows, int32_t block_size) {
    int64_t blocks = 0;
    int64_t blocks_hit = 0;
    int64_t tokens = 0;
    int64_t tokens_hit = 0;
    int64_t requests = 0;
    double sum = 0;
    for (const RowTimes& row : rows) {
        if (!is_answered(row) || row.prompt_tokens == 0) continue;
        ++requests;
        blocks += (row.prompt_tokens + block_size - 1) / block_size;
        blocks_hit += row.reused_tokens / block_size;
        tokens += row.prompt_tokens;
        tokens_hit += row.reused_tokens;
        sum += share(row.reused_tokens, row.prompt_tokens);
    }
    return {share(blocks_hit, blocks), share(tokens_hit, tokens),
            requests == 0 ? 0 : sum / static_cast<double>(requests)};
}

bool keeps(const std::optional<int64_t>& objective, const std::optional<int64_t>& time) {
    return !objective || !time || *time <= *objective;
}

}  // namespace

int64_t at_rank(std::span<const int64_t> sorted, int64_t part, int64_t whole) {
    CHECK(!sorted.empty() && whole > 0 && part >= 0 && part <= whole, "{} / {} of {} values", part, whole,
          sorted.size());
    const int64_t rank = (static_cast<int64_t>(sorted.size()) * part + whole - 1) / whole;
    return sorted[static_cast<size_t>(std::max<int64_t>(rank, 1) - 1)];
}

Distribution distribution_s(std::vector<int64_t> times_ns) {
    if (times_ns.empty()) return {};
    std::ranges::sort(times_ns);
    const auto sum = static_cast<double>(std::accumulate(times_ns.begin(), times_ns.end(), int64_t{0}));
    return {std::ssize(times_ns), sum / kNsPerS / static_cast<double>(times_ns.size()), percentile_s(times_ns, 50),
            percentile_s(times_ns, 95), percentile_s(times_ns, 99)};
}

bool is_answered(const RowTimes& row) { return row.outcome == RowOutcome::kServed; }

std::optional<int64_t> ttft_ns(const RowTimes& row) {
    if (!is_answered(row) || row.first_token_ns < 0) return std::nullopt;
    return row.first_token_ns - row.due_ns;
}

std::optional<int64_t> tpot_ns(const RowTimes& row) {
    if (!is_answered(row) || row.output_tokens < 2) return std::nullopt;
    return (row.end_ns - row.first_token_ns) / (row.output_tokens - 1);
}

Metrics metrics_of(std::span<const RowTimes> rows, int32_t block_size, const Slo& slo) {
    Metrics metrics;
    metrics.hit_rate = hit_rate_of(rows, block_size);
    std::vector<int64_t> ttft;
    std::vector<int64_t> tpot;
    std::vector<int64_t> e2e;
    std::vector<int64_t> client_wait;
    for (const RowTimes& row : rows) {
        if (!is_answered(row)) continue;
        ++metrics.requests;
        const auto first = ttft_ns(row);
        const auto each = tpot_ns(row);
        if (first) ttft.push_back(*first);
        if (each) tpot.push_back(*each);
        e2e.push_back(row.end_ns - row.due_ns);
        client_wait.push_back(row.due_ns - row.wanted_ns);
        const bool kept = keeps(slo.ttft_ns, first) && keeps(slo.tpot_ns, each) && keeps(slo.e2e_ns, e2e.back());
        metrics.requests_in_slo += kept ? 1 : 0;
    }
    metrics.ttft = distribution_s(std::move(ttft));
    metrics.tpot = distribution_s(std::move(tpot));
    metrics.e2e = distribution_s(std::move(e2e));
    metrics.client_wait = distribution_s(std::move(client_wait));
    return metrics;
}

std::optional<int64_t> parse_time_ns(std::string_view text) {
    for (const auto& [unit, ns] : {std::pair{"ms", 1e6}, std::pair{"us", 1e3}, std::pair{"s", 1e9}}) {
        if (!text.ends_with(unit)) continue;
        const auto number = traces::parse_number<double>(text.substr(0, text.size() - std::string_view(unit).size()));
        if (!number || !(*number > 0 && *number * ns < 1e18)) return std::nullopt;
        return std::llround(*number * ns);
    }
    return std::nullopt;
}

Result<Slo> parse_slo(std::string_view text) {
    Slo slo;
    for (std::string_view rest = text; !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
        const size_t equals = std::min(part.find('='), part.size());
        const std::string_view what = part.substr(0, equals);
        std::optional<int64_t>* objective = what == "ttft"   ? &slo.ttft_ns
                                            : what == "tpot" ? &slo.tpot_ns
                                            : what == "e2e"  ? &slo.e2e_ns
                                                             : nullptr;
        const auto time = equals == part.size() ? std::nullopt : parse_time_ns(part.substr(equals + 1));
        if (objective == nullptr || objective->has_value() || !time) {
            return error(
                "--slo: got \"{}\", wanted objectives such as ttft=2s,tpot=50ms: each of ttft, tpot and e2e "
                "once at most, in s, ms or us",
                part);
        }
        *objective = time;
    }
    if (!slo.any()) return error("--slo: got nothing, wanted objectives such as ttft=2s,tpot=50ms");
    return slo;
}

}  // namespace verbatim
