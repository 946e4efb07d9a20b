#include "simulator/cache_run.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/scheduler/snapshots.h"
#include "traces/requests.h"

namespace verbatim {
namespace {

using traces::Row;
using traces::RowIndex;

const std::string kNumericsId = "cost/1";

class CacheRun {
public:
    CacheRun(const CacheRunConfig& config, const traces::Trace& trace, TokenStore& store,
             traces::RequestMaker& requests, EvictionPolicy& policy)
        : config_(config),
          trace_(trace),
          store_(store),
          requests_(requests),
          cache_(config.cache, policy),
          tiers_(config.tiers, /*is_timed=*/false) {
        result_.rows.resize(trace.rows.size());
        cache_.on_gone([this](const Head& head, NotReused reason) {
            if (reason != NotReused::kEvicted) return;
            ++result_.evictions;
            tiers_.keep(head, 0);
        });
    }
    CacheRunResult run() {
        for (size_t i = 0; i < trace_.rows.size(); ++i) {
            const auto row = RowIndex(i);
            if (traces::is_request(trace_.row(row).event)) {
                serve(row);
            } else {
                result_.rows[i].outcome = move_name(row) ? RowOutcome::kDone : RowOutcome::kRefused;
            }
            result_.peak_blocks = std::max(result_.peak_blocks, cache_.kv().pool().num_used());
            result_.peak_state_rows = std::max(result_.peak_state_rows, cache_.state().pool().num_used());
            cache_.complete_step(step_++);
        }
        tiers_.verify();
        result_.tiers = tiers_.counts();
        return std::move(result_);
    }

private:
    void serve(RowIndex index);
    [[nodiscard]] bool move_name(RowIndex index);
    [[nodiscard]] bool fits_empty_cache(int64_t num_resident) const;
    void restore(const LookupQuery& query, LookupResult& found, RowTimes& times);
    std::optional<SequenceMemory> admit(const TokenSeq& prompt, int64_t num_resident, LookupResult& found);
    std::optional<SequenceMemory> attach(const LookupResult& found, int64_t num_resident);
    std::vector<Snapshot> snapshots_of(const ChatRequest& request, int64_t num_prompt_tokens, int64_t branch) const;
    void snapshot(const ConversationKey& key, const SequenceMemory& memory, const TokenSeq& prompt,
                  const Snapshot& snapshot);

