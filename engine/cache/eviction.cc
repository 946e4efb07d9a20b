#include "engine/cache/eviction.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

EvictionOrder::EvictionOrder(EvictionPolicy& policy, KvGroup& kv) : policy_(policy), kv_(kv) {}

auto EvictionOrder::entry(HeadId head) -> Entry& {
    Entry* found = entries_.find(head);
    CHECK(found != nullptr, "head {} is not in the order", index(head));
    return *found;
}

auto EvictionOrder::entry(HeadId head) const -> const Entry& {
    const Entry* found = entries_.find(head);
    CHECK(found != nullptr, "head {} is not in the order", index(head));
    return *found;
}

auto EvictionOrder::ghost(HeadId head) -> Ghost& {
    Ghost* found = ghosts_.find(head);
    CHECK(found != nullptr, "head {} is no ghost", index(head));
    return *found;
}

int64_t EvictionOrder::num_pins(HeadId head) const { return entry(head).num_pins; }

// Whether the head stands for the segment's top.
bool EvictionOrder::is_offered(SegmentId segment, HeadId head) const {
    if (segment == kNoSegment || static_cast<size_t>(index(segment)) >= top_of_.size()) return false;
    const std::optional<Key>& offered = top_of_[index(segment)];
    return offered && offered->head == head;
}

int64_t ValueEviction::rank(const HeadUse& use) {
    CHECK(use.worth.operations >= 0 && use.worth.bytes >= 0, "head {} saves {} operations in {} bytes", index(use.head),
          use.worth.operations, use.worth.bytes);
    const int32_t head_class = ReuseModel::class_of(use.head_class());
    return log2_of(use.worth.operations) - log2_of(use.worth.bytes) + model_.log_density(head_class, use.age);
}

// Of 0 as of 1. Heads of one kind are often of the same numbers.
int64_t ValueEviction::log2_of(int64_t x) {
    const auto asked = static_cast<uint64_t>(std::max<int64_t>(x, 1));
    Logarithm& known = logarithms_[(asked ^ asked >> 7 ^ asked >> 19) % logarithms_.size()];
    if (known.of != asked) known = {asked, log2_fixed(asked)};
    CHECK_GE(known.log2, 0);
    return known.log2;
}

void ValueEviction::note_used(const HeadClass& head, int32_t age) { model_.note_used(ReuseModel::class_of(head), age); }

void ValueEviction::note_reached(const HeadClass& head, int32_t age) {
    model_.note_reached(ReuseModel::class_of(head), age);
}

// --- ages

uint32_t EvictionOrder::follow(HeadId head, int64_t last_tick, int32_t age) {
    CHECK(last_tick <= tick_ && age >= 0, "head {} of age {} was used at tick {} of {}", index(head), age, last_tick,
          tick_);
    if (!policy_.ranks_by_worth() || age + 1 >= ReuseModel::kNumBuckets) return DueList::kNone;
    return next_age_.add(head, last_tick + ReuseModel::begin_of(age + 1));
}

void EvictionOrder::unfollow(uint32_t& due) {
    const uint32_t before = std::exchange(due, DueList::kNone);
    if (before != DueList::kNone) next_age_.erase(before);
    CHECK(due == DueList::kNone && next_age_.size() <= entries_.size() + ghosts_.size(), "{} heads grow older, of {}",
          next_age_.size(), entries_.size() + ghosts_.size());
}

void EvictionOrder::tick() {
    ++tick_;
    for (const HeadId head : next_age_.take(tick_)) {
        ++num_visits_;
        Entry* older = entries_.find(head);
        if (older == nullptr) {
            age_ghost(head);
            continue;
        }
        do {
            policy_.note_reached(older->use.head_class(), ++older->use.age);
            rank_again(*older);
        } while (is_older(older->last_tick, older->use.age));
        older->due = follow(head, older->last_tick, older->use.age);
    }
    CHECK_LE(next_age_.size(), entries_.size() + ghosts_.size());
}

