#include "engine/cache/cache.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
std::vector<std::string> problems_of(const CacheConfig& config) {
    std::vector<std::string> problems;
    if (config.pools.block_size < 1)
        problems.push_back(fmt::format("block_size: {} is not >= 1", config.pools.block_size));
    if (config.has_kv && config.pools.num_blocks < 1) {
        problems.push_back(
            fmt::format("num_blocks: {} is not >= 1: the KV budget is less than one block", config.pools.num_blocks));
    }
    if (config.has_state && config.pools.num_state_rows < 1) {
        problems.push_back(fmt::format("num_state_rows: {} is not >= 1: the state budget is less than one row",
                                       config.pools.num_state_rows));
    }
    const int32_t least_turn_heads = config.lookup == LookupMode::kBlocks ? 0 : 1;
    if (config.keep_turn_heads < least_turn_heads)
        problems.push_back(fmt::format("keep_turn_heads: {} is not >= {}", config.keep_turn_heads, least_turn_heads));
    if (config.keep_prompt_heads < 0)
        problems.push_back(fmt::format("keep_prompt_heads: {} is not >= 0", config.keep_prompt_heads));
    if (config.keep_checkpoints < 0)
        problems.push_back(fmt::format("keep_checkpoints: {} is not >= 0", config.keep_checkpoints));
    return problems;
}

Status validate(const CacheConfig& config) {
    const std::vector<std::string> problems = problems_of(config);
    if (problems.empty()) return {};
    return error("cache: {}", fmt::join(problems, "; "));
}

Cache::Cache(const CacheConfig& config, EvictionPolicy& policy)
    : config_(config),
      kv_(config.has_kv, config.pools.block_size, config.pools.num_blocks),
      state_(config.has_state, config.pools.num_state_rows),
      order_(policy, kv_) {
    CHECK(validate(config).has_value());
}

// --- lookup and attach

HeadId Cache::deepest_of_name(const LookupQuery& query, const Name* name) const {
    HeadId deepest = kNoHead;
    int64_t length = -1;
    if (name == nullptr) return kNoHead;
    for (const NamedHead& entry : name->heads) {
        if (entry.length > query.max_length() || entry.length < length) continue;
        const Head& head = *find(entry.head);
        if (!query.accepts(head)) continue;
        if (!query.tokens.starts_with(head.tokens)) continue;
        deepest = entry.head;
        length = entry.length;
    }
    return deepest;
}

// The longest head of the name that lay inside the committed tokens and could not be used, if it is longer than what is
// reused.
NotReusedRange Cache::missed_of_name(const LookupQuery& query, const Name* name, int64_t reused) const {
    const int64_t max_length = std::min(query.max_length(), query.num_committed);
    NotReusedRange missed;
    const auto miss = [&](int64_t length, NotReused reason) {
        if (length > std::max(missed.end, reused) && length <= max_length) missed = {length, reason};
    };
    if (name == nullptr) return missed;
    for (const GoneHeads& gone : name->gone) {
        if (gone.first <= max_length) miss(std::min(gone.last, max_length), gone.reason);
    }
    for (const NamedHead& entry : name->heads) {
        if (!query.accepts(*find(entry.head))) miss(entry.length, NotReused::kOtherNumerics);
    }
    return missed;
}

LookupResult Cache::find_reusable(const LookupQuery& query, const Name* name) const {
    LookupResult result;
    result.head = deepest_of_name(query, name);
    if (result.head != kNoHead) result.length = find(result.head)->length();
    if (config_.lookup != LookupMode::kPrefix) return result;
    const auto found = prefixes_.longest_prefix(query.key.salt, query.tokens, query.max_length(),
                                                query.deterministic ? &query.numerics_id : nullptr);
    if (found && find(*found)->length() > result.length) {
        result.head = *found;
        result.length = find(*found)->length();
    }
    return result;
}

