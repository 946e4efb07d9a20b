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
    const auto not_negative = [&](const char* field, int64_t value) {
        if (value < 0) problems.push_back(fmt::format("{}: {} is not >= 0", field, value));
    };
    not_negative("budget_bytes", config.budget_bytes);
    not_negative("kv_block_bytes", config.kv_block_bytes);
    not_negative("state_row_bytes", config.state_row_bytes);
    not_negative("operations_per_token", config.operations_per_token);
    not_negative("operations_per_pair", config.operations_per_pair);
    not_negative("history_boundaries", config.history_boundaries);
    const int64_t least = (config.has_kv ? config.kv_block_bytes : 0) + (config.has_state ? config.state_row_bytes : 0);
    if (config.budget_bytes > 0 && config.budget_bytes < least) {
        problems.push_back(fmt::format("budget_bytes: {} is less than a block of {} and a state row of {}",
                                       config.budget_bytes, config.kv_block_bytes, config.state_row_bytes));
    }
    return problems;
}

Status validate(const CacheConfig& config) {
    const std::vector<std::string> problems = problems_of(config);
    if (problems.empty()) return {};
    return error("cache: {}", fmt::join(problems, "; "));
}

bool learns(const CacheConfig& config) { return config.lookup == LookupMode::kPrefix && config.history_boundaries > 0; }

HeadValue head_value(const CacheConfig& config, int64_t begin, int64_t length, const KvGroup::Exclusive& exclusive) {
    const int64_t tokens = length - begin;
    const int64_t positions_before = begin + tokens / 2;  // of the mean token
    const int64_t per_token = config.operations_per_token + config.operations_per_pair * positions_before;
    // Of heads that end in one block none gives it back alone: each counts a part.
    const int64_t kv_bytes = exclusive.num_blocks * config.kv_block_bytes / exclusive.num_heads;
    CHECK_GT(tokens, 0);
    return {.operations = tokens * per_token, .bytes = (config.has_state ? config.state_row_bytes : 0) + kv_bytes};
}

Cache::Cache(const CacheConfig& config, EvictionPolicy& policy)
    : config_(config),
      budget_(config.budget_bytes > 0 ? config.budget_bytes : ByteBudget::kUnlimited),
      kv_(config.has_kv, config.pools.block_size, config.pools.num_blocks, budget_, config.kv_block_bytes),
      state_(config.has_state, config.pools.num_state_rows, budget_, config.state_row_bytes),
      order_(policy, kv_),
      names_({.turn_heads = config.keep_turn_heads,
              .prompt_heads = config.keep_prompt_heads,
              .checkpoints = config.keep_checkpoints},
             heads_),
      history_(static_cast<size_t>(std::max(config.history_boundaries, 1))) {
    CHECK(validate(config).has_value());
    if (policy.ranks_by_worth()) order_.set_worth([this](const Head& head) { return value_of(head); });
    history_.on_forgotten([this](HeadId ghost) { order_.forget_ghost(ghost); });
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

// `known`: a head that is a prefix of the query, or null.
PrefixIndex::Query Cache::by_tokens(const LookupQuery& query, const Head* known) const {
    CHECK(known == nullptr || known->in_prefix_index, "head {} is not found by its tokens", index(known->id));
    return {.salt = query.key.salt,
            .tokens = query.tokens,
            .numerics_id = query.deterministic ? &query.numerics_id : nullptr,
            .known = known};
}

LookupResult Cache::find_reusable(const LookupQuery& query, const Name* name) const {
    LookupResult result;
    result.head = deepest_of_name(query, name);
    if (result.head != kNoHead) result.length = find(result.head)->length();
    if (config_.lookup != LookupMode::kPrefix) return result;
    const Head* found = prefixes_.longest_prefix(by_tokens(query, find(result.head)), query.max_length());
    if (found != nullptr && found->length() > result.length) {
        result.head = found->id;
        result.length = found->length();
    }
    if (!state_.enabled() && learns()) reach_into_a_head(query, result);
    return result;
}

// Without states a prompt goes on from any full block of a head that has more of it than `found`.
void Cache::reach_into_a_head(const LookupQuery& query, LookupResult& found) const {
    const PrefixIndex::Common common = prefixes_.longest_common(by_tokens(query, find(found.head)));
    const int64_t block = config_.pools.block_size;
    const int64_t length = std::min(common.length, query.max_length()) / block * block;
    if (length <= found.length) return;
    found.head = common.head->id;
    found.length = length;
    CHECK_LE(length, common.head->length());
}

LookupResult Cache::find_blocks(const LookupQuery& query) const {
    LookupResult result;
    if (state_.enabled()) {
        const Head* found = prefixes_.longest_prefix(by_tokens(query, nullptr), query.max_length());
        if (found != nullptr) result.head = found->id;
        if (found != nullptr) result.length = found->length();
        return result;
    }
    const PrefixIndex::Common found = prefixes_.longest_common(by_tokens(query, nullptr));
    if (found.head == nullptr) return result;
    const int64_t block = config_.pools.block_size;
    result.length = std::min(found.length, query.max_length()) / block * block;
    result.head = result.length > 0 ? found.head->id : kNoHead;
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
        const Name* name = names_.find(query.key);
        result = config_.lookup == LookupMode::kBlocks ? find_blocks(query) : find_reusable(query, name);
        missed = missed_of_name(query, name, result.length);
    }
    CHECK(result.length <= query.max_length(), "head {} of {} tokens for {}", index(result.head), result.length,
          query.tokens.size());
    result.not_reused = explain(query, result.length, missed);
    return result;
}

