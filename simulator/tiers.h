// simulator/tiers.h: owns the tiers behind a simulated device: which evicted heads they keep, and which of them a
// request waits for.
//
// A head that memory evicts goes to the first tier; what goes from a tier goes to the next one. A head that is read
// stays where it was. A request reads the longest head that its prompt begins with, if memory has less of the prompt
// and RestoreRule expects that to be quicker than computing; of tiers that have it the first one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
    // A step of the engine took so long.
    void note_step(const RestoreRule::StepTokens& tokens, int64_t took_ns) { rule_.note_step(tokens, took_ns); }

    // A prompt, and what memory has of it.
    struct Prompt {
        const CacheSalt& salt;
        const TokenSeq& tokens;
        const std::string& numerics_id;
        int64_t num_held = 0;      // tokens of the head that it would attach to
        int64_t num_resident = 0;  // tokens whose KV is there
    };
    // A head that is read.
    struct Read {
        TokenSeq tokens;
        int64_t num_held = 0;
        int64_t end_ns = 0;  // when it is in memory
    };
    // Begins to read a head for the prompt. Empty: none is worth it; `num_unrestored` then says how many tokens a head
    // has that is not read (ChatRequest::num_unrestored).
    [[nodiscard]] std::optional<Read> read(const Prompt& prompt, int64_t now_ns, int64_t& num_unrestored);

    [[nodiscard]] std::vector<TierCounts> counts() const;
    [[nodiscard]] int64_t num_not_worth() const { return num_not_worth_; }
    void verify();

private:
    std::vector<std::unique_ptr<Tier>> tiers_;
    RestoreRule rule_;
    int64_t num_not_worth_ = 0;
};

}  // namespace verbatim