LookupResult Cache::find_blocks(const LookupQuery& query) const {
    const std::string* numerics_id = query.deterministic ? &query.numerics_id : nullptr;
    LookupResult result;
    if (state_.enabled()) {
        const auto found = prefixes_.longest_prefix(query.key.salt, query.tokens, query.max_length(), numerics_id);
        if (found) result.head = *found;
        if (found) result.length = find(*found)->length();
        return result;
    }
    const auto found = prefixes_.longest_common(query.key.salt, query.tokens, numerics_id);
    if (!found) return result;
    const int64_t block = config_.pools.block_size;
    result.length = std::min(found->length, query.max_length()) / block * block;
    result.head = result.length > 0 ? found->head : kNoHead;
    return result;
}

bool Cache::is_found_by_tokens(const Head& head) const {
    if (config_.lookup == LookupMode::kBlocks) return !state_.enabled() || head.kind != HeadKind::kTurn;
    return config_.lookup == LookupMode::kPrefix;
}

LookupResult Cache::lookup(const LookupQuery& query) const {
    LookupResult result;
    NotReusedRange missed;
    if (query.use_cache) {
        const Name* name = find(query.key);
        result = config_.lookup == LookupMode::kBlocks ? find_blocks(query) : find_reusable(query, name);
        missed = missed_of_name(query, name, result.length);
    }
    CHECK(result.length <= query.max_length(), "head {} of {} tokens for {}", index(result.head), result.length,
          query.tokens.size());
    result.not_reused = explain(query, result.length, missed);
    return result;
}

std::optional<SequenceMemory> Cache::attach(HeadId id, int64_t length) {
    if (id == kNoHead) return go_on_from({}, kNoState, 0);
    const Head& head = head_ref(id);
    CHECK(length == head.length() || (!state_.enabled() && length % config_.pools.block_size == 0),
          "head {} of {} tokens serves {}", index(id), head.length(), length);
    auto memory = go_on_from(head.blocks, head.state, length);
    if (!memory) return std::nullopt;
    CHECK(memory->copy.has_value() == (kv_.enabled() && length % config_.pools.block_size != 0),
          "a tail of {} tokens is copied: {}", length, memory->copy.has_value());
    memory->pinned = id;
    order_.use(id);
    order_.pin(id);
    return memory;
}

std::optional<SequenceMemory> Cache::branch(const SequenceMemory& from, int64_t length) {
    CHECK(length > 0 && from.state_src == from.state, "a branch at {} of a sequence that has computed nothing", length);
    CHECK_GE(from.blocks.num_blocks, kv_.blocks_for(length));
    return go_on_from(from.blocks, from.state, length);
}

// Shared blocks, an own tail and an own row. Empty, and nothing has changed, when a pool is short.
std::optional<SequenceMemory> Cache::go_on_from(const BlockTable& blocks, StateIndex state, int64_t length) {
    CHECK(length == 0 || (state != kNoState) == state_.enabled(), "{} tokens go on from row {}", length, index(state));
    SequenceMemory memory;
    const auto row = state_.allocate();
    if (!row) return std::nullopt;
    memory.state = *row;
    if (length == 0) return memory;
    auto attached = kv_.attach(blocks, length);
    if (!attached) {
        state_.release(memory.state);
        return std::nullopt;
    }
    memory.blocks = attached->table;
    memory.num_shared_blocks = attached->num_shared_blocks;
    memory.copy = attached->copy;
    memory.state_src = state;
    CHECK_EQ(memory.blocks.num_blocks, kv_.blocks_for(length));
    CHECK(memory.state != state || !state_.enabled(), "row {} has two owners", index(state));
    return memory;
}

void Cache::unpin(SequenceMemory& memory) {
    const HeadId id = std::exchange(memory.pinned, kNoHead);
    if (id == kNoHead) return;
    CHECK(find(id) != nullptr, "pinned head {} is gone", index(id));
    order_.unpin(id);
    destroy_if_unreachable(id, NotReused::kNotRetained);
}

void Cache::release(SequenceMemory& memory) {
    CHECK(memory.blocks.num_blocks == 0 || memory.num_shared_blocks <= memory.blocks.num_blocks,
          "{} shared blocks of {}", memory.num_shared_blocks, memory.blocks.num_blocks);
    unpin(memory);
    kv_.release_sequence(memory.blocks, memory.last_step);
    state_.release(memory.state, memory.last_step);
    memory = {};
}

