// engine/cache/cache.h: owns heads, names and pendings, and the numbers of the memory under them (steps 3, 4 and 7).
//   C1  a unit's ref_cnt is the number of heads, pendings and sequences that hold it                      (I1)
//   C2  no unit is held under two salts                                                                   (I2)
//   C3  a head is published when its bytes are materialised, with KV and state at one length, or not at all (I7)
//   C4  a lookup depends on the names and heads of its own salt only                                      (I4)
//   C5  a pinned head is not evicted, nor for blocks one whose every block a running sequence holds: that would free nothing
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/base/result.h"
#include "engine/cache/eviction.h"
#include "engine/cache/head.h"
#include "engine/cache/kv_group.h"
#include "engine/cache/name.h"
#include "engine/cache/prefix_index.h"
#include "engine/cache/state_group.h"

namespace verbatim {

enum class LookupMode : uint8_t {
    kConversation,  // heads of the conversation's name
    kPrefix,        // those, and the longest committed prefix in the salt
};

struct CacheConfig {
    bool has_kv = true;       // the model has attention layers
    bool has_state = true;    // the model has Mamba layers
    int32_t block_size = 16;  // tokens
    int32_t num_blocks = 0;
    int32_t num_state_rows = 0;
    int64_t kv_bytes_per_block = 0;
    int64_t state_bytes_per_row = 0;
    LookupMode lookup = LookupMode::kConversation;
    int32_t keep_turn_heads = 2;  // newest of a name; older ones are let go
    int32_t keep_prompt_heads = 1;
    int32_t keep_checkpoints = 4;
};
[[nodiscard]] Status validate(const CacheConfig& config);

// What a running sequence holds.
struct SequenceMemory {
    BlockTable blocks;
    int32_t num_shared_blocks = 0;    // the first ones, of the attached head
    StateIndex state = kNoState;      // its own row
    StateIndex state_src = kNoState;  // what its first step reads: the head's row, or kNoState for zero
    std::optional<BlockCopy> copy;    // the tail, to be carried out in its first step
    HeadId pinned = kNoHead;          // attached head, until the first step is materialised
};

// Prompt tokens [previous end, end) were not reused for this reason.
struct NotReusedRange {
    int64_t end = 0;
    NotReused reason = NotReused::kNewTokens;
    friend bool operator==(const NotReusedRange&, const NotReusedRange&) = default;
};

struct LookupQuery {
    const ConversationKey& key;
    const TokenSeq& tokens;
    int64_t num_committed = 0;    // the ledger's tokens and `tokens` agree on so many
    std::optional<int64_t> seam;  // position of the committed token that is not resident, when inside num_committed
    bool use_cache = true;
    bool deterministic = true;  // only heads of `numerics_id`
    std::string numerics_id;
};
struct LookupResult {
    HeadId head = kNoHead;
    int64_t length = 0;                      // tokens reused by attaching to it
    std::vector<NotReusedRange> not_reused;  // of [length, tokens.size()), ascending
};

// What a turn has computed and not yet published.
enum class PendingId : int64_t {};
struct Pending {
    RequestId request{};
    ConversationKey key;
    HeadKind kind = HeadKind::kTurn;
    std::string numerics_id;  // what made all of it
    TokenSeq tokens;
    BlockTable blocks;            // its own references
    StateIndex state = kNoState;  // its own row
    int64_t staged_step = 0;      // the step that writes its last byte
};

class Cache final : private EvictionView {
public:
    // `policy` is borrowed for the cache's life. REQUIRES: validate(config) has no problem.
    Cache(const CacheConfig& config, EvictionPolicy& policy);

    [[nodiscard]] LookupResult lookup(const LookupQuery& query) const;

    // Memory for a sequence that goes on from `head` (kNoHead: from zero): shared blocks, an own tail block, an own row. Pins the
    // head. Empty when a pool is short; then nothing has changed.
    [[nodiscard]] std::optional<SequenceMemory> attach(HeadId head);
    [[nodiscard]] bool grow(SequenceMemory& memory, int64_t num_tokens) { return kv_.grow(memory.blocks, num_tokens); }
    void unpin(SequenceMemory& memory);
    void release(SequenceMemory& memory);

    // Evicts heads until `kv_blocks` and `state_rows` units are free or fenced; of a group that the model does not have, none are
    // asked for. False when no head may go any more.
    bool make_room(int32_t kv_blocks, int32_t state_rows, HeadId except = kNoHead);

