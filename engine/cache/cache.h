// engine/cache/cache.h: owns heads and the numbers of the memory under them (steps 3 and 4, and the heads of step 7).
// Which conversation lists them is Names' to say.
//   C1  a unit is used while heads, pendings and sequences hold it, and no longer                         (I1)
//   C2  no unit is held under two salts                                                                   (I2)
//   C3  a head has KV and state at one length                                                             (I7)
//   C4  a lookup depends on the names and heads of its salt only                                          (I4)
//   C5  a pinned head is not evicted
//   C6  there are no more heads than units of memory: heads that cost nothing are bounded, too
//   C7  blocks and rows, fenced ones among them, hold no more bytes together than the budget has
//
// A head lives while a name lists it, its tokens find it, or something is pinned to it:
//   publish  ->  listed by its name  -- let go, rewound -->  found by its tokens only (LookupMode::kPrefix)  ->  gone
//                                    -- evicted, deleted, lost: off every list at once -------------------->  gone
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/cache/eviction.h"
#include "engine/cache/head.h"
#include "engine/cache/kv_group.h"
#include "engine/cache/lookup.h"
#include "engine/cache/name.h"
#include "engine/cache/names.h"
#include "engine/cache/prefix_history.h"
#include "engine/cache/prefix_index.h"
#include "engine/cache/state_group.h"
#include "engine/pool_sizes.h"

namespace verbatim {

struct CacheConfig {
    bool has_kv = true;     // the model has attention layers
    bool has_state = true;  // the model has Mamba layers
    PoolSizes pools;
    LookupMode lookup = LookupMode::kConversation;
    int32_t keep_turn_heads = 2;  // newest of a name; older ones are let go
    int32_t keep_prompt_heads = 1;
    int32_t keep_checkpoints = 4;  // the newest 4; those beyond are spread over what lies before (names.cc)
    // One number of bytes for blocks and rows in any mix; 0: the pools' sizes alone bound them.
    int64_t budget_bytes = 0;
    int64_t kv_block_bytes = 0;
    int64_t state_row_bytes = 0;
    // What computing a token costs, for the value of a head: operations, and more for each position before it.
    int64_t operations_per_token = 1;
    int64_t operations_per_pair = 0;
    int32_t history_boundaries = 0;  // prefixes of earlier prompts that are known at most (PrefixHistory)
};
[[nodiscard]] std::vector<std::string> problems_of(const CacheConfig& config);
[[nodiscard]] Status validate(const CacheConfig& config);
// Whether a cache of this configuration remembers prompts: without that, Cache::Seen says no more than the heads that
// are there.
[[nodiscard]] bool learns(const CacheConfig& config);

// What a head of `length` tokens saves where one of its first `begin` tokens is there; it gives `exclusive` back.
[[nodiscard]] HeadValue head_value(const CacheConfig& config, int64_t begin, int64_t length,
                                   const KvGroup::Exclusive& exclusive);

// What a running sequence holds.
struct SequenceMemory {
    BlockTable blocks;
    int32_t num_shared_blocks = 0;    // the first ones, of the attached head
    StateIndex state = kNoState;      // the row that it writes
    StateIndex state_src = kNoState;  // what its first step reads: the head's row, or kNoState for zero
    std::optional<BlockCopy> copy;    // the tail, to be carried out in its first step
    HeadId pinned = kNoHead;          // attached head, until the first step is materialised
    int64_t last_step = kNoStep;      // that writes its blocks and its row
    PrefixChain chain;                // of the tokens that it was attached to
    int32_t generation = 0;           // of the heads that it publishes
};

// The memory of a turn that is computed and not yet published: blocks by reference, and a separate row.
struct PendingMemory {
    TokenSeq tokens;  // resident
    BlockTable blocks;
    StateIndex state = kNoState;
    PrefixChain chain;  // of a part of the tokens
    int32_t generation = 0;
    int32_t num_resident_blocks = 0;  // of tokens that were computed elsewhere: the first ones, which other heads share
};

// What a pending becomes.
struct HeadDraft {
    ConversationKey key;
    HeadKind kind = HeadKind::kTurn;
    std::string numerics_id;  // what made all of it
    PendingMemory memory;
};

class Cache {
public:
    // `policy` is borrowed for the cache's life. REQUIRES: validate(config) has no problem.
    Cache(const CacheConfig& config, EvictionPolicy& policy);

    [[nodiscard]] LookupResult lookup(const LookupQuery& query) const;
    // What earlier prompts and heads say of a prompt.
    struct Seen {
        // Where the prompt leaves what earlier prompts had in common with it, in tokens; 0 where that is not beyond
        // what it found. A state there serves the next prompt that parts there.
        int64_t branch = 0;
        // Tokens that an unlimited cache would have reused, as far as the history knows: at least what was found.
        int64_t reusable = 0;
    };
    // A request of this prompt is admitted and has attached to what was found. Every head and ghost grows older by one
    // admission; on the first admission `found` learns for which tokens room was the reason.
    Seen observe(const LookupQuery& query, LookupResult& found, SequenceMemory& memory);

