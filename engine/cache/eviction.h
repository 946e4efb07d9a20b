// engine/cache/eviction.h: chooses the head to evict when memory is missing.
//
// A policy ranks heads. The order keeps them sorted as they are published, used, pinned and evicted, so that a choice
// calls no policy.
//   V1  the head of the lowest rank goes first, heads that waiting requests will attach to last; a pinned head is not
//       in the order
//   V2  for blocks only a head at the top of its segment may go. Evicting any other head would free nothing, since a
//       longer head, which goes first, or a sequence also holds its last block. Of heads that end in one block, the one
//       of the highest rank is offered: alone, none of them frees anything
//   V3  for state rows, snapshots that no request has attached to go first. Heads that have proven themselves go after
//       them: turn heads, where conversations go on, and every head that was used before
//   V4  by worth, the last head whose tokens came back goes after all others, until two more requests are admitted: a
//       prompt that is repeated enters the cache, however little it is worth
//   V5  by worth, no head is ranked before one has to go: a cache with room for all heads ranks none
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/indexed_heap.h"
#include "engine/cache/age_queues.h"
#include "engine/cache/head.h"
#include "engine/cache/head_table.h"
#include "engine/cache/kv_group.h"
#include "engine/cache/reuse_model.h"

namespace verbatim {

enum class Pool : uint8_t { kKv, kState };

// What the head saves, and what its end gives back, given the other heads that are there.
struct HeadValue {
    int64_t operations = 0;  // to compute the head from the longest other head that is a prefix of it
    int64_t bytes = 0;       // that only this head holds
    friend bool operator==(const HeadValue&, const HeadValue&) = default;
};

// A head as a policy ranks it: when it is published (num_uses 0), at every attach, and, if the policy ranks by age,
// when it has grown older.
struct HeadUse {
    HeadId head = kNoHead;
    HeadKind kind = HeadKind::kTurn;
    int32_t age = 0;         // when it was ranked: ReuseModel::bucket_of the admissions since the last use
    int32_t generation = 0;  // Head::generation
    int32_t num_uses = 0;    // attached so often
    int64_t length = 0;      // tokens
    int64_t now = 0;         // counts publications and uses: ascending
    HeadValue worth;         // when it was looked at last
    [[nodiscard]] HeadClass head_class() const { return {kind, num_uses, generation}; }
    [[nodiscard]] int32_t class_number() const { return ReuseModel::class_of(head_class()); }
};

class EvictionPolicy {
public:
    virtual ~EvictionPolicy() = default;
    // The head's place until it is used again, or is older by a half octave of admissions: the lowest goes first.
    [[nodiscard]] virtual int64_t rank(const HeadUse& use) = 0;
    // Whether ranks depend on age and worth. If not, a use never lowers a rank.
    [[nodiscard]] virtual bool ranks_by_worth() const { return false; }
    // A head was used at this age, or a head of this class (ReuseModel::class_of) came to this age without a use; also
    // heads whose memory is gone (ghosts).
    virtual void note_used(const HeadClass& /*head*/, int32_t /*age*/) {}
    virtual void note_reached(int32_t /*head_class*/, int32_t /*age*/) {}
    // True: the lowest rank goes first, without the rules V2 and V3.
    [[nodiscard]] virtual bool goes_by_rank_alone() const { return false; }
};

// Least recently used first.
class LruEviction final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override { return use.now; }
};

// Least value per byte first: the operations that the head saves, times its chance of a use per admission as learned
// from this run, over the bytes that its end gives back. docs/cache.md has the reasons.
class ValueEviction final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override;
    [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
    [[nodiscard]] bool ranks_by_worth() const override { return true; }
    void note_used(const HeadClass& head, int32_t age) override;
    void note_reached(int32_t head_class, int32_t age) override { model_.note_reached(head_class, age); }

private:
    struct Logarithm {
        uint64_t of = 1;
        int64_t log2 = 0;  // in units of 2^-16
    };
    [[nodiscard]] int64_t log2_of(int64_t x);

    ReuseModel model_;
    std::array<Logarithm, 256> logarithms_{};  // computed lately
};

class EvictionOrder {
public:
    // Both are borrowed for the order's life.
    EvictionOrder(EvictionPolicy& policy, KvGroup& kv);
    // Says what a head is worth now. Needed by policies that rank by worth.
    void set_worth(std::function<HeadValue(const Head&)> worth) { worth_ = std::move(worth); }

