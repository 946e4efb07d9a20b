#include "traces/hit_rate.h"

#include <algorithm>
#include <span>
#include <unordered_map>

#include "engine/base/check.h"
#include "traces/interval_set.h"
#include "traces/prefix_tree.h"

namespace verbatim::traces {
namespace {

std::span<const IdRun> runs_of(const BlockLog& log, size_t request) {
    const size_t begin = request == 0 ? 0 : log.run_ends[request - 1];
    return std::span(log.runs).subspan(begin, log.run_ends[request] - begin);
}

int64_t count_blocks(std::span<const IdRun> runs) {
    int64_t count = 0;
    for (const IdRun& run : runs) count += run.count;
    return count;
}

// Renumbers the ids densely in order of first occurrence: 0, 1, ...
class DenseIds {
public:
    std::span<const int32_t> of(std::span<const IdRun> runs) {
        ids_.clear();
        for (const IdRun& run : runs) {
            for (int64_t id = run.first; id < run.first + run.count; ++id) {
                ids_.push_back(numbers_.emplace(id, static_cast<int32_t>(numbers_.size())).first->second);
            }
        }
        return ids_;
    }
    [[nodiscard]] size_t size() const { return numbers_.size(); }

private:
    std::unordered_map<int64_t, int32_t> numbers_;
    std::vector<int32_t> ids_;
};

// Resident blocks in LRU order: a linked ring through entry 0; block b is entry b + 1.
class LruBlocks {
public:
    LruBlocks() : links_(1) {}
    void grow(size_t num_blocks) { links_.resize(num_blocks + 1); }
    [[nodiscard]] bool resident(int32_t block) const { return links_[entry(block)].resident; }
    [[nodiscard]] int64_t size() const { return size_; }
    void touch(int32_t block) {
        const size_t e = entry(block);
        if (links_[e].resident) unlink(e);
        links_[e] = {links_[0].previous, 0, true};
        links_[links_[e].previous].next = e;
        links_[0].previous = e;
        ++size_;
    }
    void cut_back(int64_t room) {
        while (size_ > room) unlink(links_[0].next);
    }

private:
    struct Link {
        size_t previous = 0;
        size_t next = 0;
        bool resident = false;
    };
    static size_t entry(int32_t block) { return static_cast<size_t>(block) + 1; }
    void unlink(size_t e) {
        links_[links_[e].previous].next = links_[e].next;
        links_[links_[e].next].previous = links_[e].previous;
        links_[e].resident = false;
        --size_;
    }
    std::vector<Link> links_;
    int64_t size_ = 0;
};

}  // namespace

void add_request(const BlockLog& log, size_t request, int64_t blocks, int64_t hits, HitRates& rates) {
    const int64_t tokens = log.prompt_tokens[request];
    if (tokens == 0) return;
    const int64_t tokens_hit = std::min(hits * log.block_tokens, tokens);
    const auto add_to = [&](HitCount& count) {
        ++count.requests;
        count.requests_hit += hits > 0;
        count.blocks += blocks;
        count.blocks_hit += hits;
        count.tokens += tokens;
        count.tokens_hit += tokens_hit;
        count.sum_request_rates += static_cast<double>(tokens_hit) / static_cast<double>(tokens);
    };
    add_to(rates.whole);
    if (request >= log.prompt_tokens.size() / 2) add_to(rates.second_half);
}

int64_t num_lookups(const BlockLog& log) { return count_blocks(log.runs); }

int64_t num_unique_blocks(const BlockLog& log) {
    IntervalSet seen;
    for (const IdRun& run : log.runs) seen.insert(run.first, run.first + run.count);
    return seen.size();
}

HitRates lru_hit_rates(const BlockLog& log, int64_t room_blocks) {
    CHECK(room_blocks >= 0);
    HitRates rates;
    DenseIds dense;
    LruBlocks cache;
    for (size_t i = 0; i < log.prompt_tokens.size(); ++i) {
        const std::span<const int32_t> ids = dense.of(runs_of(log, i));
        cache.grow(dense.size());
        const auto absent = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return !cache.resident(id); });
        add_request(log, i, static_cast<int64_t>(ids.size()), absent - ids.begin(), rates);
        std::for_each(ids.rbegin(), ids.rend(), [&](int32_t id) { cache.touch(id); });
        cache.cut_back(room_blocks);
    }
    return rates;
}

HitRates unlimited_hit_rates(const BlockLog& log) {
    HitRates rates;
    IntervalSet seen;
    for (size_t i = 0; i < log.prompt_tokens.size(); ++i) {
        const std::span<const IdRun> runs = runs_of(log, i);
        int64_t hits = 0;
        for (const IdRun& run : runs) {
            const int64_t end = seen.covered_until(run.first);
            hits += std::min(end - run.first, run.count);
            if (end < run.first + run.count) break;
        }
        add_request(log, i, count_blocks(runs), hits, rates);
        for (const IdRun& run : runs) seen.insert(run.first, run.first + run.count);
    }
    return rates;
}

int64_t literal_continuation_tokens(const BlockLog& log) {
    PrefixTree tree;
    int64_t tokens = 0;
    for (size_t i = 0; i < log.prompt_tokens.size(); ++i) {
        int64_t best = 0;
        tree.prefixes(runs_of(log, i), [&](int64_t, std::span<const int64_t> complete) {
            for (const int64_t earlier : complete) {
                const auto e = static_cast<size_t>(earlier);
                const int64_t end = log.prompt_tokens[e] + log.output_tokens[e];
                if (end <= log.prompt_tokens[i]) best = std::max(best, end);
            }
        });
        tokens += best;
        tree.insert(runs_of(log, i), static_cast<int64_t>(i));
    }
    return tokens;
}

}  // namespace verbatim::traces