auto Cache::observe(const LookupQuery& query, LookupResult& found, SequenceMemory& memory) -> Seen {
    CHECK(found.length <= query.max_length() && (found.head == kNoHead || find(found.head) != nullptr),
          "head {} of {} tokens for {}", index(found.head), found.length, query.tokens.size());
    order_.tick();
    if (!learns()) return {.reusable = found.length};
    const Head* whole = find(found.head);  // null: nothing, or a part of a head
    if (whole != nullptr && whole->length() > found.length) whole = nullptr;
    memory.chain = whole == nullptr ? PrefixHistory::begin(query.key.salt) : whole->chain;
    memory.generation = whole == nullptr ? 0 : whole->generation + 1;
    const PrefixHistory::Met met = history_.observe(memory.chain, found.length, query.tokens);
    if (order_.follows_ghosts()) {
        for (const HeadId ghost : met.ghosts)
            memory.generation = std::max(memory.generation, order_.generation_of_ghost(ghost) + 1);
        if (met.longest_ghost != kNoHead) order_.use_ghost(met.longest_ghost);
    }
    CHECK_GE(memory.generation, 0);
    if (!query.use_cache) return {};
    const PrefixIndex::Common common = prefixes_.longest_common(by_tokens(query, whole));
    const int64_t branch = std::max(met.known_length, common.length);
    CHECK(met.known_length <= query.tokens.size(), "{} of {} tokens are known", met.known_length, query.tokens.size());
    if (query.is_first_admission) {
        found.not_reused = explain_known(found, query.max_length(),
                                         {{met.gone_length, met.gone_reason},
                                          {common.length, NotReused::kBetweenHeads},
                                          {met.known_length, NotReused::kNotRetained}});
    }
    return {.branch = branch > found.length && branch < query.max_length() ? branch : 0,
            .reusable = std::clamp(std::max(branch, met.gone_length), found.length, query.max_length())};
}

// It serves what attaches to this head, when this head is gone.
const Head* Cache::longest_prefix_of(const Head& head) const {
    return head.in_prefix_index ? prefixes_.longest_prefix_of(head) : nullptr;
}

HeadValue Cache::value_of(const Head& head) const {
    const Head* shorter = longest_prefix_of(head);
    return head_value(config_, shorter != nullptr ? shorter->length() : 0, head.length(),
                      kv_.exclusive_blocks(head.blocks));
}

auto Cache::bytes_by_kind() const -> BytesByKind {
    const int64_t blocks = kv_.pool().num_used();
    const int64_t active = kv_.num_active_blocks();
    const int64_t rows = state_.pool().num_used();
    CHECK(active <= blocks, "{} of {} blocks are held by sequences", active, blocks);
    BytesByKind bytes{.kv_of_sequences = active * config_.kv_block_bytes,
                      .kv_of_heads = (blocks - active) * config_.kv_block_bytes,
                      .states = rows * config_.state_row_bytes};
    const int64_t pools =
        kv_.pool().num_units() * config_.kv_block_bytes + state_.pool().num_units() * config_.state_row_bytes;
    bytes.free = std::min(budget_.total(), pools) - bytes.kv_of_sequences - bytes.kv_of_heads - bytes.states;
    return bytes;
}

