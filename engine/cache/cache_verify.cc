#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "engine/cache/cache.h"

namespace verbatim {
namespace {

// Counts references and remembers under which salt each unit is held.
class Census {
public:
    Census(const KvGroup& kv, const StateGroup& state)
        : blocks_(kv.pool().num_units()),
          rows_(state.pool().num_units()),
          block_salts_(blocks_.size(), nullptr),
          row_salts_(rows_.size(), nullptr) {}

    void count(const BlockTable& table, StateIndex row, const CacheSalt& salt) {
        for (const BlockRun& run : table.runs()) {
            for (int32_t i = index(run.first); i < index(run.first) + run.count; ++i) {
                ++blocks_[i];
                hold(block_salts_[i], salt, "block", i);
            }
        }
        if (row == kNoState) return;
        CHECK(++rows_[index(row)] == 1, "state row {} has two owners", index(row));
        hold(row_salts_[index(row)], salt, "state row", index(row));
    }

    [[nodiscard]] const std::vector<int32_t>& blocks() const { return blocks_; }
    [[nodiscard]] const std::vector<int32_t>& rows() const { return rows_; }

private:
    static void hold(const CacheSalt*& holder, const CacheSalt& salt, const char* what, int32_t unit) {
        CHECK(holder == nullptr || *holder == salt, "{} {} is held under two salts: '{}' and '{}'", what, unit,
              holder->value.value_or("(none)"), salt.value.value_or("(none)"));
        holder = &salt;
    }

    std::vector<int32_t> blocks_;
    std::vector<int32_t> rows_;
    std::vector<const CacheSalt*> block_salts_;
    std::vector<const CacheSalt*> row_salts_;
};

void verify_names(const Cache& cache, const Head& head) {
    for (const Name* name : head.names) {
        const auto lists = std::ranges::count(name->heads, head.id, &NamedHead::head);
        CHECK(lists == 1, "head {} is listed {} times by '{}'", index(head.id), lists, name->key.conversation_id);
        CHECK(name->key.salt == head.salt, "head {} is listed under another salt", index(head.id));
        CHECK(cache.find(name->key) == name, "head {} knows a name that is gone", index(head.id));
    }
    for (const Name* name : head.former_names) {
        CHECK(std::ranges::count(name->former, head.id) == 1 && cache.find(name->key) == name,
              "head {} is not among the former heads of '{}'", index(head.id), name->key.conversation_id);
    }
    CHECK(!head.names.empty() || !head.former_names.empty() || (!head.in_prefix_index && head.num_pins > 0),
          "head {} belongs to no name", index(head.id));
}

}  // namespace

void Cache::verify(std::span<const Holder> sequences) const {
    Census census(kv_, state_);
    for (const auto& [id, head] : heads_) {
        CHECK_EQ(head->blocks.num_blocks(), kv_.blocks_for(head->length()));
        CHECK((head->state != kNoState) == state_.enabled(), "head {} has state row {}", index(id), index(head->state));
        census.count(head->blocks, head->state, head->salt);
        verify_names(*this, *head);
        const auto pinned = std::ranges::count_if(sequences, [&](const Holder& s) { return s.memory->pinned == id; });
        CHECK(pinned == head->num_pins, "head {}: {} pins, {} sequences", index(id), head->num_pins, pinned);
    }
    CHECK_EQ(lru_.size(), heads_.size());
    for (const auto& [id, pending] : pendings_) {
        CHECK_EQ(pending.blocks.num_blocks(), kv_.blocks_for(pending.tokens.size()));
        census.count(pending.blocks, pending.state, pending.key.salt);
    }
    for (const Holder& sequence : sequences) {
        CHECK_GE(sequence.memory->blocks.num_blocks(), kv_.blocks_for(sequence.num_computed_tokens));
        CHECK(sequence.memory->pinned == kNoHead || find(sequence.memory->pinned) != nullptr, "pinned head {} is gone",
              index(sequence.memory->pinned));
        census.count(sequence.memory->blocks, sequence.memory->state, *sequence.salt);
    }
    for (const auto& [key, name] : names_) {
        CHECK(name->committed || name->has_heads(), "name '{}' is nobody's", key.conversation_id);
        CHECK_LE(name->gone.size(), Name::kMaxGone);
        for (const NamedHead& entry : name->heads) {
            const Head* head = find(entry.head);
            CHECK(head != nullptr && head->length() == entry.length, "name '{}' lists head {} at length {}",
                  key.conversation_id, index(entry.head), entry.length);
        }
    }
    kv_.pool().verify(census.blocks());
    state_.pool().verify(census.rows());
}

}  // namespace verbatim
