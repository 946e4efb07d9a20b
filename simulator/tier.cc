#include "simulator/tier.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

// Least recently used first, whatever else is known of a head.
class PlainLru final : public EvictionPolicy {
public:
    [[nodiscard]] int64_t rank(const HeadUse& use) override { return use.now; }
    [[nodiscard]] bool goes_by_rank_alone() const override { return true; }
};

std::unique_ptr<EvictionPolicy> policy_of(TierEviction eviction) {
    if (eviction == TierEviction::kLru) return std::make_unique<PlainLru>();
    return std::make_unique<ValueEviction>();
}

}  // namespace

void TierCounts::add(const TierCounts& more) {
    for (int64_t TierCounts::*count :
         {&TierCounts::heads, &TierCounts::bytes, &TierCounts::peak_bytes, &TierCounts::writes,
          &TierCounts::bytes_written, &TierCounts::not_written, &TierCounts::evictions, &TierCounts::reads,
          &TierCounts::bytes_read, &TierCounts::tokens_read, &TierCounts::read_ns}) {
        this->*count += more.*count;
    }
}

Tier::Tier(const TierConfig& config, const CacheConfig& cache, TierEviction eviction, bool is_timed)
    : config_(config),
      cache_(cache),
      is_timed_(is_timed),
      policy_(policy_of(eviction)),
      kv_(cache.has_kv, cache.pools.block_size, /*num_blocks=*/0),
      order_(*policy_, kv_) {
    CHECK(config.bytes >= 0 && config.bytes_per_us > 0 && config.latency_ns >= 0, "tier {} of {} bytes at {} a us",
          config.name, config.bytes, config.bytes_per_us);
    CHECK(!cache.has_kv || cache.kv_block_bytes > 0, "blocks of {} bytes", cache.kv_block_bytes);
    if (policy_->ranks_by_worth()) order_.set_worth([this](const Head& head) { return value_of(head); });
}

HeadValue Tier::value_of(const Head& head) const {
    const Head* shorter = index_.longest_prefix_of(head);
    return head_value(cache_, shorter != nullptr ? shorter->length() : 0, head.length(),
                      kv_.exclusive_blocks(head.blocks));
}

int64_t Tier::num_bytes() const {
    const int64_t rows = cache_.has_state ? static_cast<int64_t>(heads_.size()) * cache_.state_row_bytes : 0;
    return rows + int64_t{kv_.pool().num_used()} * cache_.kv_block_bytes;
}

TierCounts Tier::counts() const {
    TierCounts counts = counts_;
    counts.heads = static_cast<int64_t>(heads_.size());
    counts.bytes = num_bytes();
    return counts;
}

// --- what is kept

void Tier::keep(const Head& head, int64_t now_ns, std::vector<Head>& gone) {
    CHECK_GT(head.length(), 0);
    const Head* equal = find(head.salt, head.tokens, head.numerics_id, head.length());
    if (equal != nullptr && equal->length() == head.length()) {
        order_.use(equal->id);
        return;
    }
    // Of the KV that the tier has, nothing is written again.
    const PrefixIndex::Common common =
        index_.longest_common({.salt = head.salt, .tokens = head.tokens, .numerics_id = &*head.numerics_id});
    const int64_t bytes = read_bytes(head.length(), common.length);
    const int64_t waiting_bytes = (write_free_ns_ - now_ns) / 1000 * config_.bytes_per_us;
    const bool waits_too_long = is_timed_ && write_free_ns_ > now_ns && waiting_bytes + bytes > kMaxWaitingBytes;
    if (waits_too_long || read_bytes(head.length(), 0) > config_.bytes) {
        ++counts_.not_written;
        return;
    }
    Kept& kept = add(head);
    const HeadId id = kept.head.id;
    while (num_bytes() > config_.bytes && heads_.size() > 0) evict(gone);
    CHECK_LE(num_bytes(), config_.bytes);
    counts_.peak_bytes = std::max(counts_.peak_bytes, num_bytes());
    Kept* written = heads_.find(id);
    if (written == nullptr) return;  // every other head is worth more
    write_free_ns_ = std::max(write_free_ns_, now_ns) + transfer_ns(bytes);
    written->written_ns = is_timed_ ? write_free_ns_ : 0;
    ++counts_.writes;
    counts_.bytes_written += bytes;
}

// A tier of many terabytes starts without a block: it takes memory for what heads take, and no more than twice that.
void Tier::make_blocks(int32_t missing) {
    const BlockPool& pool = kv_.pool();
    if (missing > pool.num_free()) kv_.add_blocks(std::max(missing, pool.num_units()));
    CHECK_GE(pool.num_free(), missing);
}