int32_t Cache::num_affordable_blocks(int32_t num_rows) const {
    const int64_t bytes = budget_.total() - num_rows * config_.state_row_bytes;
    if (bytes < 0) return 0;
    const auto num_units = int64_t{kv_.pool().num_units()};
    return static_cast<int32_t>(config_.kv_block_bytes > 0 ? std::min(num_units, bytes / config_.kv_block_bytes)
                                                           : num_units);
}

std::optional<SequenceMemory> Cache::attach(HeadId id, int64_t length) {
    if (id == kNoHead) return allocate_from_prefix({}, kNoState, 0);
    const Head& head = head_ref(id);
    CHECK(length == head.length() || (!state_.enabled() && length % config_.pools.block_size == 0),
          "head {} of {} tokens serves {}", index(id), head.length(), length);
    auto memory = allocate_from_prefix(head.blocks, head.state, length);
    if (!memory) return std::nullopt;
    CHECK(memory->copy.has_value() == (kv_.enabled() && length % config_.pools.block_size != 0),
          "a tail of {} tokens is copied: {}", length, memory->copy.has_value());
    memory->pinned = id;
    // A prompt that leaves a head in the middle publishes one there, which later prompts use.
    if (length == head.length() || !learns()) order_.use(id);
    order_.pin(id);
    return memory;
}

std::optional<SequenceMemory> Cache::branch(const SequenceMemory& from, int64_t length) {
    CHECK(length > 0 && from.state_src == from.state, "a branch at {} of a sequence that has computed nothing", length);
    CHECK_GE(from.blocks.num_blocks, kv_.blocks_for(length));
    return allocate_from_prefix(from.blocks, from.state, length);
}

// Shared blocks, an own tail and an own row. Empty, and nothing has changed, when a pool is short.
std::optional<SequenceMemory> Cache::allocate_from_prefix(const BlockTable& blocks, StateIndex state, int64_t length) {
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
    destroy_if_unowned(id);
}

void Cache::release(SequenceMemory& memory) {
    CHECK(memory.blocks.num_blocks == 0 || memory.num_shared_blocks <= memory.blocks.num_blocks,
          "{} shared blocks of {}", memory.num_shared_blocks, memory.blocks.num_blocks);
    unpin(memory);
    kv_.release_sequence(memory.blocks, memory.last_step);
    state_.release(memory.state, memory.last_step);
    memory = {};
}

PendingMemory Cache::detach_as_pending(SequenceMemory& memory, TokenSeq tokens) {
    CHECK(!tokens.empty() && memory.blocks.num_blocks >= kv_.blocks_for(tokens.size()), "{} blocks for {} tokens",
          memory.blocks.num_blocks, tokens.size());
    PendingMemory pending;
    pending.blocks = kv_.detach_as_pending(memory.blocks, tokens.size(), memory.last_step);
    pending.state = std::exchange(memory.state, kNoState);
    pending.chain = memory.chain;
    pending.generation = memory.generation;
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
    pending.chain = memory.chain;
    pending.generation = memory.generation;
    pending.blocks = kv_.share(memory.blocks, tokens.size());
    pending.tokens = std::move(tokens);
    CHECK_EQ(pending.blocks.num_blocks, kv_.blocks_for(pending.tokens.size()));
    CHECK_EQ(pending.state != kNoState, state_.enabled());
    return pending;
}

auto Cache::resident_prefix(const CacheSalt& salt, const TokenSeq& tokens, const std::string& numerics_id) const
    -> Resident {
    if (!kv_.enabled()) return {};
    const PrefixIndex::Common common =
        prefixes_.longest_common({.salt = salt, .tokens = tokens, .numerics_id = &numerics_id});
    const int64_t length = common.length / config_.pools.block_size * config_.pools.block_size;
    CHECK(length == 0 || length <= common.head->length(), "{} tokens of a head that is shorter", length);
    return length == 0 ? Resident{} : Resident{common.head->id, length};
}

