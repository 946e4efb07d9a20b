// simulator/tier.h: owns the heads of one kind of memory behind a device's: host memory, or a disk. They have sizes and
// times and no bytes.
//
//   T1  heads take the tier's bytes at most; KV of tokens that heads have in common is counted once, in full blocks
//   T2  the head of the lowest value per byte goes first, or the least recently used one; also the one that came last
//   T3  reads follow one another at the tier's rate, and so do writes; a head is read once it is written
//   T4  a head that would wait behind more than kMaxWaitingBytes of writes is not kept
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cache/cache.h"
#include "engine/cache/eviction.h"
#include "engine/cache/head.h"
#include "engine/cache/kv_group.h"
#include "engine/cache/prefix_index.h"

namespace verbatim {

struct TierConfig {
    std::string name;
    int64_t bytes = 0;
    int64_t bytes_per_us = 1;  // of reads, and as many of writes at the same time
    int64_t latency_ns = 0;    // of each read and write
};

// Which heads of a tier go first.
enum class TierEviction : uint8_t { kValue, kLru };

// Of one run; the first two of its end.
struct TierCounts {
    int64_t heads = 0;
    int64_t bytes = 0;
    int64_t peak_bytes = 0;
    int64_t writes = 0;
    int64_t bytes_written = 0;
    int64_t not_written = 0;  // T4, or larger than the tier
    int64_t evictions = 0;
    int64_t reads = 0;
    int64_t bytes_read = 0;
    int64_t tokens_read = 0;  // of heads that were read, resident or not
    int64_t read_ns = 0;      // from the request to the last byte
    void add(const TierCounts& more);
    friend bool operator==(const TierCounts&, const TierCounts&) = default;
};

class Tier {
public:
    static constexpr int64_t kMaxWaitingBytes = int64_t{4} << 30;

    // `cache` says what blocks, rows and tokens cost: has_kv, has_state, block_size, kv_block_bytes, state_row_bytes,
    // operations_per_token, operations_per_pair. `is_timed` false: reads and writes wait for nothing.
    Tier(const TierConfig& config, const CacheConfig& cache, TierEviction eviction, bool is_timed);
    Tier(const Tier&) = delete;
    Tier& operator=(const Tier&) = delete;

    // A request is admitted: heads grow older.
    void tick() { order_.tick(); }
    // Keeps the head, which costs a write unless an equal one is there. Heads that had to go for it are appended to
    // `gone`.
    void keep(const Head& head, int64_t now_ns, std::vector<Head>& gone);
    // The longest head with at most `max_length` tokens, all of them the first ones of `tokens`. Null: there is none.
    [[nodiscard]] const Head* find(const CacheSalt& salt, const TokenSeq& tokens, const std::string& numerics_id,
                                   int64_t max_length) const;
    [[nodiscard]] bool has(HeadId head) const { return heads_.find(head) != nullptr; }
    [[nodiscard]] const TokenSeq& tokens_of(HeadId head) const { return heads_.find(head)->head.tokens; }
    // Of a head's state, and KV of what is behind its first `num_resident` tokens in full blocks.
    [[nodiscard]] int64_t read_bytes(int64_t length, int64_t num_resident) const;
    // When a read of so many bytes would be done. REQUIRES: the head is there.
    [[nodiscard]] int64_t read_end_ns(HeadId head, int64_t num_bytes, int64_t now_ns) const;
    // Reads; the same time.
    int64_t read(HeadId head, int64_t num_bytes, int64_t now_ns);

    [[nodiscard]] const TierConfig& config() const { return config_; }
    [[nodiscard]] TierCounts counts() const;
    [[nodiscard]] int64_t num_bytes() const;  // that heads take now
    void verify();                            // T1 and the parts' invariants from scratch

private:
    struct Kept {
        Head head;
        int64_t written_ns = 0;
    };
    [[nodiscard]] int64_t transfer_ns(int64_t num_bytes) const;
    [[nodiscard]] HeadValue value_of(const Head& head) const;
    void make_blocks(int32_t missing);
    Kept& add(const Head& head);
    void evict(std::vector<Head>& gone);
    Head remove(HeadId id);

    const TierConfig config_;
    const CacheConfig cache_;
    const bool is_timed_;
    std::unique_ptr<EvictionPolicy> policy_;
    KvGroup kv_;
    EvictionOrder order_;
    PrefixIndex index_;
    HeadTable<Kept> heads_;
    int64_t next_head_ = 0;
    int64_t read_free_ns_ = 0;   // when the last read ends
    int64_t write_free_ns_ = 0;  // when the last write ends
    TierCounts counts_;
};

}  // namespace verbatim
