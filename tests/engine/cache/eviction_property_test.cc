// Whatever happens to a cache: no head that was used longer ago than a victim stays, unless evicting it buys nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "engine/base/prng.h"
#include "engine/cache/cache.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

// A cache under random calls, and what the property needs to know of every head: when it was used, and whether.
class EvictionWorld {
public:
    explicit EvictionWorld(uint64_t seed) : prng_(seed), cache_(draw_config(), policy_) {
        for (uint64_t& weight : weights_) weight = 1 + prng_.below(8);
        cache_.on_gone([this](const Head& head, NotReused reason) {
            if (reason == NotReused::kEvicted) expect_no_older_head_stays(head.id);
            known_.erase(head.id);
        });
    }

    void operate() {
        uint64_t drawn = prng_.below(weights_[0] + weights_[1] + weights_[2] + weights_[3]);
        size_t operation = 0;
        while (drawn >= weights_[operation]) drawn -= weights_[operation++];
        switch (operation) {
            case 0: return run_turn();
            case 1: return hold();
            case 2: return let_go();
            default: return evict();
        }
    }
    void check() {
        std::vector<Cache::Holder> holders;
        for (const Holding& holding : held_) holders.push_back({&salt_, &holding.memory, holding.num_tokens, nullptr});
        cache_.verify(holders);
    }
    [[nodiscard]] int64_t num_evicted() const { return num_evicted_; }
    [[nodiscard]] int64_t num_older_that_stayed() const { return num_older_that_stayed_; }

private:
    struct Known {
        int64_t last_use = 0;  // the publication, or the last attach
        bool proven = false;   // a turn's head, or attached to
        TokenSeq tokens;
    };
    struct Holding {
        SequenceMemory memory;
        int64_t num_tokens = 0;
    };

    CacheConfig draw_config() {
        CacheConfig config;
        config.pools = {.block_size = 4,
                        .num_blocks = 8 + static_cast<int32_t>(prng_.below(40)),
                        .num_state_rows = 4 + static_cast<int32_t>(prng_.below(16))};
        config.lookup = prng_.below(2) == 0 ? LookupMode::kConversation : LookupMode::kPrefix;
        return config;
    }

    HeadId any_head() {
        if (known_.empty() || prng_.below(4) == 0) return kNoHead;
        return std::next(known_.begin(), static_cast<std::ptrdiff_t>(prng_.below(known_.size())))->first;
    }
    std::optional<SequenceMemory> attach(HeadId head) {
        auto memory = cache_.attach(head);
        if (memory && head != kNoHead) {
            known_.at(head).last_use = ++now_;
            known_.at(head).proven = true;
        }
        return memory;
    }
    void publish(const ConversationKey& key, HeadKind kind, PendingMemory pending) {
        // The cache tells of heads that go inside the call: the new one may be among them.
        const HeadId next{num_published_++};
        known_[next] = {++now_, kind == HeadKind::kTurn, pending.tokens};
        short_ = Pool::kState;  // where there are too many heads (C6)
        EXPECT_EQ(cache_.publish({key, kind, "a/1", std::move(pending)}, {}), next);
    }

    // From a head or from nothing: a prompt head if there is a row for it, then the turn's, in the same block or not.
    void run_turn() {
        const HeadId from = any_head();
        auto memory = attach(from);
        if (!memory) return;
        TokenSeq tokens = from == kNoHead ? TokenSeq{} : known_.at(from).tokens;
        const int64_t prompt = tokens.size() + 1 + static_cast<int64_t>(prng_.below(9));
        const int64_t end = prompt + 1 + static_cast<int64_t>(prng_.below(5));
        tokens.append(store_.derive(next_space_++, 0, end - tokens.size()));
        if (cache_.grow(*memory, end)) {
            const ConversationKey key{salt_, fmt::format("c{}", prng_.below(6))};
            if (prng_.below(2) == 0) {
                auto snapshot = cache_.snapshot(*memory, tokens.slice(0, prompt));
                if (snapshot) publish(key, HeadKind::kPrompt, *std::move(snapshot));
            }
            cache_.unpin(*memory);
            publish(key, HeadKind::kTurn, cache_.detach_as_pending(*memory, tokens));
        }
        cache_.release(*memory);
    }