    CacheRunConfig config_;
    const traces::Trace& trace_;
    TokenStore& store_;
    traces::RequestMaker& requests_;
    Cache cache_;
    Tiers tiers_;
    CacheRunResult result_;
    int64_t step_ = 0;
};

void CacheRun::serve(RowIndex index) {
    const Row& row = trace_.row(index);
    const ChatRequest request = requests_.make(index);
    const TokenSeq prompt = requests_.prompt(index);
    const int64_t num_output = std::max<int64_t>(row.max_tokens, 0);
    RowTimes& times = result_.rows[static_cast<size_t>(verbatim::index(index))];
    times.prompt_tokens = prompt.size();
    times.outcome = RowOutcome::kRejected;
    const int64_t num_resident = prompt.size() + std::max<int64_t>(num_output - 1, 0);
    const ConversationKey& key = request.conversation;
    const LookupQuery query{
        .key = key, .tokens = prompt, .use_cache = config_.use_cache && request.use_cache, .numerics_id = kNumericsId};
    LookupResult found = cache_.lookup(query);
    const bool fits =
        !prompt.empty() && prompt.size() + num_output <= config_.max_model_len && fits_empty_cache(num_resident);
    if (fits && query.use_cache) restore(query, found, times);
    auto memory = fits ? admit(prompt, num_resident, found) : std::nullopt;
    if (!memory) {
        ++result_.rejected;
        return;
    }
    memory->last_step = step_;
    const Cache::Seen seen = cache_.observe(query, found, *memory);
    result_.reusable_tokens += seen.reusable;
    for (const Snapshot& at : snapshots_of(request, prompt.size(), seen.branch)) {
        if (at.length > found.length) snapshot(key, *memory, prompt, at);
    }
    TokenSeq resident = prompt;
    const TokenSeq output = store_.derive(traces::output_space(index), 0, num_output);
    resident.append(output.slice(0, num_resident - prompt.size()));
    PendingMemory pending = cache_.detach_as_pending(*memory, std::move(resident));
    cache_.release(*memory);
    cache_.publish({key, HeadKind::kTurn, kNumericsId, std::move(pending)}, {});
    requests_.answered(index, output, Version{verbatim::index(index) + 1});
    times.reused_tokens = found.length;
    times.restored_tokens = std::min(times.restored_tokens, found.length);
    result_.restores.restored_tokens += times.restored_tokens;
    times.output_tokens = num_output;
    times.outcome = RowOutcome::kServed;
    result_.block_references += (prompt.size() + config_.cache.pools.block_size - 1) / config_.cache.pools.block_size;
}

// As in Engine::import_head. `times` gets the tokens that memory alone would not have served.
void CacheRun::restore(const LookupQuery& query, LookupResult& found, RowTimes& times) {
    if (!tiers_.any()) return;
    tiers_.tick();
    const CacheSalt& salt = query.key.salt;
    std::vector<FoundHead> heads = tiers_.find(salt, query.tokens, kNumericsId, query.max_length());
    const int64_t num_resident = cache_.resident_prefix(salt, query.tokens, kNumericsId).length;
    for (FoundHead& head : heads) head.first_token = std::min(num_resident, head.length);
    const HeadChoice choice = tiers_.choose(std::move(heads), found.length);
    result_.restores.not_worth += choice.num_unrestored > 0 ? 1 : 0;
    if (!choice.found) return;
    const TokenSeq tokens = tiers_.tokens_of(*choice.found);
    CHECK(tokens.size() > found.length && tokens.size() <= query.max_length(), "{} tokens for {}", tokens.size(),
          query.tokens.size());
    static_cast<void>(tiers_.read(*choice.found, 0));
    auto pending = cache_.make_pending(salt, tokens, kNumericsId);
    if (!pending) {
        ++result_.restores.no_room;
        return;
    }
    ++result_.restores.restores;
    times.restored_tokens = tokens.size() - found.length;
    const HeadKind kind = cache_.kind_of_import(query.key, tokens.size());
    cache_.publish({query.key, kind, kNumericsId, *std::move(pending)}, {});
    found = cache_.lookup(query);
}

// Evicting for a request that cannot fit would empty the cache without use.
bool CacheRun::fits_empty_cache(int64_t num_resident) const {
    return !cache_.kv().enabled() || cache_.kv().blocks_for(num_resident) <= cache_.num_affordable_blocks(1);
}

// As in the scheduler: when only the head itself blocks the admission, the lookup is a miss.
std::optional<SequenceMemory> CacheRun::admit(const TokenSeq& prompt, int64_t num_resident, LookupResult& found) {
    CHECK_LT(found.length, prompt.size());
    if (auto memory = attach(found, num_resident)) return memory;
    found = {};
    return attach(found, num_resident);
}

std::optional<SequenceMemory> CacheRun::attach(const LookupResult& found, int64_t num_resident) {
    const KvGroup& kv = cache_.kv();
    const auto num_shared = static_cast<int32_t>(found.length / kv.block_size());
    const int32_t num_own = std::max(0, kv.blocks_for(num_resident) - num_shared);
    if (!cache_.make_room({num_own, 1}, {.except = found.head, .spare_expected = false})) return std::nullopt;
    auto memory = cache_.attach(found.head, found.length);
    if (memory && !cache_.grow(*memory, num_resident)) {
        cache_.release(*memory);
        return std::nullopt;
    }
    return memory;
}

// The positions at which the engine's scheduler publishes.
std::vector<Snapshot> CacheRun::snapshots_of(const ChatRequest& request, int64_t num_prompt_tokens,
                                             int64_t branch) const {
    std::vector<int64_t> message_ends;
    int64_t end = 0;
    for (const Message& message : request.messages) {
        end += message.tokens.size();
        if (message.checkpoint && request.input == InputKind::kHistory) message_ends.push_back(end);
    }
    return choose_snapshots({.message_ends = message_ends,
                             .num_prompt_tokens = num_prompt_tokens,
                             .branch = branch,
                             .is_unseen = branch == 0 && cache_.find(request.conversation) == nullptr,
                             .max_checkpoints = config_.max_checkpoints},
                            config_.cache);
}

void CacheRun::snapshot(const ConversationKey& key, const SequenceMemory& memory, const TokenSeq& prompt,
                        const Snapshot& snapshot) {
    (void)cache_.make_room({.state_rows = 1}, {.spare_proven = true});
    auto pending = cache_.snapshot(memory, prompt.slice(0, snapshot.length));
    if (!pending) return;
    cache_.publish({key, snapshot.kind, kNumericsId, *std::move(pending)}, {});
}

// False, without changes: a fork to an existing conversation, which the ledger refuses.
bool CacheRun::move_name(RowIndex index) {
    const Row& row = trace_.row(index);
    const ConversationKey key = requests_.key(row.conversation);
    if (row.event == traces::Event::kDelete) {
        cache_.remove(key);
        return true;
    }
    const Row& from = trace_.row(row.from);
    if (row.event == traces::Event::kFork) {
        const ConversationKey origin = requests_.key(from.conversation);
        const Name* taken = cache_.find(key);
        if (key == origin || (taken != nullptr && taken->committed)) return false;
        cache_.fork(origin, key);
    }
    cache_.rewind(key, traces::planned_end(from));
    return true;
}

}  // namespace

Result<CacheRunResult> run_cache(const CacheRunConfig& config, const traces::Trace& trace, int32_t vocab_size,
                                 EvictionPolicy& policy) {
    RETURN_IF_ERROR(validate(config.cache));
    TokenStore store(vocab_size);
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    return CacheRun(config, trace, store, requests, policy).run();
}

}  // namespace verbatim
