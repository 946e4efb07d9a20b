#include "simulator/block_cache.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <queue>
#include <set>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

using traces::BlockLog;
using traces::HitRates;

// Resident blocks in LRU order: a linked ring through entry 0; block b is entry b + 1.
class LruRing {
public:
    explicit LruRing(int32_t num_blocks) : links_(static_cast<size_t>(num_blocks) + 1) {}
    [[nodiscard]] bool resident(int32_t block) const { return links_[entry(block)].next != kAbsent; }
    [[nodiscard]] int64_t size() const { return size_; }
    void touch(int32_t block, int32_t) {
        const uint32_t e = entry(block);
        if (links_[e].next != kAbsent) unlink(e);
        const uint32_t newest = links_[0].previous;
        links_[e] = {newest, 0};
        links_[newest].next = e;
        links_[0].previous = e;
        ++size_;
    }
    void cut_back(int64_t room) {
        while (size_ > room) unlink(links_[0].next);
    }

private:
    static constexpr uint32_t kAbsent = std::numeric_limits<uint32_t>::max();
    struct Link {
        uint32_t previous = 0;
        uint32_t next = kAbsent;
    };
    static uint32_t entry(int32_t block) { return static_cast<uint32_t>(block) + 1; }
    void unlink(uint32_t e) {
        const Link link = links_[e];
        links_[link.previous].next = link.next;
        links_[link.next].previous = link.previous;
        links_[e].next = kAbsent;
        --size_;
    }
    std::vector<Link> links_ = {};
    int64_t size_ = 0;
};

// Resident blocks by the policy's rank.
class RankedBlocks {
public:
    RankedBlocks(int32_t num_blocks, EvictionPolicy& policy, int64_t block_tokens)
        : policy_(policy), block_tokens_(block_tokens), blocks_(static_cast<size_t>(num_blocks)) {}
    [[nodiscard]] bool resident(int32_t block) const { return blocks_[static_cast<size_t>(block)].resident; }
    [[nodiscard]] int64_t size() const { return static_cast<int64_t>(order_.size()); }
    void touch(int32_t block, int32_t depth) {
        Block& touched = blocks_[static_cast<size_t>(block)];
        if (touched.resident) order_.erase({touched.rank, block});
        const int32_t num_uses = touched.resident ? touched.num_uses + 1 : 0;
        const HeadUse use{.num_uses = num_uses, .length = (depth + 1) * block_tokens_, .now = now_++};
        touched = {policy_.rank(use), num_uses, true};
        order_.insert({touched.rank, block});
    }
    void cut_back(int64_t room) {
        while (size() > room) {
            blocks_[static_cast<size_t>(order_.begin()->second)].resident = false;
            order_.erase(order_.begin());
        }
    }

private:
    struct Block {
        int64_t rank = 0;
        int32_t num_uses = 0;
        bool resident = false;
    };
    EvictionPolicy& policy_;
    int64_t block_tokens_;
    std::vector<Block> blocks_;
    std::set<std::pair<int64_t, int32_t>> order_;
    int64_t now_ = 0;
};

int64_t num_blocks_of(std::span<const DenseLog::Run> runs) {
    int64_t count = 0;
    for (const auto& run : runs) count += run.count;
    return count;
}

template <typename Blocks>
int64_t look_up(const Blocks& cache, std::span<const DenseLog::Run> runs) {
    int64_t hits = 0;
    for (const auto& [first, count] : runs) {
        for (int32_t block = first; block < first + count; ++block, ++hits) {
            if (!cache.resident(block)) return hits;
        }
    }
    return hits;
}

template <typename Blocks>
HitRates run_log(const BlockLog& log, const DenseLog& dense, int64_t room, Blocks&& cache) {
    HitRates rates;
    for (size_t i = 0; i < dense.num_requests(); ++i) {
        const auto runs = dense.runs(i);
        const int64_t blocks = num_blocks_of(runs);
        traces::add_request(log, i, blocks, look_up(cache, runs), rates);
        auto depth = static_cast<int32_t>(blocks);
        for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
            for (int32_t block = run->first + run->count; block-- > run->first;) cache.touch(block, --depth);
        }
        cache.cut_back(room);
    }
    return rates;
}

// A block is worth what computing the tokens in it costs, not its whole prefix.
class DepthWeightedEviction final : public EvictionPolicy {
public:
    explicit DepthWeightedEviction(const HeadWorth& worth) : worth_(worth) {}
    [[nodiscard]] int64_t rank(const HeadUse& use) override {
        const double deep = static_cast<double>(use.length) * worth_.flops_per_token_squared;
        const double share = worth_.flops_per_token + deep > 0 ? deep / (worth_.flops_per_token + deep) : 0;
        return use.now + static_cast<int64_t>(static_cast<double>(kHorizon) * share);
    }

private:
    HeadWorth worth_;
};

}  // namespace