    // A sequence that stays; half of them keep their head pinned.
    void hold() {
        const HeadId from = any_head();
        if (held_.size() >= 3 || from == kNoHead) return;
        const int64_t length = known_.at(from).tokens.size();
        auto memory = attach(from);
        if (!memory) return;
        if (prng_.below(2) == 0) cache_.unpin(*memory);
        held_.push_back({std::move(*memory), length});
    }

    void let_go() {
        if (held_.empty()) return;
        const auto gone = held_.begin() + static_cast<std::ptrdiff_t>(prng_.below(held_.size()));
        cache_.release(gone->memory);
        held_.erase(gone);
    }

    void evict() {
        short_ = prng_.below(2) == 0 ? Pool::kKv : Pool::kState;
        const auto more = 1 + static_cast<int32_t>(prng_.below(4));
        const bool made =
            short_ == Pool::kKv
                ? cache_.make_room({.kv_blocks = cache_.kv().pool().num_free() + more}, {.spare_expected = false})
                : cache_.make_room({.state_rows = cache_.state().pool().num_free() + more}, {.spare_expected = false});
        if (!made) expect_nothing_is_left();
    }

    // --- the property

    // While the victim is still there.
    void expect_no_older_head_stays(HeadId victim) {
        const Known& went = known_.at(victim);
        ++num_evicted_;
        for (const auto& [id, known] : known_) {
            if (cache_.num_pins(id) > 0 || known.last_use >= went.last_use) continue;
            ++num_older_that_stayed_;
            // For rows only one that counts more; for blocks only one whose blocks another needs.
            const bool may_stay =
                short_ == Pool::kState ? known.proven && !went.proven : buys_nothing(id, went.last_use);
            EXPECT_TRUE(may_stay) << "head " << index(id) << " of use " << known.last_use << " stays, head "
                                  << index(victim) << " of use " << went.last_use << " goes";
        }
    }

    void expect_nothing_is_left() {
        for (const auto& [id, known] : known_) {
            const bool may_stay = cache_.num_pins(id) > 0 || (short_ == Pool::kKv && buys_nothing(id, now_ + 1));
            EXPECT_TRUE(may_stay) << "head " << index(id) << " could have made room";
        }
    }

    std::set<int32_t> blocks_of(const BlockTable& table) const {
        std::set<int32_t> blocks;
        for (const auto& [first, count] : cache_.kv().runs(table)) {
            for (int32_t i = 0; i < count; ++i) blocks.insert(index(first) + i);
        }
        return blocks;
    }
    // Every one of its blocks is also a sequence's, a pinned head's, or a head's that was used at `since` or later.
    bool buys_nothing(HeadId id, int64_t since) const {
        std::set<int32_t> blocks = blocks_of(cache_.find(id)->blocks);
        const auto leave_out = [&](const BlockTable& table) {
            for (const int32_t block : blocks_of(table)) blocks.erase(block);
        };
        for (const Holding& holding : held_) leave_out(holding.memory.blocks);
        for (const auto& [other, known] : known_) {
            if (other != id && (cache_.num_pins(other) > 0 || known.last_use >= since)) {
                leave_out(cache_.find(other)->blocks);
            }
        }
        return blocks.empty();
    }

    Prng prng_;
    LruEviction policy_;
    TokenStore store_{1000};
    CacheSalt salt_;
    Cache cache_;
    std::map<HeadId, Known> known_;  // that live
    std::vector<Holding> held_;
    Pool short_ = Pool::kKv;  // what heads are evicted for
    uint64_t weights_[4];
    int64_t now_ = 0;
    int64_t num_published_ = 0;
    uint64_t next_space_ = 1;
    int64_t num_evicted_ = 0;
    int64_t num_older_that_stayed_ = 0;
};

TEST(EvictionProperty, NoOlderHeadThanAVictimStaysUnlessItsBytesAreUseless) {
    const RandomCases cases = RandomCases::from_environment(300);
    int64_t num_evicted = 0;
    int64_t num_older_that_stayed = 0;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count && !::testing::Test::HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        EvictionWorld world(seed);
        for (int i = 0; i < 150; ++i) world.operate();
        world.check();
        num_evicted += world.num_evicted();
        num_older_that_stayed += world.num_older_that_stayed();
    }
    if (cases.count < 10) return;
    EXPECT_GT(num_evicted, static_cast<int64_t>(cases.count)) << "the cases try nothing";
    EXPECT_GT(num_older_that_stayed, 0) << "no case where bytes buy nothing";
}

}  // namespace
}  // namespace verbatim::tests
