// simulator/tiers.h: owns the tiers behind a simulated device: which evicted heads they keep, and which of them a
// request waits for.
//
// A head that memory evicts goes to the first tier; what goes from a tier goes to the next one. A head that is read
// stays where it was. Which head is read for a request is decided by choose_head(), as in a server.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/head_waits.h"
#include "engine/restore_rule.h"
#include "simulator/tier.h"

namespace verbatim {

struct TiersConfig {
    std::vector<TierConfig> tiers;  // in the order in which heads go down; empty: evicted heads are gone
    TierEviction eviction = TierEviction::kValue;
    RestorePolicy restore = RestorePolicy::kAuto;
    // What blocks, rows and tokens cost (Tier).
    CacheConfig cache;
    // Of runs without time: what a step of a prompt's tokens takes. Other runs measure their steps.
    RestoreRule::StepTokens step_tokens;
    int64_t step_ns = 0;
    [[nodiscard]] bool any() const { return !tiers.empty(); }
};

// What reading heads came to.
struct RestoreCounts {
    int64_t restores = 0;         // heads that were read and imported
    int64_t restored_tokens = 0;  // of prompts, that a restored head served and memory alone would not have
    int64_t not_worth = 0;        // computing was expected to be quicker
    int64_t no_room = 0;          // a head was read, and what ran left no room
    void add(const RestoreCounts& more);
    friend bool operator==(const RestoreCounts&, const RestoreCounts&) = default;
};

class Tiers {
public:
    // `is_timed` false: reads and writes wait for nothing.
    Tiers(const TiersConfig& config, bool is_timed);

    [[nodiscard]] bool any() const { return !tiers_.empty(); }
    void keep(const Head& head, int64_t now_ns);
    // A request comes.
    void tick();
    // Of each tier the longest head with at most `max_length` tokens, all of them the first ones of `tokens`.
    [[nodiscard]] std::vector<FoundHead> find(const CacheSalt& salt, const TokenSeq& tokens,
                                              const std::string& numerics_id, int64_t max_length) const;
    // Until it would be in memory, if it is read from now on.
    [[nodiscard]] int64_t expected_read_ns(const FoundHead& found, int64_t now_ns) const;
    // Reads it: when it is in memory.
    int64_t read(const FoundHead& found, int64_t now_ns);
    [[nodiscard]] bool has(const FoundHead& found) const { return tiers_.at(found.tier)->has(found.id); }
    [[nodiscard]] const TokenSeq& tokens_of(const FoundHead& found) const;  // REQUIRES: has(found)
    // Of runs without time: which of the heads is read.
    [[nodiscard]] HeadChoice choose(std::vector<FoundHead> heads, int64_t num_held) const;

    [[nodiscard]] std::vector<TierCounts> counts() const;
    void verify();

private:
    std::vector<std::unique_ptr<Tier>> tiers_;
    RestoreRule rule_;  // of runs without time
};

}  // namespace verbatim
