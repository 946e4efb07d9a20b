#include <algorithm>
#include <map>
#include <vector>

#include "engine/base/check.h"
#include "engine/cache/cache.h"

namespace verbatim {
namespace {

// The holders of every unit, counted from scratch.
class Census {
public:
    explicit Census(const StateGroup& state) : rows_(state.pool().num_units()) {}

    void count(const BlockTable& table, StateIndex row, const CacheSalt& salt, HeadId head, bool active) {
        tables_.push_back({table, head, active});
        if (table.segment != kNoSegment) hold(segments_, table.segment, salt, "segment");
        if (row == kNoState) return;
        CHECK(++rows_[index(row)] == 1, "state row {} has two owners", index(row));
        hold(row_salts_, row, salt, "state row");
    }

    [[nodiscard]] const std::vector<KvGroup::Holder>& tables() const { return tables_; }
    [[nodiscard]] const std::vector<int32_t>& rows() const { return rows_; }
    [[nodiscard]] const std::map<SegmentId, const CacheSalt*>& segments() const { return segments_; }

private:
    template <typename Id>
    static void hold(std::map<Id, const CacheSalt*>& holders, Id id, const CacheSalt& salt, const char* what) {
        const CacheSalt* holder = holders.emplace(id, &salt).first->second;
        CHECK(*holder == salt, "{} {} is held under two salts: '{}' and '{}'", what, index(id),
              holder->value.value_or("(none)"), salt.value.value_or("(none)"));
    }

    std::vector<KvGroup::Holder> tables_;
    std::vector<int32_t> rows_;
    std::map<SegmentId, const CacheSalt*> segments_;
    std::map<StateIndex, const CacheSalt*> row_salts_;
};

}  // namespace

void Cache::verify(std::span<const Holder> holders) {
    Census census(state_);
    std::map<HeadId, int64_t> pins;
    for (const Holder& holder : holders) {
        if (holder.pending != nullptr) {
            const PendingMemory& pending = *holder.pending;
            CHECK_EQ(pending.blocks.num_blocks, kv_.blocks_for(pending.tokens.size()));
            census.count(pending.blocks, pending.state, *holder.salt, kNoHead, false);
            continue;
        }
        const SequenceMemory& sequence = *holder.sequence;
        CHECK_GE(sequence.blocks.num_blocks, kv_.blocks_for(holder.num_computed_tokens));
        census.count(sequence.blocks, sequence.state, *holder.salt, kNoHead, true);
        if (sequence.pinned != kNoHead) ++pins[sequence.pinned];
    }
    size_t num_in_index = 0;
    std::vector<const Head*> heads;
    heads_.for_each([&](HeadId id, const Head& head) {
        heads.push_back(&head);
        CHECK_EQ(head.blocks.num_blocks, kv_.blocks_for(head.length()));
        CHECK((head.state != kNoState) == state_.enabled(), "head {} has state row {}", index(id), index(head.state));
        census.count(head.blocks, head.state, head.salt, id, false);
        CHECK(head.has_owner() || (!head.in_prefix_index && num_pins(id) > 0), "head {} belongs to no name", index(id));
        const auto pinned = pins.find(id);
        const int64_t num_pinned = pinned == pins.end() ? 0 : pinned->second;
        CHECK(num_pinned == num_pins(id), "head {}: {} pins, {} sequences", index(id), num_pins(id), num_pinned);
        num_in_index += head.in_prefix_index ? 1 : 0;
    });
    for (const auto& [id, count] : pins) CHECK(find(id) != nullptr, "pinned head {} is gone", index(id));
    CHECK_LE(heads_.size(), max_heads());
    CHECK(salts_.size() <= heads_.size() && numerics_ids_.size() <= heads_.size(), "{} heads, {} salts, {} arithmetics",
          heads_.size(), salts_.size(), numerics_ids_.size());
    names_.verify();
    prefixes_.verify();
    CHECK_EQ(num_in_index, prefixes_.size());
    kv_.verify(census.tables());
    for (const auto& [segment, salt] : census.segments()) {
        for (SegmentId before = kv_.parent(segment); before != kNoSegment; before = kv_.parent(before)) {
            const auto found = census.segments().find(before);
            CHECK(found == census.segments().end() || *found->second == *salt, "segment {} goes on from another salt's",
                  index(segment));
        }
    }
    state_.pool().verify(census.rows());
    const auto bytes_of = [](const auto& pool) { return (pool.num_used() + pool.num_fenced()) * pool.unit_bytes(); };
    const int64_t held = bytes_of(kv_.pool()) + bytes_of(state_.pool());
    CHECK(budget_.num_held() == held, "units hold {} bytes, the budget says {}", held, budget_.num_held());
    history_.verify();
    order_.verify(heads);
}

}  // namespace verbatim