PendingMemory Cache::hand_over(SequenceMemory& memory, TokenSeq tokens) {
    CHECK(!tokens.empty() && memory.blocks.num_blocks >= kv_.blocks_for(tokens.size()), "{} blocks for {} tokens",
          memory.blocks.num_blocks, tokens.size());
    PendingMemory pending;
    pending.blocks = kv_.hand_over(memory.blocks, tokens.size(), memory.last_step);
    pending.state = std::exchange(memory.state, kNoState);
    pending.tokens = std::move(tokens);
    CHECK_EQ(pending.blocks.num_blocks, kv_.blocks_for(pending.tokens.size()));
    CHECK_EQ(pending.state != kNoState, state_.enabled());
    CHECK_EQ(memory.blocks.num_blocks, 0);
    return pending;
}

std::optional<PendingMemory> Cache::snapshot(const SequenceMemory& memory, TokenSeq tokens) {
    CHECK(!tokens.empty() && memory.blocks.num_blocks >= kv_.blocks_for(tokens.size()), "{} blocks for {} tokens",
          memory.blocks.num_blocks, tokens.size());
    PendingMemory pending;
    const auto row = state_.allocate();
    if (!row) return std::nullopt;
    pending.state = *row;
    pending.blocks = kv_.share(memory.blocks, tokens.size());
    pending.tokens = std::move(tokens);
    CHECK_EQ(pending.blocks.num_blocks, kv_.blocks_for(pending.tokens.size()));
    CHECK_EQ(pending.state != kNoState, state_.enabled());
    return pending;
}

void Cache::discard(PendingMemory& memory, int64_t busy_through) {
    CHECK(!memory.tokens.empty() && memory.blocks.num_blocks == kv_.blocks_for(memory.tokens.size()),
          "{} blocks for {} tokens", memory.blocks.num_blocks, memory.tokens.size());
    CHECK_EQ(memory.state != kNoState, state_.enabled());
    kv_.release_pending(memory.blocks);
    state_.release(memory.state, busy_through);
    memory = {};
}

// --- eviction

bool Cache::make_room(Room wanted, const EvictionOrder::Reach& reach) {
    CHECK(wanted.kv_blocks >= 0 && wanted.state_rows >= 0, "{} blocks, {} rows", wanted.kv_blocks, wanted.state_rows);
    const auto left = [](const auto& pool) { return pool.num_free() + pool.num_fenced(); };
    while (kv_.enabled() && left(kv_.pool()) < wanted.kv_blocks) {
        if (!evict(Pool::kKv, reach)) return false;
    }
    while (state_.enabled() && left(state_.pool()) < wanted.state_rows) {
        if (!evict(Pool::kState, reach)) return false;
    }
    return true;
}

bool Cache::evict(Pool pool, const EvictionOrder::Reach& reach) {
    const auto victim = order_.first(pool, reach);
    if (victim) destroy(head_ref(*victim), NotReused::kEvicted);
    CHECK(!victim || find(*victim) == nullptr, "head {} was evicted and lives", index(*victim));
    return victim.has_value();
}

// --- publication

HeadId Cache::publish(HeadDraft draft, const Digest& digest) {
    PendingMemory& memory = draft.memory;
    CHECK(!memory.tokens.empty(), "'{}': a head of no tokens", draft.key.conversation_id);
    CHECK_EQ(memory.blocks.num_blocks, kv_.blocks_for(memory.tokens.size()));
    CHECK_EQ(memory.state != kNoState, state_.enabled());
    auto owned = std::make_unique<Head>();
    Head& head = *owned;
    head.id = static_cast<HeadId>(next_head_++);
    head.salt = draft.key.salt;
    head.kind = draft.kind;
    head.tokens = std::move(memory.tokens);
    head.blocks = memory.blocks;
    head.state = memory.state;
    head.numerics_id = std::move(draft.numerics_id);
    head.digest = digest;
    kv_.publish(head.blocks, head.id);
    order_.add(head);
    heads_.emplace(head.id, std::move(owned));
    head.in_prefix_index = is_found_by_tokens(head);
    if (head.in_prefix_index) prefixes_.insert(head);

    auto& name = names_[draft.key];
    if (!name) name = std::make_unique<Name>(Name{.key = draft.key});
    const HeadId published = head.id;
    if (head.kind == HeadKind::kTurn) {
        name->committed = true;
        keep_prefixes_of(*name, head.tokens);
    }
    list_head(*name, head);
    while (heads_.size() > max_heads() && evict(Pool::kState, {.except = published, .spare_expected = false})) {
    }
    const Head* kept = find(published);
    CHECK(kept == nullptr || kept->in_prefix_index || !kept->names.empty(), "head {} is there, and nobody finds it",
          index(published));
    return published;
}