DenseLog::DenseLog(const BlockLog& log) {
    std::vector<std::pair<int64_t, int64_t>> spans;  // [begin, end) of ids that occur in runs
    for (const auto& run : log.runs) spans.emplace_back(run.first, run.first + run.count);
    std::ranges::sort(spans);
    size_t last = 0;
    for (size_t i = 1; i < spans.size(); ++i) {
        if (spans[i].first <= spans[last].second) {
            spans[last].second = std::max(spans[last].second, spans[i].second);
        } else {
            spans[++last] = spans[i];
        }
    }
    if (!spans.empty()) spans.resize(last + 1);
    std::vector<int64_t> numbers;  // number of each span's first id
    int64_t num_blocks = 0;
    for (const auto& [begin, end] : spans) {
        numbers.push_back(num_blocks);
        num_blocks += end - begin;
    }
    CHECK_LT(num_blocks, std::numeric_limits<int32_t>::max());
    num_blocks_ = static_cast<int32_t>(num_blocks);
    for (const auto& run : log.runs) {
        const auto place = std::ranges::upper_bound(spans, run.first, {}, &std::pair<int64_t, int64_t>::first) - 1;
        const int64_t first = numbers[static_cast<size_t>(place - spans.begin())] + run.first - place->first;
        runs_.push_back({static_cast<int32_t>(first), static_cast<int32_t>(run.count)});
        num_references_ += run.count;
    }
    ends_ = log.run_ends;
}

auto DenseLog::runs(size_t request) const -> std::span<const Run> {
    const size_t begin = request == 0 ? 0 : ends_[request - 1];
    return std::span(runs_).subspan(begin, ends_[request] - begin);
}

HitRates block_hit_rates(const BlockLog& log, const DenseLog& dense, int64_t room_blocks, EvictionChoice choice,
                         const HeadWorth& worth) {
    CHECK_GE(room_blocks, 0);
    if (choice == EvictionChoice::kLru || choice == EvictionChoice::kSize)
        return run_log(log, dense, room_blocks, LruRing(dense.num_blocks()));
    std::unique_ptr<EvictionPolicy> policy = std::make_unique<DepthWeightedEviction>(worth);
    if (choice == EvictionChoice::kLfu) policy = make_eviction_policy(choice, worth);
    return run_log(log, dense, room_blocks, RankedBlocks(dense.num_blocks(), *policy, log.block_tokens));
}

OfflineBound offline_bound(const BlockLog& log, const DenseLog& dense, int64_t room_blocks) {
    CHECK_GE(room_blocks, 0);
    constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
    // For each reference, the next request that uses its block; filled backwards.
    std::vector<int32_t> next_use(static_cast<size_t>(dense.num_references()));
    std::vector<int32_t> upcoming(static_cast<size_t>(dense.num_blocks()), kNever);
    size_t place = next_use.size();
    for (size_t i = dense.num_requests(); i-- > 0;) {
        const auto runs = dense.runs(i);
        for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
            for (int32_t b = run->first + run->count; b-- > run->first;) {
                next_use[--place] = std::exchange(upcoming[static_cast<size_t>(b)], static_cast<int32_t>(i));
            }
        }
    }
    std::vector<int32_t> kept_until(static_cast<size_t>(dense.num_blocks()), kNever);  // kNever: not kept
    std::priority_queue<std::pair<int32_t, int32_t>> furthest;  // (next use, block); may contain outdated entries
    OfflineBound bound;
    int64_t num_kept = 0;
    for (size_t i = 0; i < dense.num_requests(); ++i) {
        for (const auto& [first, count] : dense.runs(i)) {
            for (int32_t b = first; b < first + count; ++b) {
                int32_t& until = kept_until[static_cast<size_t>(b)];
                if (until != kNever) --num_kept;
                bound.blocks_hit += until != kNever ? 1 : 0;
                until = next_use[place++];
                if (until == kNever) continue;
                ++num_kept;
                furthest.emplace(until, b);
            }
        }
        for (; num_kept > room_blocks; furthest.pop()) {
            const auto [until, b] = furthest.top();
            if (kept_until[static_cast<size_t>(b)] != until) continue;
            kept_until[static_cast<size_t>(b)] = kNever;
            --num_kept;
        }
    }
    int64_t tokens = 0;
    for (const int64_t prompt : log.prompt_tokens) tokens += prompt;
    const auto references = static_cast<double>(std::max<int64_t>(1, dense.num_references()));
    bound.block_rate = static_cast<double>(bound.blocks_hit) / references;
    bound.token_rate = std::min(1.0, static_cast<double>(bound.blocks_hit) * static_cast<double>(log.block_tokens) /
                                         static_cast<double>(std::max<int64_t>(1, tokens)));
    return bound;
}

}  // namespace verbatim
