#include "simulator/block_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "engine/base/prng.h"

namespace verbatim::tests {
namespace {

using traces::BlockLog;

constexpr HeadWorth kWorth{.kv_bytes_per_token = 100, .flops_per_token = 1e6, .flops_per_token_squared = 100};

BlockLog log_of(const std::vector<std::vector<int64_t>>& requests) {
    BlockLog log;
    log.block_tokens = 10;
    for (const auto& ids : requests) {
        for (const int64_t id : ids) log.runs.push_back({id, 1});
        log.run_ends.push_back(log.runs.size());
        log.prompt_tokens.push_back(static_cast<int64_t>(ids.size()) * 10);
        log.output_tokens.push_back(1);
    }
    return log;
}

// Prompts that share beginnings, as those of conversations do: an id stands for all before it.
BlockLog random_log(Prng& prng) {
    std::vector<std::vector<int64_t>> requests;
    int64_t next_id = 0;
    for (uint64_t i = 2 + prng.below(12); i > 0; --i) {
        std::vector<int64_t> ids;
        if (!requests.empty() && prng.below(3) > 0) {
            const auto& from = requests[prng.below(requests.size())];
            ids.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(prng.below(from.size() + 1)));
        }
        for (uint64_t own = 1 + prng.below(3); own > 0; --own) ids.push_back(next_id += prng.below(2) == 0 ? 1 : 5);
        requests.push_back(ids);
    }
    return log_of(requests);
}

const traces::ReadTrace& mooncake_blocks() {
    static const traces::ReadTrace read = [] {
        auto trace = traces::read_trace(VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz",
                                        {.keep_blocks = true});
        EXPECT_TRUE(trace.has_value());
        return *std::move(trace);
    }();
    return read;
}

TEST(BlockCache, LruIsTheConventionOfTheTraces) {
    const BlockLog& log = mooncake_blocks().blocks;
    const DenseLog dense(log);
    EXPECT_EQ(dense.num_blocks(), 182'790);
    for (const int64_t room : {1827, 18'279, 91'395}) {
        const auto ours = block_hit_rates(log, dense, room, EvictionChoice::kLru, kWorth);
        const auto theirs = traces::lru_hit_rates(log, room);
        EXPECT_EQ(ours.whole.blocks_hit, theirs.whole.blocks_hit);
        EXPECT_EQ(ours.whole.tokens_hit, theirs.whole.tokens_hit);
        EXPECT_EQ(ours.second_half.tokens_hit, theirs.second_half.tokens_hit);
    }
}

constexpr EvictionChoice kChoices[] = {EvictionChoice::kLru, EvictionChoice::kLfu, EvictionChoice::kSize,
                                       EvictionChoice::kFlops};

TEST(BlockCache, NoPolicyBeatsTheOfflineBound) {
    const BlockLog& log = mooncake_blocks().blocks;
    const DenseLog dense(log);
    for (const int64_t room : {0, 1827, 18'279}) {
        const OfflineBound bound = offline_bound(log, dense, room);
        for (const EvictionChoice choice : kChoices) {
            const auto rates = block_hit_rates(log, dense, room, choice, kWorth);
            EXPECT_LE(rates.whole.blocks_hit, bound.blocks_hit) << static_cast<int>(choice);
            EXPECT_LE(rates.whole.token_rate(), bound.token_rate);
            if (room > 0) {
                EXPECT_GT(rates.whole.blocks_hit, bound.blocks_hit / 10) << static_cast<int>(choice);
            }
        }
    }
    const OfflineBound unlimited = offline_bound(log, dense, dense.num_blocks());
    EXPECT_EQ(unlimited.blocks_hit, traces::unlimited_hit_rates(log).whole.blocks_hit);
}

// The most hits that keeping any `room` blocks after each request can give, by trying every choice.
int64_t best_by_trying(const std::vector<std::vector<int32_t>>& requests, size_t i, const std::vector<int32_t>& cache,
                       size_t room) {
    if (i == requests.size()) return 0;
    std::vector<int32_t> after = cache;
    int64_t hits = 0;
    for (const int32_t block : requests[i]) {
        const bool there = std::ranges::count(cache, block) > 0;
        hits += there ? 1 : 0;
        if (!there) after.push_back(block);
    }
    int64_t best = 0;
    for (uint32_t kept = 0; kept < 1u << after.size(); ++kept) {
        if (static_cast<size_t>(std::popcount(kept)) != std::min(room, after.size())) continue;
        std::vector<int32_t> next;
        for (size_t b = 0; b < after.size(); ++b) {
            if ((kept >> b & 1) != 0) next.push_back(after[b]);
        }
        best = std::max(best, best_by_trying(requests, i + 1, next, room));
    }
    return hits + best;
}

TEST(BlockCache, TheBoundIsWhatTryingEverythingFinds) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        Prng prng(seed);
        std::vector<std::vector<int32_t>> requests;
        std::vector<std::vector<int64_t>> ids;
        for (int i = 0; i < 6; ++i) {
            std::vector<int32_t> blocks;
            for (int32_t b = 0; b < 5; ++b) {
                if (prng.below(3) == 0) blocks.push_back(b);
            }
            requests.push_back(blocks);
            ids.emplace_back(blocks.begin(), blocks.end());
        }
        const BlockLog log = log_of(ids);
        for (const int64_t room : {1, 2, 3}) {
            EXPECT_EQ(offline_bound(log, DenseLog(log), room).blocks_hit,
                      best_by_trying(requests, 0, {}, static_cast<size_t>(room)))
                << "seed " << seed << ", room " << room;
        }
    }
}

TEST(BlockCache, PoliciesStayBelowTheBoundOnRandomLogs) {
    for (uint64_t seed = 0; seed < 500; ++seed) {
        Prng prng(seed);
        const BlockLog log = random_log(prng);
        const DenseLog dense(log);
        const auto room = static_cast<int64_t>(prng.below(8));
        const OfflineBound bound = offline_bound(log, dense, room);
        for (const EvictionChoice choice : kChoices) {
            const auto rates = block_hit_rates(log, dense, room, choice, kWorth);
            ASSERT_LE(rates.whole.blocks_hit, bound.blocks_hit) << seed;
        }
        ASSERT_EQ(block_hit_rates(log, dense, room, EvictionChoice::kLru, kWorth).whole.blocks_hit,
                  traces::lru_hit_rates(log, room).whole.blocks_hit)
            << seed;
    }
}

}  // namespace
}  // namespace verbatim::tests