// C6. A model without KV and state has no units: its heads are names for token sequences, and few are enough.
size_t Cache::max_heads() const {
    const auto num_units = static_cast<size_t>(kv_.pool().num_units()) + state_.pool().num_units();
    return num_units > 0 ? num_units : 1024;
}

void Cache::list_head(Name& name, Head& head) {
    CHECK(head.names.empty() && head.former_names.empty(), "head {} has a name already", index(head.id));
    CHECK(head.salt == name.key.salt, "head {} is of another salt than '{}'", index(head.id), name.key.conversation_id);
    for (size_t i = name.heads.size(); i-- > 0;) {
        const NamedHead entry = name.heads[i];
        if (entry.length != head.length()) continue;
        const Head& same = *find(entry.head);
        if (same.numerics_id != head.numerics_id || same.tokens != head.tokens) continue;
        head.kind = std::min(head.kind, same.kind);  // the kind that counts more comes first
        name.heads.erase(name.heads.begin() + static_cast<std::ptrdiff_t>(i));
        disown(name, entry.head);
    }
    name.heads.push_back({head.length(), head.kind, head.id});
    head.names.push_back(&name);
    retain_newest(name, HeadKind::kTurn, config_.keep_turn_heads);
    retain_newest(name, HeadKind::kPrompt, config_.keep_prompt_heads);
    retain_checkpoints(name);
    drop_if_empty(name);
}

void Cache::retain_newest(Name& name, HeadKind kind, int32_t keep) {
    CHECK_GE(keep, 0);
    const int32_t most = keep;
    for (size_t i = name.heads.size(); i-- > 0;) {
        const NamedHead entry = name.heads[i];
        if (entry.kind != kind || keep-- > 0) continue;
        let_go(name, i);
        name.note_gone(entry.length, NotReused::kNotRetained);
    }
    CHECK_LE(std::ranges::count(name.heads, kind, &NamedHead::kind), most);
}

// A history may turn off anywhere. The nearer its turn is to the end, the less it costs, and the less it may cost in
// vain: so the newest checkpoints stay, and those before them lie the farther apart, the farther they are from the end.
void Cache::retain_checkpoints(Name& name) {
    const auto is_checkpoint = [](const NamedHead& entry) { return entry.kind == HeadKind::kCheckpoint; };
    CHECK(std::ranges::count_if(name.heads, is_checkpoint) <= int64_t{config_.keep_checkpoints} + 1,
          "'{}' has more checkpoints than one too many", name.key.conversation_id);
    while (std::ranges::count_if(name.heads, is_checkpoint) > config_.keep_checkpoints) {
        const size_t entry = least_missed_checkpoint(name);
        const int64_t length = name.heads[entry].length;
        let_go(name, entry);
        name.note_gone(length, NotReused::kNotRetained);
    }
    CHECK(std::ranges::is_sorted(name.gone, {}, &GoneHeads::last), "'{}' forgets in no order",
          name.key.conversation_id);
}