    // Memory for a sequence that goes on from `head` (kNoHead: from zero): shared blocks, an own tail block, an own
    // row. Pins the head. Empty when a pool is short; then nothing has changed.
    [[nodiscard]] std::optional<SequenceMemory> attach(HeadId head) {
        return attach(head, head == kNoHead ? 0 : find(head)->length());
    }
    // From the head's first `length` tokens. REQUIRES: all of them, or full blocks of a model without state.
    [[nodiscard]] std::optional<SequenceMemory> attach(HeadId head, int64_t length);
    // The same from a running sequence's first `length` tokens, at which its row stands. Nothing is pinned: it is read
    // as long as the sequence holds it.
    [[nodiscard]] std::optional<SequenceMemory> branch(const SequenceMemory& from, int64_t length);
    [[nodiscard]] bool grow(SequenceMemory& memory, int64_t num_tokens) { return kv_.grow(memory.blocks, num_tokens); }
    void unpin(SequenceMemory& memory);
    void release(SequenceMemory& memory);

    // A waiting request will attach to the head, and goes without it when others need its memory more
    // (EvictionOrder::expect).
    void expect(HeadId head) { order_.expect(head); }
    void unexpect(HeadId head) { order_.unexpect(head); }
    void verify_expected(std::span<const HeadId> expected) const { order_.verify_expected(expected); }

    struct Room {
        int32_t kv_blocks = 0;
        int32_t state_rows = 0;
    };
    // Evicts heads until so many units are free or will be when open steps are complete; of a group that the model does
    // not have, none are asked for. False when no head within reach may go any more.
    bool make_room(Room wanted, const EvictionOrder::Reach& reach);

    // The sequence's memory as a pending of all it has computed: `tokens`, and nothing beyond them. Moves, copies
    // nothing.
    [[nodiscard]] PendingMemory detach_as_pending(SequenceMemory& memory, TokenSeq tokens);
    // A pending over the sequence's first tokens: its blocks by reference, and a separate row to be written as the
    // scan passes. Empty when no row is free.
    [[nodiscard]] std::optional<PendingMemory> snapshot(const SequenceMemory& memory, TokenSeq tokens);
    // A head that begins with the first `length` of some tokens, all of them in its full blocks.
    struct Resident {
        HeadId head = kNoHead;
        int64_t length = 0;
    };
    // The one that has the most of them, found by tokens. Nothing where heads are found by conversation alone.
    [[nodiscard]] Resident resident_prefix(const CacheSalt& salt, const TokenSeq& tokens,
                                           const std::string& numerics_id) const;
    // A pending of tokens that were computed elsewhere: it shares the blocks that are resident; the others and the row
    // hold nothing yet. Evicts heads if room is short. Empty when what runs leaves no room.
    [[nodiscard]] std::optional<PendingMemory> make_pending(const CacheSalt& salt, TokenSeq tokens,
                                                            const std::string& numerics_id);
    // What a head that was computed elsewhere becomes: a name's longest head is its turn head, and a shorter one must
    // not take it off.
    [[nodiscard]] HeadKind kind_of_import(const ConversationKey& key, int64_t length) const;
    // Steps up to `busy_through` may still write the row.
    void discard(PendingMemory& memory, int64_t busy_through);

    // Step 7. REQUIRES: the draft's bytes are materialised. A turn head also takes every head off the name that is no
    // prefix of it. A head of the same tokens and arithmetic that the name lists already goes, unless it is of a kind
    // that counts more.
    HeadId publish(HeadDraft draft, const Digest& digest);

    // Names. `rewind` takes off every head longer than `length`; a missing name is not an error (nothing was
    // published). `fork` takes the place of what turns that never committed have left under `to`. After `remove`
    // no lookup finds a head that this name alone has published.
    void fork(const ConversationKey& from, const ConversationKey& to) { destroy_unowned(names_.fork(from, to)); }
    void rewind(const ConversationKey& key, int64_t length) { destroy_unowned(names_.rewind(key, length)); }
    void remove(const ConversationKey& key) { destroy_unowned(names_.remove(key)); }

    // The conversation has committed turns, and had heads of these lengths: the bytes of those that it does not list
    // are lost.
    void note_lost(const ConversationKey& key, std::span<const int64_t> lengths) { names_.note_lost(key, lengths); }
    // The conversation's heads stay, and are listed by it again after note_lost(). Its name goes with the last of them.
    void unload(const ConversationKey& key) { names_.unload(key); }

    // The executor's pools are gone, and every head's bytes with them. REQUIRES: nothing is pinned or pending.
    void lose_heads();