    // A request is admitted: the heads and the ghosts grow older.
    void tick();
    void add(const Head& head);  // published
    // The head took the place of a ghost: its uses count on. REQUIRES: the ghost is known.
    void add(const Head& head, HeadId ghost);
    // `shorter` is a prefix of `longer`, which is about to go: what would have attached to the longer one attaches to
    // it. It takes over kind, uses and age where these promise more.
    void stand_in(HeadId shorter, HeadId longer);
    // What the head is worth has changed: another one has gone.
    void note_worth(HeadId head) { rank_again(entry(head)); }
    // The head is gone, and its class and age go on being followed.
    void remove_to_ghost(HeadId head);
    // A prompt would have attached to a head that is gone.
    void use_ghost(HeadId ghost);
    void forget_ghost(HeadId ghost);
    [[nodiscard]] int32_t generation_of_ghost(HeadId ghost) const;  // REQUIRES: the ghost is known
    [[nodiscard]] size_t num_ghosts() const { return ghosts_.size(); }
    [[nodiscard]] bool follows_ghosts() const { return policy_.ranks_by_worth(); }
    void use(HeadId head);
    void pin(HeadId head);    // out of the order until as many unpins have come
    void unpin(HeadId head);  // REQUIRES: pinned
    // A waiting request will attach to the head; it no longer will. What is gone is not missed.
    void expect(HeadId head);
    void unexpect(HeadId head);
    void remove(HeadId head);  // REQUIRES: not pinned

    struct Reach {
        HeadId except = kNoHead;     // this one stays
        bool spare_expected = true;  // and those that waiting requests will attach to
        bool spare_proven = false;   // and all but snapshots that no request has attached to
    };
    // The head to evict because `pool` is short. Empty when no head may go.
    [[nodiscard]] std::optional<HeadId> first(Pool pool, const Reach& reach);
    [[nodiscard]] int64_t num_pins(HeadId head) const;
    [[nodiscard]] std::vector<HeadId> in_order() const;  // every head that is not pinned, the first to go first

    // Keys and heads looked at so far: what choosing costs, for tests that time would not be steady enough for.
    [[nodiscard]] int64_t num_visits() const { return num_visits_; }
    // V1, V2 from scratch; `heads` are all there are.
    void verify(std::span<const Head* const> heads);
    // That each head is expected as often as it is listed; what is gone may be listed.
    void verify_expected(std::span<const HeadId> expected) const;

private:
    struct Key {
        int64_t rank = 0;
        HeadId head = kNoHead;
        uint32_t number = 0;    // entries_' number of the head; in tops_, the segment's
        bool expected = false;  // these go last
        bool proven = false;    // for state rows; for blocks, and where the rank alone counts, false
        friend bool operator<(const Key& a, const Key& b) {
            return std::tie(a.expected, a.proven, a.rank, a.head) < std::tie(b.expected, b.proven, b.rank, b.head);
        }
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct Entry {
        const Head* of = nullptr;
        HeadUse use;
        int64_t rank = 0;
        SegmentId segment = kNoSegment;
        uint32_t number = 0;              // in entries_
        uint32_t age = AgeQueues::kNone;  // the number in ages_
        int32_t num_pins = 0;
        int32_t num_expected = 0;
        bool proven = false;
    };
    // What is followed of a head that is gone.
    struct Ghost {
        HeadClass head;
        uint32_t age = AgeQueues::kNone;
    };
    Entry& entry(HeadId head);
    [[nodiscard]] const Entry& entry(HeadId head) const;
    [[nodiscard]] static Key key_of(const Entry& entry);
    [[nodiscard]] bool is_offered(SegmentId segment, HeadId head) const;
    void place(const Entry& entry);
    void add(const Head& head, const HeadUse& use);
    [[nodiscard]] int32_t age_of(const Entry& entry) const;
    void rank(Entry& entry) const;
    void rank_again(Entry& entry);
    void rank_all();
    void note_returned(HeadId head);
    [[nodiscard]] Ghost& ghost(HeadId head);
    void refresh(SegmentId segment);
    [[nodiscard]] std::optional<Key> top_of(SegmentId segment) const;
    [[nodiscard]] std::optional<HeadId> first_of(const IndexedHeap<Key>& order, const Reach& reach) const;

    EvictionPolicy& policy_;
    KvGroup& kv_;
    HeadTable<Entry> entries_;
    IndexedHeap<Key> all_;   // that are not pinned
    IndexedHeap<Key> tops_;  // of them, one for each segment whose top only heads hold; none by rank alone
    int64_t now_ = 0;
    bool is_ranked_;  // V5; else no head is in all_ and tops_
    // For policies that rank by worth.
    std::function<HeadValue(const Head&)> worth_;
    HeadTable<Ghost> ghosts_;
    AgeQueues ages_;             // of heads and ghosts
    HeadId returned_ = kNoHead;  // was used last, or published in the place of a ghost that had been used
    int64_t returned_at_ = 0;    // the admission
    mutable int64_t num_visits_ = 0;
};

}  // namespace verbatim