// Without it, a history that turns off just before the next longer one goes on from the next shorter one: the one for
// which that is the least beside what such a history has to compute anyway. The shortest one stays: a system prompt.
size_t Cache::least_missed_checkpoint(const Name& name) const {
    constexpr size_t kNewest = 4;
    std::vector<size_t> entries;  // oldest first
    std::vector<int64_t> lengths = {0};
    for (size_t i = 0; i < name.heads.size(); ++i) {
        if (name.heads[i].kind != HeadKind::kCheckpoint) continue;
        entries.push_back(i);
        lengths.push_back(name.heads[i].length);
    }
    CHECK_GT(entries.size(), static_cast<size_t>(config_.keep_checkpoints));
    const size_t num_spread = entries.size() - std::min(entries.size() - 1, kNewest);
    if (num_spread == 1) return entries.front();
    std::ranges::sort(lengths);
    const int64_t end = lengths.back() + 1;
    size_t least = entries.front();
    int64_t least_cost = 0;  // over `least_anyway`
    int64_t least_anyway = 0;
    for (size_t i = 0; i < num_spread; ++i) {
        const int64_t length = name.heads[entries[i]].length;
        const auto at = std::ranges::lower_bound(lengths, length);
        const int64_t cost = end - *(at - 1);
        const int64_t anyway = end - (at + 1 == lengths.end() ? length : *(at + 1));
        if (at == lengths.begin() + 1 || (least_anyway > 0 && cost * least_anyway >= least_cost * anyway)) continue;
        least = entries[i];
        least_cost = cost;
        least_anyway = anyway;
    }
    return least;
}

// After a commit the name's history is `tokens`: other heads of it are of an abandoned history, and so is what is known
// of them.
void Cache::keep_prefixes_of(Name& name, const TokenSeq& tokens) {
    CHECK(!tokens.empty(), "'{}' commits nothing", name.key.conversation_id);
    int64_t kept = tokens.size();
    for (size_t i = name.heads.size(); i-- > 0;) {
        const NamedHead entry = name.heads[i];
        const int64_t common = tokens.common_prefix(find(entry.head)->tokens);
        if (common == entry.length) continue;
        kept = std::min(kept, common);
        let_go(name, i);
    }
    name.forget_gone_beyond(kept);
    CHECK(std::ranges::all_of(name.heads, [&](const NamedHead& entry) { return entry.length <= tokens.size(); }),
          "'{}' keeps a head longer than its {} tokens", name.key.conversation_id, tokens.size());
}

// Takes the entry off the name's list. What can be found by its tokens stays the name's own until it is destroyed.
void Cache::let_go(Name& name, size_t entry) {
    CHECK_LT(entry, name.heads.size());
    const HeadId id = name.heads[entry].head;
    name.heads.erase(name.heads.begin() + static_cast<std::ptrdiff_t>(entry));
    Head& head = head_ref(id);
    CHECK_EQ(std::erase(head.names, &name), 1u);
    if (head.in_prefix_index) {
        name.former.insert(id);
        head.former_names.push_back(&name);
    }
    destroy_if_unreachable(id, NotReused::kNotRetained);
}

// --- names

void Cache::fork(const ConversationKey& from, const ConversationKey& to) {
    CHECK(from.salt == to.salt && from != to, "a fork of '{}' to '{}'", from.conversation_id, to.conversation_id);
    const Name* origin = find(from);
    if (origin == nullptr) return;
    remove(to);
    CHECK(find(from) == origin && find(to) == nullptr, "'{}' took '{}' along", to.conversation_id,
          from.conversation_id);
    auto& name = names_[to];
    name = std::make_unique<Name>(*origin);
    name->key = to;
    name->committed = true;
    for (const NamedHead& entry : name->heads) head_ref(entry.head).names.push_back(name.get());
    for (const HeadId id : name->former) head_ref(id).former_names.push_back(name.get());
}

void Cache::rewind(const ConversationKey& key, int64_t length) {
    const auto found = names_.find(key);
    if (found == names_.end()) return;
    CHECK_GE(length, 0);
    Name& name = *found->second;
    for (size_t i = name.heads.size(); i-- > 0;) {
        if (name.heads[i].length > length) let_go(name, i);
    }
    name.forget_gone_beyond(length);
    CHECK(std::ranges::none_of(name.heads, [&](const NamedHead& entry) { return entry.length > length; }),
          "'{}' keeps a head beyond {}", key.conversation_id, length);
}