void EvictionOrder::age_ghost(HeadId head) {
    Ghost& older = ghost(head);
    do policy_.note_reached(older.head, ++older.age);
    while (is_older(older.last_tick, older.age));
    older.due = follow(head, older.last_tick, older.age);
    CHECK_LT(older.age, ReuseModel::kNumBuckets);
}

// Whether the next half octave of age has begun, too: two may begin at one tick.
bool EvictionOrder::is_older(int64_t last_tick, int32_t age) const {
    return age + 1 < ReuseModel::kNumBuckets && last_tick + ReuseModel::begin_of(age + 1) <= tick_;
}

void EvictionOrder::rank_again(Entry& entry) {
    CHECK_EQ(index(entry.use.head), index(entry.key.head));
    if (worth_) entry.use.worth = worth_(*entry.of);
    Key key = entry.key;
    key.rank = policy_.rank(entry.use);
    if (key != entry.key) place(entry, key);
}

void EvictionOrder::stand_in(HeadId shorter, HeadId longer) {
    CHECK(shorter != longer, "head {} stands in for itself", index(shorter));
    const Entry& gone = entry(longer);
    Entry& left = entry(shorter);
    HeadUse use = left.use;
    use.kind = gone.use.kind;
    use.num_uses = gone.use.num_uses;
    use.generation = gone.use.generation;
    use.age = gone.use.age;
    if (policy_.rank(use) <= policy_.rank(left.use)) return;
    unfollow(left.due);
    CHECK_GE(gone.last_tick, 0);
    CHECK_EQ(index(use.head), index(shorter));
    left.use = use;
    left.last_tick = gone.last_tick;
    left.due = follow(shorter, left.last_tick, left.use.age);
    rank_again(left);
    CHECK_LE(left.last_tick, tick_);
}

void EvictionOrder::remove_to_ghost(HeadId head) {
    const Entry& gone = entry(head);
    const Ghost ghost{.head = gone.use.head_class(), .age = gone.use.age, .last_tick = gone.last_tick};
    remove(head);
    if (!policy_.ranks_by_worth()) return;
    CHECK_LE(ghost.last_tick, tick_);
    ghosts_.add(head, ghost).due = follow(head, ghost.last_tick, ghost.age);
}

void EvictionOrder::use_ghost(HeadId head) {
    Ghost& used = ghost(head);
    unfollow(used.due);
    policy_.note_used(used.head, used.age);
    ++used.head.num_uses;
    used.age = 0;
    used.last_tick = tick_;
    CHECK_GT(used.head.num_uses, 0);
    policy_.note_reached(used.head, 0);
    used.due = follow(head, used.last_tick, used.age);
}

int32_t EvictionOrder::generation_of_ghost(HeadId head) const {
    const Ghost* found = ghosts_.find(head);
    CHECK(found != nullptr, "head {} is no ghost", index(head));
    return found->head.generation;
}

void EvictionOrder::forget_ghost(HeadId head) {
    unfollow(ghost(head).due);
    ghosts_.erase(head);
    CHECK(!entries_.contains(head), "head {} is a ghost and alive", index(head));
}

// --- what comes and goes

void EvictionOrder::add(const Head& head) {
    CHECK(!ghosts_.contains(head.id), "head {} is a ghost", index(head.id));
    add(head,
        {.head = head.id, .kind = head.kind, .length = head.length(), .now = now_++, .generation = head.generation});
}

void EvictionOrder::add(const Head& head, HeadId ghost) {
    const Ghost before = this->ghost(ghost);
    forget_ghost(ghost);
    add(head, {.head = head.id,
               .kind = before.head.kind,
               .length = head.length(),
               .num_uses = before.head.num_uses,
               .now = now_++,
               .generation = head.generation});
    if (before.head.num_uses > 0) note_returned(head.id);
}

void EvictionOrder::add(const Head& head, const HeadUse& use) {
    CHECK_GT(head.length(), 0);
    const Key key{.proven = head.kind == HeadKind::kTurn && !policy_.goes_by_rank_alone(),
                  .rank = policy_.rank(use),
                  .head = head.id};
    Entry& followed = entries_.add(head.id, {.of = &head, .use = use, .segment = head.blocks.segment, .key = key});
    CHECK(all_.insert(key).second);
    followed.last_tick = tick_;
    policy_.note_reached(use.head_class(), 0);
    followed.due = follow(head.id, tick_, 0);
    if (worth_) rank_again(followed);
}