auto Tier::add(const Head& head) -> Kept& {
    const auto id = HeadId{next_head_++};
    Kept& kept = heads_.add(id, {});
    kept.head.id = id;
    kept.head.salt = head.salt;
    kept.head.kind = head.kind;
    kept.head.tokens = head.tokens;
    kept.head.generation = head.generation;
    kept.head.numerics_id = head.numerics_id;
    kept.head.in_prefix_index = true;
    if (kv_.enabled()) {
        const PrefixIndex::Common common =
            index_.longest_common({.salt = head.salt, .tokens = head.tokens, .numerics_id = &*head.numerics_id});
        const int64_t shared = common.length / kv_.block_size() * kv_.block_size();
        BlockTable table;
        if (shared > 0) table = kv_.attach(common.head->blocks, shared)->table;
        make_blocks(kv_.blocks_missing(table, head.length()));
        CHECK(kv_.grow(table, head.length()), "{} blocks for {} tokens", kv_.pool().num_free(), head.length());
        kept.head.blocks = kv_.detach_as_pending(table, head.length(), kNoStep);
        kv_.publish(kept.head.blocks, id);
    }
    index_.insert(kept.head);
    order_.add(kept.head);
    return kept;
}

void Tier::evict(std::vector<Head>& gone) {
    const auto victim = order_.first(Pool::kState, {});
    CHECK(victim.has_value(), "{} heads, and none may go", heads_.size());
    const Head* shorter = index_.longest_prefix_of(heads_.find(*victim)->head);
    if (shorter != nullptr && policy_->ranks_by_worth()) order_.stand_in(shorter->id, *victim);
    ++counts_.evictions;
    gone.push_back(remove(*victim));
    if (shorter != nullptr && policy_->ranks_by_worth()) order_.note_worth(shorter->id);
}

Head Tier::remove(HeadId id) {
    Kept* kept = heads_.find(id);
    CHECK(kept != nullptr, "head {} of tier {}", index(id), config_.name);
    Head& head = kept->head;
    index_.erase(head);
    order_.remove(id);
    kv_.release_head(head.blocks, id);
    Head removed = std::move(head);
    heads_.erase(id);
    CHECK_EQ(heads_.size(), index_.size());
    return removed;
}

// --- what is read

const Head* Tier::find(const CacheSalt& salt, const TokenSeq& tokens, const std::string& numerics_id,
                       int64_t max_length) const {
    return index_.longest_prefix({.salt = salt, .tokens = tokens, .numerics_id = &numerics_id}, max_length);
}

int64_t Tier::read_bytes(int64_t length, int64_t num_resident) const {
    const int64_t blocks = kv_.blocks_for(length) - num_resident / kv_.block_size();
    return (cache_.has_state ? cache_.state_row_bytes : 0) + (kv_.enabled() ? blocks * cache_.kv_block_bytes : 0);
}

int64_t Tier::transfer_ns(int64_t num_bytes) const {
    return config_.latency_ns + num_bytes / config_.bytes_per_us * 1000 +
           num_bytes % config_.bytes_per_us * 1000 / config_.bytes_per_us;
}

int64_t Tier::read_end_ns(HeadId head, int64_t num_bytes, int64_t now_ns) const {
    const Kept* kept = heads_.find(head);
    CHECK(kept != nullptr, "head {} of tier {}", index(head), config_.name);
    const int64_t begin = is_timed_ ? std::max({now_ns, read_free_ns_, kept->written_ns}) : now_ns;
    return begin + transfer_ns(num_bytes);
}

int64_t Tier::read(HeadId head, int64_t num_bytes, int64_t now_ns) {
    const int64_t end_ns = read_end_ns(head, num_bytes, now_ns);
    CHECK(num_bytes >= 0 && end_ns >= now_ns, "{} bytes are read from {} to {} ns", num_bytes, now_ns, end_ns);
    read_free_ns_ = std::max(read_free_ns_, end_ns);
    order_.use(head);
    ++counts_.reads;
    counts_.bytes_read += num_bytes;
    counts_.tokens_read += heads_.find(head)->head.length();
    counts_.read_ns += end_ns - now_ns;
    return end_ns;
}

void Tier::verify() {
    CHECK(num_bytes() <= config_.bytes, "tier {} of {} bytes holds {}", config_.name, config_.bytes, num_bytes());
    std::vector<const Head*> heads;
    std::vector<KvGroup::Holder> holders;
    heads_.for_each([&](HeadId, const Kept& kept) {
        heads.push_back(&kept.head);
        if (kv_.enabled()) holders.push_back({.table = kept.head.blocks, .head = kept.head.id});
    });
    CHECK_EQ(heads.size(), index_.size());
    index_.verify();
    kv_.verify(holders);
    order_.verify(heads);
}

}  // namespace verbatim