std::optional<PendingMemory> Cache::make_pending(const CacheSalt& salt, TokenSeq tokens,
                                                 const std::string& numerics_id) {
    const Resident resident = resident_prefix(salt, tokens, numerics_id);
    const auto num_resident = static_cast<int32_t>(resident.length / config_.pools.block_size);
    CHECK(!tokens.empty() && resident.length <= tokens.size(), "a head of {} tokens, of which {} are resident",
          tokens.size(), resident.length);
    const Room room{.kv_blocks = kv_.blocks_for(tokens.size()) - num_resident, .state_rows = 1};
    if (!make_room(room, {.except = resident.head})) return std::nullopt;
    const Head* head = find(resident.head);
    auto memory = head == nullptr ? allocate_from_prefix({}, kNoState, 0)
                                  : allocate_from_prefix(head->blocks, head->state, resident.length);
    if (!memory) return std::nullopt;
    if (!grow(*memory, tokens.size())) {
        release(*memory);
        return std::nullopt;
    }
    if (learns()) memory->chain = PrefixHistory::begin(salt);
    PendingMemory pending = detach_as_pending(*memory, std::move(tokens));
    pending.num_resident_blocks = num_resident;
    return pending;
}

HeadKind Cache::kind_of_import(const ConversationKey& key, int64_t length) const {
    const Name* name = find(key);
    const bool has_longer = name != nullptr && std::ranges::any_of(name->heads, [&](const NamedHead& listed) {
                                return listed.length >= length;
                            });
    return has_longer ? HeadKind::kCheckpoint : HeadKind::kTurn;
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
    const int64_t blocks = kv_.enabled() ? wanted.kv_blocks : 0;
    const int64_t rows = state_.enabled() ? wanted.state_rows : 0;
    const int64_t bytes = blocks * config_.kv_block_bytes + rows * config_.state_row_bytes;
    while (true) {
        const bool has_blocks = kv_.pool().num_reclaimable() >= blocks;
        const bool has_rows = state_.pool().num_reclaimable() >= rows;
        if (has_blocks && has_rows && budget_.num_reclaimable() >= bytes) return true;
        const bool row_is_short = has_blocks ? state_.enabled() : !kv_.enabled();
        const Pool pool = row_is_short ? Pool::kState : Pool::kKv;
        if (evict(pool, reach)) continue;
        // Under one budget the bytes of the other kind help, too: a head whose blocks are in use still gives its row.
        const Pool other = row_is_short ? Pool::kKv : Pool::kState;
        const bool has_other = row_is_short ? kv_.enabled() : state_.enabled();
        if (config_.budget_bytes == 0 || !has_other || !evict(other, reach)) return false;
    }
}

bool Cache::evict(Pool pool, const EvictionOrder::Reach& reach) {
    const auto victim = order_.first(pool, reach);
    if (!victim) return false;
    const Head* shorter = order_.follows_ghosts() ? longest_prefix_of(head_ref(*victim)) : nullptr;
    if (shorter != nullptr) order_.stand_in(shorter->id, *victim);
    destroy(head_ref(*victim), NotReused::kEvicted);
    if (shorter != nullptr) order_.note_worth(shorter->id);  // it alone holds blocks that the longer one held
    CHECK(find(*victim) == nullptr, "head {} was evicted and lives", index(*victim));
    return true;
}

// --- publication

HeadId Cache::publish(HeadDraft draft, const Digest& digest) {
    PendingMemory& memory = draft.memory;
    CHECK(!memory.tokens.empty(), "'{}': a head of no tokens", draft.key.conversation_id);
    CHECK_EQ(memory.blocks.num_blocks, kv_.blocks_for(memory.tokens.size()));
    CHECK_EQ(memory.state != kNoState, state_.enabled());
    const auto published = static_cast<HeadId>(next_head_++);
    Head& head = heads_.add(published, {.id = published});
    head.salt = salts_.share(draft.key.salt);
    head.kind = draft.kind;
    head.tokens = std::move(memory.tokens);
    head.blocks = memory.blocks;
    head.state = memory.state;
    head.generation = memory.generation;
    head.numerics_id = numerics_ids_.share(draft.numerics_id);
    head.digest = digest;
    kv_.publish(head.blocks, head.id);
    head.in_prefix_index = is_found_by_tokens(head);
    if (head.in_prefix_index) prefixes_.insert(head, newest_prefix_of_name(draft.key, head));
    std::optional<HeadId> ghost;
    if (learns()) {
        head.chain = PrefixHistory::extend(memory.chain, head.tokens);
        ghost = history_.take_ghost(head.chain, head.tokens);
    }
    if (ghost) {
        CHECK_GE(head.generation, 0);
        head.generation = std::max(head.generation, order_.generation_of_ghost(*ghost));
        order_.add(head, *ghost);
    } else {
        order_.add(head);
    }

    destroy_unowned(names_.list(draft.key, head));
    while (heads_.size() > max_heads() && evict(Pool::kState, {.except = published, .spare_expected = false})) {
    }
    const Head* kept = find(published);
    CHECK(kept == nullptr || kept->in_prefix_index || !kept->names.empty(), "head {} is there, and nobody finds it",
          index(published));
    return published;
}

