#include "simulator/head_bound.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/cache/eviction.h"
#include "simulator/cache_run.h"

namespace verbatim {
namespace {

using traces::kNoRow;
using traces::Row;

constexpr int32_t kBlock = 16;
constexpr int64_t kMostBlocks = 1 << 30;

// Capacity for all tokens that the trace plans, so nothing is evicted.
int32_t blocks_for_all(const traces::Trace& trace) {
    int64_t blocks = 1;
    for (const Row& row : trace.rows) blocks += traces::planned_end(row) / kBlock + 2;
    return static_cast<int32_t>(std::min(blocks, kMostBlocks));
}

// Conversations related by forks or shared text.
class Families {
public:
    explicit Families(const traces::Trace& trace) : parents_(trace.conversations.size()) {
        std::iota(parents_.begin(), parents_.end(), size_t{0});
        for (const Row& row : trace.rows) {
            if (row.from != kNoRow) parents_[of(row)] = of(trace.row(row.from));
        }
    }
    [[nodiscard]] size_t of(const Row& row) {
        auto one = static_cast<size_t>(index(row.conversation));
        while (parents_[one] != one) one = parents_[one] = parents_[parents_[one]];
        return one;
    }
    [[nodiscard]] size_t size() const { return parents_.size(); }

private:
    std::vector<size_t> parents_;
};

struct Hit {
    double tokens = 0;
    double length = 0;  // in rows of the trace
};

// The fractional knapsack: `cost` is the memory per token of a hit. Zero capacity: no limit.
template <typename Cost>
double most_tokens(std::vector<Hit> hits, double room, const Cost& cost) {
    std::ranges::stable_sort(hits, {}, cost);
    const bool unlimited = room == 0;
    double tokens = 0;
    for (const Hit& hit : hits) {
        const double taken = unlimited ? hit.tokens : std::min(hit.tokens, room / cost(hit));
        tokens += taken;
        room = std::max(0.0, room - taken * cost(hit));
    }
    return tokens;
}

}  // namespace

Result<HeadBound> head_bound(const traces::Trace& trace, int32_t vocab_size, const HeadMemory& memory) {
    // The common prefix of each row with an earlier one, in full blocks; of the next block all but one token may match
    // too.
    CacheRunConfig config;
    config.cache.has_state = false;
    config.cache.pools.block_size = kBlock;
    config.cache.pools.num_blocks = blocks_for_all(trace);
    config.cache.lookup = LookupMode::kBlocks;
    config.max_model_len = int64_t{1} << 40;
    LruEviction policy;
    ASSIGN_OR_RETURN(const CacheRunResult common, run_cache(config, trace, vocab_size, policy));
    Families families(trace);
    std::vector<int64_t> last(families.size(), -1);
    std::vector<Hit> hits;
    int64_t prompt_tokens = 0;
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        const Row& row = trace.rows[i];
        const size_t family = families.of(row);
        if (traces::is_request(row.event)) {
            const RowTimes& times = common.rows[i];
            prompt_tokens += times.prompt_tokens;
            const int64_t most = std::min(times.reused_tokens + kBlock - 1, times.prompt_tokens - 1);
            if (last[family] >= 0 && most > 0)
                hits.push_back(
                    {static_cast<double>(most), static_cast<double>(static_cast<int64_t>(i) - last[family])});
        }
        last[family] = static_cast<int64_t>(i);
    }
    const auto num_rows = static_cast<double>(trace.rows.size());
    const double by_rows = most_tokens(hits, static_cast<double>(memory.num_state_rows) * num_rows,
                                       [](const Hit& hit) { return hit.length / hit.tokens; });
    const double by_kv =
        most_tokens(hits, static_cast<double>(memory.kv_tokens) * num_rows, [](const Hit& hit) { return hit.length; });
    const double tokens = std::min(by_rows, by_kv);
    HeadBound bound{.tokens = static_cast<int64_t>(tokens) + 1};
    if (hits.empty()) bound.tokens = 0;
    if (prompt_tokens > 0)
        bound.token_rate = std::min(1.0, static_cast<double>(bound.tokens) / static_cast<double>(prompt_tokens));
    return bound;
}

}  // namespace verbatim