    // The sequence's memory as a pending of all it has computed: `tokens`, and nothing beyond them. Moves, copies nothing.
    [[nodiscard]] Pending hand_over(SequenceMemory& memory, TokenSeq tokens);
    // A pending over the sequence's first tokens: its blocks by reference, and a row of its own to be written as the scan passes.
    // Empty when no row is free.
    [[nodiscard]] std::optional<Pending> snapshot(const SequenceMemory& memory, TokenSeq tokens);

    // Step 7. A pending holds its blocks by reference and owns its row.
    PendingId stage(Pending pending);
    [[nodiscard]] const Pending& pending(PendingId id) const;
    // REQUIRES: its bytes are materialised. A turn head also takes every head off the name that is no prefix of it.
    HeadId publish(PendingId id, const Digest& digest);
    void discard(PendingId id);

    // Names. `rewind` takes off every head longer than `length`; a missing name is not an error (nothing was published). `fork`
    // takes the place of what turns that never committed have left under `to`. After `remove` nothing that this name alone has
    // published is found by anybody.
    void fork(const ConversationKey& from, const ConversationKey& to);
    void rewind(const ConversationKey& key, int64_t length);
    void remove(const ConversationKey& key);

    // The executor's pools are gone, and every head's bytes with them. REQUIRES: nothing is pinned or pending.
    void lose_heads();

    void begin_step(int64_t step);
    void complete_step(int64_t step);

    [[nodiscard]] const Head* find(HeadId id) const;
    [[nodiscard]] const Name* find(const ConversationKey& key) const;
    [[nodiscard]] bool knows(const ConversationKey& key) const;  // a name, or a pending that will make one
    [[nodiscard]] std::vector<const Head*> heads() const;        // least recently used first
    [[nodiscard]] size_t num_pendings() const { return pendings_.size(); }
    [[nodiscard]] KvGroup& kv() { return kv_; }
    [[nodiscard]] StateGroup& state() { return state_; }
    [[nodiscard]] const KvGroup& kv() const { return kv_; }
    [[nodiscard]] const StateGroup& state() const { return state_; }
    [[nodiscard]] const CacheConfig& config() const { return config_; }

    // What a sequence outside the cache holds, and under which salt: verify's other half.
    struct Holder {
        const SequenceMemory* memory;
        const CacheSalt* salt;
        int64_t num_computed_tokens;
    };
    // C1, C2, C3, C5 and the pools' invariants from scratch. O(units + heads).
    void verify(std::span<const Holder> sequences) const;

    // Told of every head that leaves the cache, before it goes.
    void on_gone(std::function<void(const Head&, NotReused)> listener) { gone_listener_ = std::move(listener); }

private:
    [[nodiscard]] std::optional<HeadId> first() const override;
    [[nodiscard]] std::optional<HeadId> after(HeadId head) const override;
    [[nodiscard]] MarginalBytes marginal_bytes(HeadId head) const override;
    [[nodiscard]] int64_t recompute_tokens(HeadId head) const override;

    [[nodiscard]] HeadId deepest_of_name(const LookupQuery& query, int64_t max_length) const;
    [[nodiscard]] NotReusedRange missed_of_name(const LookupQuery& query, int64_t max_length, int64_t reused) const;
    [[nodiscard]] std::optional<HeadId> evictable_from(std::list<HeadId>::const_iterator place) const;
    Head& head_ref(HeadId id);
    void touch(Head& head);
    void list_head(Name& name, Head& head);
    void let_go(Name& name, size_t entry);
    void retain_newest(Name& name, HeadKind kind, int32_t keep);
    void keep_prefixes_of(Name& name, const TokenSeq& tokens);
    void disown(Name& name, HeadId id);
    void drop_if_empty(Name& name);
    void destroy(Head& head, NotReused reason);
    void destroy_if_unreachable(HeadId id, NotReused reason);

    CacheConfig config_;
    EvictionPolicy& policy_;
    KvGroup kv_;
    StateGroup state_;
    std::unordered_map<HeadId, std::unique_ptr<Head>> heads_;
    std::list<HeadId> lru_;  // least recently used first
    std::map<ConversationKey, std::unique_ptr<Name>> names_;
    std::map<PendingId, Pending> pendings_;
    PrefixIndex prefixes_;  // used with LookupMode::kPrefix
    HeadId eviction_exception_ = kNoHead;
    Pool eviction_pool_ = Pool::kKv;  // that is short
    int64_t next_head_ = 0;
    int64_t next_pending_ = 0;
    std::function<void(const Head&, NotReused)> gone_listener_;
};

}  // namespace verbatim