    // Steps up to this one are complete: what they might have written is free.
    void complete_step(int64_t step);
    // Units that become free are listed from now on; take_freed() appends those since the last call.
    void list_freed();
    void take_freed(FreedUnits& freed);

    [[nodiscard]] const Head* find(HeadId id) const { return heads_.find(id); }
    [[nodiscard]] const Name* find(const ConversationKey& key) const { return names_.find(key); }
    [[nodiscard]] size_t num_heads() const { return heads_.size(); }
    // In the order in which they would be evicted for state; pinned ones last.
    [[nodiscard]] std::vector<const Head*> heads() const;
    [[nodiscard]] int64_t num_pins(HeadId head) const { return order_.num_pins(head); }
    [[nodiscard]] KvGroup& kv() { return kv_; }
    [[nodiscard]] const KvGroup& kv() const { return kv_; }
    [[nodiscard]] const StateGroup& state() const { return state_; }
    [[nodiscard]] const CacheConfig& config() const { return config_; }
    [[nodiscard]] const ByteBudget& budget() const { return budget_; }
    [[nodiscard]] const PrefixHistory& history() const { return history_; }
    [[nodiscard]] bool learns() const { return verbatim::learns(config_); }
    // Where the bytes are. Zeros where the config does not say what a unit takes.
    struct BytesByKind {
        int64_t kv_of_sequences = 0;  // blocks that running sequences hold, shared with heads or not
        int64_t kv_of_heads = 0;      // blocks that only heads and pendings hold
        int64_t states = 0;           // rows that are held
        int64_t free = 0;  // of the budget, or of the pools where there is no budget; fenced units among them
    };
    [[nodiscard]] BytesByKind bytes_by_kind() const;
    // The most blocks that could ever be held at the same time as so many rows.
    [[nodiscard]] int32_t num_affordable_blocks(int32_t num_rows) const;
    // Segments, places and heads looked at so far (KvGroup's and EvictionOrder's).
    [[nodiscard]] int64_t num_visits() const { return kv_.num_visits() + order_.num_visits(); }
    // Nodes of the prefix index looked at so far.
    [[nodiscard]] int64_t num_index_visits() const { return prefixes_.num_visits(); }

    // What sequences and pendings hold outside the cache, and under which salt: verify's other half.
    struct Holder {
        const CacheSalt* salt = nullptr;
        const SequenceMemory* sequence = nullptr;
        int64_t num_computed_tokens = 0;  // by the sequence
        const PendingMemory* pending = nullptr;
    };
    // C1, C2, C3, C5, C6 and what is below from scratch. O(units + heads).
    void verify(std::span<const Holder> holders);

    // Called with every head that leaves the cache, before it goes.
    void on_gone(std::function<void(const Head&, NotReused)> listener) { gone_listener_ = std::move(listener); }

private:
    [[nodiscard]] std::optional<SequenceMemory> allocate_from_prefix(const BlockTable& blocks, StateIndex state,
                                                                     int64_t length);
    [[nodiscard]] PrefixIndex::Query by_tokens(const LookupQuery& query, const Head* known) const;
    [[nodiscard]] const Head* newest_prefix_of_name(const ConversationKey& key, const Head& head) const;
    [[nodiscard]] LookupResult find_reusable(const LookupQuery& query, const Name* name) const;
    void reach_into_a_head(const LookupQuery& query, LookupResult& found) const;
    [[nodiscard]] LookupResult find_blocks(const LookupQuery& query) const;
    [[nodiscard]] bool is_found_by_tokens(const Head& head) const;
    [[nodiscard]] HeadId deepest_of_name(const LookupQuery& query, const Name* name) const;
    [[nodiscard]] NotReusedRange missed_of_name(const LookupQuery& query, const Name* name, int64_t reused) const;
    [[nodiscard]] bool evict(Pool pool, const EvictionOrder::Reach& reach);
    [[nodiscard]] const Head* longest_prefix_of(const Head& head) const;
    [[nodiscard]] HeadValue value_of(const Head& head) const;
    [[nodiscard]] size_t max_heads() const;
    Head& head_ref(HeadId id);
    void destroy_unowned(std::span<const HeadId> left);
    void destroy_if_unowned(HeadId id);
    void destroy(Head& head, NotReused reason);

    CacheConfig config_;
    ByteBudget budget_;
    KvGroup kv_;
    StateGroup state_;
    EvictionOrder order_;
    SharedValues<CacheSalt> salts_;  // of heads
    SharedValues<std::string> numerics_ids_;
    HeadMap heads_;
    Names names_;
    PrefixIndex prefixes_;  // used with LookupMode::kPrefix and kBlocks
    PrefixHistory history_;
    int64_t next_head_ = 0;
    std::function<void(const Head&, NotReused)> gone_listener_;
};

}  // namespace verbatim