void Cache::remove(const ConversationKey& key) {
    const auto found = names_.find(key);
    if (found == names_.end()) return;
    Name& name = *found->second;
    for (const NamedHead& entry : std::exchange(name.heads, {})) disown(name, entry.head);
    for (const HeadId id : std::exchange(name.former, {})) disown(name, id);
    CHECK(!name.has_heads(), "'{}' was given heads while it went", key.conversation_id);
    names_.erase(found);
}

// What belongs to no name any more is not to be found by its tokens either; a pinned head goes with its last pin.
void Cache::disown(Name& name, HeadId id) {
    Head& head = head_ref(id);
    const size_t num_owned = std::erase(head.names, &name) + std::erase(head.former_names, &name);
    CHECK(num_owned == 1, "head {} is {} times of '{}'", index(id), num_owned, name.key.conversation_id);
    if (!head.names.empty() || !head.former_names.empty()) return;
    if (std::exchange(head.in_prefix_index, false)) prefixes_.erase(head);
    destroy_if_unreachable(id, NotReused::kNotRetained);
}

// A name without heads that never committed is nobody's: a conversation that was never there.
void Cache::drop_if_empty(Name& name) {
    if (name.committed || name.has_heads()) return;
    const ConversationKey key = name.key;  // a copy: the name takes its key along
    CHECK_EQ(names_.erase(key), 1u);
}

void Cache::destroy_if_unreachable(HeadId id, NotReused reason) {
    Head& head = head_ref(id);
    const bool findable = head.in_prefix_index || !head.names.empty();
    CHECK(findable || head.former_names.empty(), "head {} is some name's own, and nobody finds it", index(id));
    if (!findable && order_.num_pins(id) == 0) destroy(head, reason);
}

void Cache::destroy(Head& head, NotReused reason) {
    if (gone_listener_) gone_listener_(head, reason);
    for (Name* name : std::exchange(head.names, {})) {
        CHECK_EQ(std::erase_if(name->heads, [&](const NamedHead& entry) { return entry.head == head.id; }), 1u);
        name->note_gone(head.length(), reason);
        drop_if_empty(*name);
    }
    for (Name* name : std::exchange(head.former_names, {})) {
        CHECK_EQ(name->former.erase(head.id), 1u);
        drop_if_empty(*name);
    }
    if (head.in_prefix_index) prefixes_.erase(head);
    order_.remove(head.id);
    kv_.release_head(head.blocks, head.id);
    state_.release(head.state);
    CHECK_EQ(heads_.erase(head.id), 1u);
}

void Cache::note_lost(const ConversationKey& key, std::span<const int64_t> lengths) {
    CHECK(std::ranges::all_of(lengths, [](int64_t length) { return length > 0; }), "'{}' lost a head of no tokens",
          key.conversation_id);
    auto& name = names_[key];
    if (!name) name = std::make_unique<Name>();
    name->key = key;
    name->committed = true;
    for (const int64_t length : lengths) name->note_gone(length, NotReused::kLost);
    CHECK(find(key) != nullptr, "'{}' has no name", key.conversation_id);
}

void Cache::lose_heads() {
    for (const HeadId id : order_.in_order()) destroy(head_ref(id), NotReused::kLost);
    CHECK(heads_.empty(), "{} heads are pinned", heads_.size());
    CHECK(kv_.pool().num_used() == 0 && state_.pool().num_used() == 0, "{} blocks and {} rows are held by nobody",
          kv_.pool().num_used(), state_.pool().num_used());
}

// --- steps and access

void Cache::complete_step(int64_t step) {
    kv_.pool().complete_step(step);
    state_.complete_step(step);
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
    const auto found = names_.find(key);
    return found == names_.end() ? nullptr : found->second.get();
}

std::vector<const Head*> Cache::heads() const {
    std::vector<const Head*> heads;
    for (const HeadId id : order_.in_order()) heads.push_back(find(id));
    std::vector<const Head*> pinned;
    for (const auto& [id, head] : heads_) {
        if (order_.num_pins(id) > 0) pinned.push_back(head.get());
    }
    std::ranges::sort(pinned, {}, &Head::id);
    heads.insert(heads.end(), pinned.begin(), pinned.end());
    return heads;
}

}  // namespace verbatim