// A head of the name that is a prefix of `head`, so that the index does not look for it from its root.
const Head* Cache::newest_prefix_of_name(const ConversationKey& key, const Head& head) const {
    const Name* name = names_.find(key);
    if (name == nullptr) return nullptr;
    for (size_t i = name->heads.size(); i-- > 0;) {
        const Head& known = *find(name->heads[i].head);
        const bool is_indexed = known.in_prefix_index && known.numerics_id == head.numerics_id;
        if (is_indexed && head.tokens.starts_with(known.tokens)) return &known;
    }
    return nullptr;
}

// C6. A model without KV and state has no units: its heads are names for token sequences, and few are enough.
size_t Cache::max_heads() const {
    const auto num_units = static_cast<size_t>(kv_.pool().num_units()) + state_.pool().num_units();
    return num_units > 0 ? num_units : 1024;
}

// --- the end of heads

// What belongs to no name any more is not to be found by its tokens either; a pinned head goes with its last pin.
void Cache::destroy_if_unowned(HeadId id) {
    Head& head = head_ref(id);
    if (head.has_owner()) return;
    if (std::exchange(head.in_prefix_index, false)) prefixes_.erase(head);
    if (order_.num_pins(id) == 0) destroy(head, NotReused::kNotRetained);
}

void Cache::destroy_unowned(std::span<const HeadId> left) {
    for (const HeadId id : left) {
        CHECK(!head_ref(id).has_owner(), "head {} was left, and is some name's", index(id));
        destroy_if_unowned(id);
    }
}

void Cache::destroy(Head& head, NotReused reason) {
    if (gone_listener_) gone_listener_(head, reason);
    names_.take_off(head, reason);
    if (head.in_prefix_index) prefixes_.erase(head);
    if (learns() && order_.follows_ghosts() && reason != NotReused::kLost) {
        order_.remove_to_ghost(head.id);
        history_.add_ghost(head.id, reason, head.chain, head.tokens);
    } else {
        order_.remove(head.id);
    }
    kv_.release_head(head.blocks, head.id);
    state_.release(head.state);
    salts_.give_back(head.salt);
    numerics_ids_.give_back(head.numerics_id);
    heads_.erase(head.id);
}

void Cache::lose_heads() {
    for (const HeadId id : order_.in_order()) destroy(head_ref(id), NotReused::kLost);
    CHECK(heads_.size() == 0, "{} heads are pinned", heads_.size());
    CHECK(kv_.pool().num_used() == 0 && state_.pool().num_used() == 0, "{} blocks and {} rows are held by nobody",
          kv_.pool().num_used(), state_.pool().num_used());
}

// --- steps and access

void Cache::list_freed() {
    CHECK_GT(config_.budget_bytes, 0);
    CHECK(heads_.size() == 0, "{} heads were published before", heads_.size());
    kv_.pool().list_freed();
    state_.pool().list_freed();
}

void Cache::take_freed(FreedUnits& freed) {
    kv_.pool().take_freed(freed.blocks);
    state_.pool().take_freed(freed.rows);
    CHECK(freed.rows.empty() || state_.enabled(), "{} runs of rows are freed", freed.rows.size());
    CHECK(freed.blocks.empty() || kv_.enabled(), "{} runs of blocks are freed", freed.blocks.size());
}

void Cache::complete_step(int64_t step) {
    kv_.pool().complete_step(step);
    state_.complete_step(step);
}

Head& Cache::head_ref(HeadId id) {
    Head* found = heads_.find(id);
    CHECK(found != nullptr, "head {}", index(id));
    return *found;
}

std::vector<const Head*> Cache::heads() const {
    std::vector<const Head*> heads;
    for (const HeadId id : order_.in_order()) heads.push_back(find(id));
    std::vector<const Head*> pinned;
    heads_.for_each([&](HeadId id, const Head& head) {
        if (order_.num_pins(id) > 0) pinned.push_back(&head);
    });
    std::ranges::sort(pinned, {}, &Head::id);
    heads.insert(heads.end(), pinned.begin(), pinned.end());
    return heads;
}

}  // namespace verbatim