void EvictionOrder::use(HeadId head) {
    Entry& used = entry(head);
    const int64_t rank = used.key.rank;
    unfollow(used.due);
    policy_.note_used(used.use.head_class(), used.use.age);
    ++used.use.num_uses;
    used.use.now = now_++;
    used.use.age = 0;
    used.last_tick = tick_;
    policy_.note_reached(used.use.head_class(), 0);
    used.due = follow(head, tick_, 0);
    note_returned(head);
    place(used, {used.key.expected, !policy_.goes_by_rank_alone(), policy_.rank(used.use), head});
    CHECK(used.key.rank >= rank || policy_.ranks_by_worth(), "head {} was used and falls from rank {} to {}",
          index(head), rank, used.key.rank);
}

void EvictionOrder::pin(HeadId head) {
    Entry& pinned = entry(head);
    if (pinned.num_pins++ > 0) return;
    CHECK_EQ(all_.erase(pinned.key), 1u);
    refresh(pinned.segment);
    CHECK(!is_offered(pinned.segment, head), "head {} is pinned and may go for blocks", index(head));
}

void EvictionOrder::unpin(HeadId head) {
    Entry& unpinned = entry(head);
    CHECK(unpinned.num_pins > 0, "head {} is not pinned", index(head));
    if (--unpinned.num_pins > 0) return;
    CHECK(all_.insert(unpinned.key).second);
    refresh(unpinned.segment);
}

void EvictionOrder::expect(HeadId head) {
    Entry& expected = entry(head);
    if (++expected.num_expected == 1) place(expected, {true, expected.key.proven, expected.key.rank, head});
    CHECK(expected.key.expected, "{} requests wait for head {}, which is not spared", expected.num_expected,
          index(head));
}

void EvictionOrder::unexpect(HeadId head) {
    Entry* found = entries_.find(head);
    if (found == nullptr) return;
    Entry& expected = *found;
    CHECK(expected.num_expected > 0, "nobody waits for head {}", index(head));
    if (--expected.num_expected == 0) place(expected, {false, expected.key.proven, expected.key.rank, head});
    CHECK_EQ(expected.key.expected, expected.num_expected > 0);
}

void EvictionOrder::remove(HeadId head) {
    Entry& removed = entry(head);
    CHECK(removed.num_pins == 0, "head {} goes with {} pins", index(head), removed.num_pins);
    CHECK_EQ(all_.erase(removed.key), 1u);
    const SegmentId segment = removed.segment;
    unfollow(removed.due);
    entries_.erase(head);
    refresh(segment);
    CHECK(!is_offered(segment, head), "head {} is gone and may go for blocks", index(head));
}

void EvictionOrder::place(Entry& entry, const Key& key) {
    CHECK_EQ(index(key.head), index(entry.key.head));
    if (entry.num_pins == 0) CHECK_EQ(all_.erase(entry.key), 1u);
    entry.key = key;
    if (entry.num_pins == 0) CHECK(all_.insert(entry.key).second);
    refresh(entry.segment);
}

// Segments change whenever tables do; tops_ catches up before somebody is chosen.
void EvictionOrder::refresh(SegmentId segment) {
    if (segment == kNoSegment || policy_.goes_by_rank_alone()) return;
    ++num_visits_;
    if (top_of_.size() <= static_cast<size_t>(index(segment))) top_of_.resize(index(segment) + 1);
    std::optional<Key>& offered = top_of_[index(segment)];
    const std::optional<Key> top = top_of(segment);
    if (top == offered) return;
    if (offered) CHECK_EQ(tops_.erase(*offered), 1u);
    if (top) CHECK(tops_.insert(*top).second);
    offered = top;
}

