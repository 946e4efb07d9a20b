#include "engine/cache/cache.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/planted.h"

namespace verbatim {
namespace {

// The reasons of tokens [attached, tokens.size()), by what the ledger and the name know. `missed` is where a head lay that could
// not be used, and why; 0 when there was none.
std::vector<NotReusedRange> explain(const LookupQuery& query, int64_t attached, NotReusedRange missed) {
    std::vector<NotReusedRange> ranges;
    int64_t done = attached;
    const auto until = [&](int64_t end, NotReused reason) {
        if (end <= done) return;
        ranges.push_back({end, reason});
        done = end;
    };
    const int64_t size = query.tokens.size();
    if (!query.use_cache) {
        until(size, NotReused::kCacheOff);
        return ranges;
    }
    until(missed.end, missed.reason);
    const int64_t committed = std::min(query.num_committed, size - 1);
    if (query.seam && *query.seam < committed) {
        until(*query.seam, NotReused::kBetweenHeads);
        until(*query.seam + 1, NotReused::kSeam);
    }
    until(committed, NotReused::kBetweenHeads);
    if (query.num_committed >= size) until(size, NotReused::kLastToken);
    until(size, query.num_committed == 0 && attached == 0 ? NotReused::kNewConversation : NotReused::kNewTokens);
    return ranges;
}

ConversationKey key_of(const ConversationKey& key) {
    return planted(Planted::kSaltDropped) ? ConversationKey{{}, key.conversation_id} : key;
}

}  // namespace

Status validate(const CacheConfig& config) {
    std::vector<std::string> problems;
    if (config.block_size < 1) problems.push_back(fmt::format("block_size: {} is not >= 1", config.block_size));
    if (config.has_kv && config.num_blocks < 1) {
        problems.push_back(
            fmt::format("num_blocks: {} is not >= 1: the KV budget is less than one block", config.num_blocks));
    }
    if (config.has_state && config.num_state_rows < 1) {
        problems.push_back(fmt::format("num_state_rows: {} is not >= 1: the state budget is less than one row",
                                       config.num_state_rows));
    }
    if (config.keep_turn_heads < 1)
        problems.push_back(fmt::format("keep_turn_heads: {} is not >= 1", config.keep_turn_heads));
    if (config.keep_prompt_heads < 0 || config.keep_checkpoints < 0)
        problems.push_back("a negative number of heads to keep");
    if (problems.empty()) return {};
    return error("cache: {}", fmt::join(problems, "; "));
}

Cache::Cache(const CacheConfig& config, EvictionPolicy& policy)
    : config_(config),
      policy_(policy),
      kv_(config.has_kv, config.block_size, config.num_blocks),
      state_(config.has_state, config.num_state_rows) {
    CHECK(validate(config).has_value());
}

// --- lookup and attach

HeadId Cache::deepest_of_name(const LookupQuery& query, int64_t max_length) const {
    HeadId deepest = kNoHead;
    int64_t length = -1;
    const Name* name = find(query.key);
    if (name == nullptr) return kNoHead;
    for (const NamedHead& entry : name->heads) {
        if (entry.length > max_length || entry.length < length) continue;
        const Head& head = *find(entry.head);
        if (query.deterministic && head.numerics_id != query.numerics_id) continue;
        if (!planted(Planted::kPrefixUnchecked) && !query.tokens.starts_with(head.tokens)) continue;
        deepest = entry.head;
        length = entry.length;
    }
    return deepest;
}

// The longest head of the name, up to `max_length`, that could not be used, if it is longer than what is reused.
NotReusedRange Cache::missed_of_name(const LookupQuery& query, int64_t max_length, int64_t reused) const {
    NotReusedRange missed;
    const auto miss = [&](int64_t length, NotReused reason) {
        if (length > std::max(missed.end, reused) && length <= max_length) missed = {length, reason};
    };
    const Name* name = find(query.key);
    if (name == nullptr) return missed;
    for (const GoneHeads& gone : name->gone) {
        if (gone.first <= max_length) miss(std::min(gone.last, max_length), gone.reason);
    }
    for (const NamedHead& entry : name->heads) {
        const bool usable = !query.deterministic || find(entry.head)->numerics_id == query.numerics_id;
        if (!usable) miss(entry.length, NotReused::kOtherNumerics);
    }
    return missed;
}

LookupResult Cache::lookup(const LookupQuery& query) const {
    LookupResult result;
    const int64_t max_length = query.tokens.size() - 1;  // strictly shorter: one token is computed at least
    NotReusedRange missed;
    if (query.use_cache) {
        result.head = deepest_of_name(query, max_length);
        if (result.head != kNoHead) result.length = find(result.head)->length();
        if (config_.lookup == LookupMode::kPrefix) {
            const auto found = prefixes_.longest_prefix(query.key.salt, query.tokens, max_length,
                                                        query.deterministic ? &query.numerics_id : nullptr);
            if (found && find(*found)->length() > result.length) {
                result.head = *found;
                result.length = find(*found)->length();
            }
        }
        missed = missed_of_name(query, std::min(max_length, query.num_committed), result.length);
    }
    result.not_reused = explain(query, result.length, missed);
    return result;
}

std::optional<SequenceMemory> Cache::attach(HeadId id) {
    SequenceMemory memory;
    const auto row = state_.allocate();
    if (!row) return std::nullopt;
    memory.state = *row;
    if (id == kNoHead) {
        if (planted(Planted::kStaleStateRow)) memory.state_src = memory.state;
        return memory;
    }
    Head& head = head_ref(id);
    auto attached = kv_.attach(head.blocks, head.length());
    if (!attached) {
        state_.release(memory.state);
        return std::nullopt;
    }
    memory.blocks = std::move(attached->table);
    memory.num_shared_blocks = attached->num_shared_blocks;
    memory.copy = attached->copy;
    memory.state_src = planted(Planted::kSkipStateCopy) ? memory.state : head.state;
    memory.pinned = id;
    if (!planted(Planted::kPinForgotten)) ++head.num_pins;
    touch(head);
    return memory;
}

void Cache::unpin(SequenceMemory& memory) {
    const HeadId id = std::exchange(memory.pinned, kNoHead);
    if (id == kNoHead || planted(Planted::kPinForgotten)) return;
    Head& head = head_ref(id);
    CHECK_GT(head.num_pins, 0);
    --head.num_pins;
    destroy_if_unreachable(id, NotReused::kNotRetained);
}

void Cache::release(SequenceMemory& memory) {
    unpin(memory);
    kv_.release_sequence(memory.blocks);
    state_.release(memory.state);
    memory = {};
}

Pending Cache::hand_over(SequenceMemory& memory, TokenSeq tokens) {
    Pending pending;
    pending.blocks = kv_.hand_over(memory.blocks, tokens.size());
    pending.state = std::exchange(memory.state, kNoState);
    pending.tokens = std::move(tokens);
    return pending;
}

std::optional<Pending> Cache::snapshot(const SequenceMemory& memory, TokenSeq tokens) {
    Pending pending;
    const auto row = state_.allocate();
    if (!row) return std::nullopt;
    pending.state = *row;
    pending.blocks = kv_.share(memory.blocks, tokens.size());
    pending.tokens = std::move(tokens);
    return pending;
}

// --- eviction

bool Cache::make_room(int32_t kv_blocks, int32_t state_rows, HeadId except) {
    eviction_exception_ = except;
    const auto short_pool = [&]() -> std::optional<Pool> {
        if (config_.has_kv && kv_.pool().num_free() + kv_.pool().num_fenced() < kv_blocks) return Pool::kKv;
        if (state_.enabled() && state_.pool().num_free() + state_.pool().num_fenced() < state_rows) return Pool::kState;
        return std::nullopt;
    };
    while (const auto pool = short_pool()) {
        eviction_pool_ = *pool;
        const auto victim = policy_.choose(*this, *pool);
        if (!victim) return false;
        Head& head = head_ref(*victim);
        CHECK_EQ(head.num_pins, 0);
        destroy(head, NotReused::kEvicted);
    }
    return true;
}

std::optional<HeadId> Cache::evictable_from(std::list<HeadId>::const_iterator place) const {
    for (; place != lru_.end(); ++place) {
        const Head& head = *find(*place);
        if (head.id == eviction_exception_ || head.num_pins > 0) continue;
        if (eviction_pool_ == Pool::kState || kv_.has_inactive(head.blocks)) return head.id;
    }
    return std::nullopt;
}

std::optional<HeadId> Cache::first() const { return evictable_from(lru_.begin()); }

std::optional<HeadId> Cache::after(HeadId head) const { return evictable_from(std::next(find(head)->lru_place)); }

MarginalBytes Cache::marginal_bytes(HeadId id) const {
    const Head& head = *find(id);
    return {kv_.marginal_blocks(head.blocks) * config_.kv_bytes_per_block,
            head.state == kNoState ? 0 : config_.state_bytes_per_row};
}

int64_t Cache::recompute_tokens(HeadId id) const {
    const Head& head = *find(id);
    int64_t nearest = 0;
    for (const Name* name : head.names) {
        for (const NamedHead& entry : name->heads) {
            if (entry.head != id && entry.length <= head.length()) {
                nearest = std::max(nearest, entry.length);
            }
        }
    }
    return head.length() - nearest;
}

// --- pendings and publication

PendingId Cache::stage(Pending pending) {
    const auto id = static_cast<PendingId>(next_pending_++);
    pendings_.emplace(id, std::move(pending));
    return id;
}

const Pending& Cache::pending(PendingId id) const { return pendings_.at(id); }

HeadId Cache::publish(PendingId id, const Digest& digest) {
    auto node = pendings_.extract(id);
    CHECK(!node.empty(), "pending {}", index(id));
    Pending& pending = node.mapped();
    auto owned = std::make_unique<Head>();
    Head& head = *owned;
    head.id = static_cast<HeadId>(next_head_++);
    head.salt = pending.key.salt;
    head.kind = pending.kind;
    head.tokens = std::move(pending.tokens);
    head.blocks = std::move(pending.blocks);
    head.state = pending.state;
    head.numerics_id = std::move(pending.numerics_id);
    head.digest = digest;
    head.lru_place = lru_.insert(lru_.end(), head.id);
    heads_.emplace(head.id, std::move(owned));
    head.in_prefix_index = config_.lookup == LookupMode::kPrefix;
    if (head.in_prefix_index) prefixes_.insert(head);

    auto& name = names_[key_of(pending.key)];
    if (!name) name = std::make_unique<Name>(Name{.key = pending.key});
    const HeadId published = head.id;
    if (head.kind == HeadKind::kTurn) {
        name->committed = true;
        keep_prefixes_of(*name, head.tokens);
    }
    list_head(*name, head);
    return published;
}

void Cache::discard(PendingId id) {
    auto node = pendings_.extract(id);
    CHECK(!node.empty(), "pending {}", index(id));
    kv_.release(node.mapped().blocks);
    state_.release(node.mapped().state);
}

void Cache::list_head(Name& name, Head& head) {
    name.heads.push_back({head.length(), head.kind, head.id});
    head.names.push_back(&name);
    retain_newest(name, HeadKind::kTurn, config_.keep_turn_heads);
    retain_newest(name, HeadKind::kPrompt, config_.keep_prompt_heads);
    retain_newest(name, HeadKind::kCheckpoint, config_.keep_checkpoints);
    drop_if_empty(name);
}

void Cache::retain_newest(Name& name, HeadKind kind, int32_t keep) {
    for (size_t i = name.heads.size(); i-- > 0;) {
        const NamedHead entry = name.heads[i];
        if (entry.kind != kind || keep-- > 0) continue;
        let_go(name, i);
        name.note_gone(entry.length, NotReused::kNotRetained);
    }
}

// After a commit the name's history is `tokens`: other heads of it are of an abandoned history, and so is what is known of them.
void Cache::keep_prefixes_of(Name& name, const TokenSeq& tokens) {
    int64_t kept = tokens.size();
    for (size_t i = name.heads.size(); i-- > 0;) {
        const NamedHead entry = name.heads[i];
        const int64_t common = tokens.common_prefix(find(entry.head)->tokens);
        if (common == entry.length) continue;
        kept = std::min(kept, common);
        let_go(name, i);
    }
    name.forget_gone_beyond(kept);
}

// Takes the entry off the name's list. What can be found by its tokens stays the name's own until it is destroyed.
void Cache::let_go(Name& name, size_t entry) {
    const HeadId id = name.heads[entry].head;
    name.heads.erase(name.heads.begin() + static_cast<std::ptrdiff_t>(entry));
    Head& head = head_ref(id);
    std::erase(head.names, &name);
    if (head.in_prefix_index) {
        name.former.push_back(id);
        head.former_names.push_back(&name);
    }
    destroy_if_unreachable(id, NotReused::kNotRetained);
}

// --- names

void Cache::fork(const ConversationKey& from, const ConversationKey& to) {
    const Name* origin = find(from);
    if (origin == nullptr) return;
    remove(to);
    auto& name = names_[key_of(to)];
    name = std::make_unique<Name>(*origin);
    name->key = to;
    name->committed = true;
    if (planted(Planted::kForkUncounted)) return;
    for (const NamedHead& entry : name->heads) head_ref(entry.head).names.push_back(name.get());
    for (const HeadId id : name->former) head_ref(id).former_names.push_back(name.get());
}

void Cache::rewind(const ConversationKey& key, int64_t length) {
    const auto found = names_.find(key_of(key));
    if (found == names_.end()) return;
    Name& name = *found->second;
    for (size_t i = name.heads.size(); i-- > 0;) {
        if (name.heads[i].length > length) let_go(name, i);
    }
    name.forget_gone_beyond(length);
}

void Cache::remove(const ConversationKey& key) {
    const auto found = names_.find(key_of(key));
    if (found == names_.end()) return;
    Name& name = *found->second;
    for (const NamedHead& entry : std::exchange(name.heads, {})) disown(name, entry.head);
    for (const HeadId id : std::exchange(name.former, {})) disown(name, id);
    names_.erase(found);
}

// What belongs to no name any more is not to be found by its tokens either; a pinned head goes with its last pin.
void Cache::disown(Name& name, HeadId id) {
    Head& head = head_ref(id);
    std::erase(head.names, &name);
    std::erase(head.former_names, &name);
    if (!head.names.empty() || !head.former_names.empty()) return;
    if (std::exchange(head.in_prefix_index, false)) prefixes_.erase(head);
    destroy_if_unreachable(id, NotReused::kNotRetained);
}

// A name without heads that never committed is nobody's: a conversation that was never there.
void Cache::drop_if_empty(Name& name) {
    if (name.committed || name.has_heads()) return;
    names_.erase(key_of(name.key));
}

void Cache::destroy_if_unreachable(HeadId id, NotReused reason) {
    Head& head = head_ref(id);
    const bool findable = head.in_prefix_index || !head.names.empty();
    if (!findable && head.num_pins == 0) destroy(head, reason);
}

void Cache::destroy(Head& head, NotReused reason) {
    if (gone_listener_) gone_listener_(head, reason);
    for (Name* name : std::exchange(head.names, {})) {
        std::erase_if(name->heads, [&](const NamedHead& entry) { return entry.head == head.id; });
        name->note_gone(head.length(), reason);
        drop_if_empty(*name);
    }
    for (Name* name : std::exchange(head.former_names, {})) {
        std::erase(name->former, head.id);
        drop_if_empty(*name);
    }
    if (head.in_prefix_index) prefixes_.erase(head);
    kv_.release(head.blocks);
    state_.release(head.state);
    lru_.erase(head.lru_place);
    heads_.erase(head.id);
}

void Cache::lose_heads() {
    CHECK(pendings_.empty());
    while (!lru_.empty()) {
        Head& head = head_ref(lru_.front());
        CHECK_EQ(head.num_pins, 0);
        destroy(head, NotReused::kLost);
    }
}

void Cache::touch(Head& head) { lru_.splice(lru_.end(), lru_, head.lru_place); }

// --- steps and access

void Cache::begin_step(int64_t step) {
    kv_.pool().begin_step(step);
    state_.pool().begin_step(step);
}

void Cache::complete_step(int64_t step) {
    kv_.pool().complete_step(step);
    state_.pool().complete_step(step);
}

Head& Cache::head_ref(HeadId id) {
    const auto found = heads_.find(id);
    CHECK(found != heads_.end(), "head {}", index(id));
    return *found->second;
}

const Head* Cache::find(HeadId id) const {
    const auto found = heads_.find(id);
    return found == heads_.end() ? nullptr : found->second.get();
}

const Name* Cache::find(const ConversationKey& key) const {
    const auto found = names_.find(key_of(key));
    return found == names_.end() ? nullptr : found->second.get();
}

bool Cache::knows(const ConversationKey& key) const {
    return find(key) != nullptr ||
           std::ranges::any_of(pendings_, [&](const auto& entry) { return entry.second.key == key; });
}

std::vector<const Head*> Cache::heads() const {
    std::vector<const Head*> heads;
    for (const HeadId id : lru_) heads.push_back(find(id));
    return heads;
}

}  // namespace verbatim