auto EvictionOrder::top_of(SegmentId segment) const -> std::optional<Key> {
    std::optional<Key> top;
    for (const HeadId head : kv_.top_heads(segment)) {
        ++num_visits_;
        const Entry* found = entries_.find(head);
        if (found == nullptr || found->num_pins > 0) return std::nullopt;
        Key key = found->key;
        key.proven = false;
        if (!top || *top < key) top = key;
    }
    return top;
}

std::optional<HeadId> EvictionOrder::first(Pool pool, const Reach& reach) {
    const bool by_rank_alone = pool == Pool::kState || policy_.goes_by_rank_alone();
    if (!by_rank_alone) {
        for (const SegmentId segment : kv_.take_changed()) refresh(segment);
    }
    auto chosen = first_of(by_rank_alone ? all_ : tops_, reach);
    // Other heads have come and gone since the head was ranked: the one that is lowest by its worth of today goes.
    while (chosen && worth_ && policy_.ranks_by_worth()) {
        Entry& lowest = entry(*chosen);
        const int64_t rank = lowest.key.rank;
        rank_again(lowest);
        if (lowest.key.rank <= rank) break;
        chosen = first_of(all_, reach);
    }
    CHECK(!chosen || (*chosen != reach.except && num_pins(*chosen) == 0), "head {} may not go", index(*chosen));
    return chosen;
}

std::optional<HeadId> EvictionOrder::first_of(const std::set<Key>& order, const Reach& reach) const {
    const HeadId spared = tick_ - returned_tick_ <= 1 ? returned_ : kNoHead;  // V4
    std::optional<HeadId> last_choice;
    for (const Key& key : order) {
        ++num_visits_;
        if ((key.expected && (reach.spare_expected || last_choice)) || (key.proven && reach.spare_proven)) break;
        if (key.head == reach.except) continue;
        if (key.head != spared) return key.head;
        last_choice = key.head;
    }
    return last_choice;
}

void EvictionOrder::note_returned(HeadId head) {
    CHECK(entries_.contains(head), "head {} is not in the order", index(head));
    if (!policy_.ranks_by_worth()) return;
    returned_ = head;
    returned_tick_ = tick_;
    CHECK_GE(returned_tick_, 0);
}

std::vector<HeadId> EvictionOrder::in_order() const {
    std::vector<HeadId> heads;
    for (const Key& key : all_) heads.push_back(key.head);
    return heads;
}

void EvictionOrder::verify(std::span<const Head* const> heads) {
    for (const SegmentId segment : kv_.take_changed()) refresh(segment);
    for (const Head* head : heads) {
        const SegmentId segment = entry(head->id).segment;
        CHECK(segment == head->blocks.segment, "head {} lies in segment {}, the order says {}", index(head->id),
              index(head->blocks.segment), index(segment));
    }
    CHECK(entries_.size() == heads.size(), "{} heads are in the order, {} live", entries_.size(), heads.size());
    std::set<Key> tops;
    size_t num_unpinned = 0;
    entries_.for_each([&](HeadId head, const Entry& checked) {
        CHECK_EQ(index(checked.key.head), index(head));
        CHECK_EQ(checked.key.expected, checked.num_expected > 0);
        CHECK(all_.contains(checked.key) == (checked.num_pins == 0), "head {} with {} pins", index(head),
              checked.num_pins);
        num_unpinned += checked.num_pins == 0 ? 1 : 0;
        if (checked.segment == kNoSegment || policy_.goes_by_rank_alone()) return;
        if (const auto top = top_of(checked.segment)) tops.insert(*top);
    });
    CHECK_EQ(num_unpinned, all_.size());
    CHECK(tops == tops_, "{} heads may go for blocks, {} are offered", tops.size(), tops_.size());
}

void EvictionOrder::verify_expected(std::span<const HeadId> expected) const {
    std::map<HeadId, int64_t> times;
    for (const HeadId head : expected) ++times[head];
    entries_.for_each([&](HeadId head, const Entry& checked) {
        const auto found = times.find(head);
        CHECK_EQ(checked.num_expected, found == times.end() ? 0 : found->second);
    });
}

}  // namespace verbatim
