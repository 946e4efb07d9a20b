#include "engine/cache/eviction.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

EvictionOrder::EvictionOrder(EvictionPolicy& policy, KvGroup& kv)
    : policy_(policy), kv_(kv), is_ranked_(!policy.ranks_by_worth()) {}

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

auto EvictionOrder::key_of(const Entry& entry) -> Key {
    return {.rank = entry.rank,
            .head = entry.use.head,
            .number = entry.number,
            .expected = entry.num_expected > 0,
            .proven = entry.proven};
}

// Whether the head stands for the segment's top.
bool EvictionOrder::is_offered(SegmentId segment, HeadId head) const {
    const auto number = static_cast<uint32_t>(index(segment));
    return segment != kNoSegment && tops_.contains(number) && tops_.at(number).head == head;
}

int64_t ValueEviction::rank(const HeadUse& use) {
    CHECK(use.worth.operations >= 0 && use.worth.bytes >= 0, "head {} saves {} operations in {} bytes", index(use.head),
          use.worth.operations, use.worth.bytes);
    const int32_t head_class = use.class_number();
    return log2_of(use.worth.operations) - log2_of(use.worth.bytes) + model_.log_density(head_class, use.age);
}

// Of 0 as of 1. Heads of one kind are often of the same numbers.
int64_t ValueEviction::log2_of(int64_t x) {
    const auto asked = static_cast<uint64_t>(std::max<int64_t>(x, 1));
    Logarithm& known = logarithms_[(asked * 0x9e3779b97f4a7c15u >> 32) % logarithms_.size()];
    if (known.of != asked) known = {asked, log2_fixed(asked)};
    CHECK_GE(known.log2, 0);
    return known.log2;
}

void ValueEviction::note_used(const HeadClass& head, int32_t age) { model_.note_used(ReuseModel::class_of(head), age); }

// --- ages

void EvictionOrder::tick() {
    // Of millions of heads none is near: all that are due are fetched together.
    const auto fetch = [&](const AgeQueues::Followed& followed) {
        if (followed.is_ghost || !is_ranked_) return;
        const Head* head = entries_.at(followed.place).of;
        __builtin_prefetch(&head->blocks);
    };
    ages_.tick(fetch, [&](const AgeQueues::Followed& followed, int32_t age) {
        ++num_visits_;
        policy_.note_reached(followed.head_class, age);
        if (!followed.is_ghost && is_ranked_) rank_again(entries_.at(followed.place));
    });
    CHECK_LE(ages_.size(), entries_.size() + ghosts_.size());
}

int32_t EvictionOrder::age_of(const Entry& entry) const {
    return entry.age == AgeQueues::kNone ? 0 : ages_.age(entry.age);
}

void EvictionOrder::rank(Entry& entry) const {
    if (worth_) entry.use.worth = worth_(*entry.of);
    entry.use.age = age_of(entry);
    entry.rank = policy_.rank(entry.use);
}

void EvictionOrder::rank_again(Entry& entry) {
    if (!is_ranked_) return;
    const int64_t before = entry.rank;
    rank(entry);
    if (entry.rank != before) place(entry);
    CHECK(entry.num_pins > 0 || all_.at(entry.number).rank == entry.rank, "head {} of rank {} has another place",
          index(entry.use.head), entry.rank);
}

// V5: the first one has to go.
void EvictionOrder::rank_all() {
    CHECK(!is_ranked_ && all_.size() == 0, "{} heads are ranked already", all_.size());
    is_ranked_ = true;
    std::vector<HeadId> heads;
    entries_.for_each([&](HeadId head, const Entry&) { heads.push_back(head); });
    for (const HeadId head : heads) {
        Entry& ranked = entry(head);
        rank(ranked);
        if (ranked.num_pins == 0) all_.insert(key_of(ranked));
    }
    for (const HeadId head : heads) refresh(entry(head).segment);
}

void EvictionOrder::stand_in(HeadId shorter, HeadId longer) {
    CHECK(shorter != longer, "head {} stands in for itself", index(shorter));
    const Entry& gone = entry(longer);
    Entry& left = entry(shorter);
    left.use.age = age_of(left);
    HeadUse use = left.use;
    use.kind = gone.use.kind;
    use.num_uses = gone.use.num_uses;
    use.generation = gone.use.generation;
    use.age = age_of(gone);
    if (policy_.rank(use) <= policy_.rank(left.use)) return;
    ages_.age_like(left.age, gone.age);
    CHECK_EQ(index(use.head), index(shorter));
    left.use = use;
    rank_again(left);
    CHECK_EQ(left.use.age, ages_.age(left.age));
}

void EvictionOrder::remove_to_ghost(HeadId head) {
    const Ghost ghost{entry(head).use.head_class(), std::exchange(entry(head).age, AgeQueues::kNone)};
    remove(head);
    if (!policy_.ranks_by_worth()) return;
    CHECK(ghost.age != AgeQueues::kNone, "head {} has no age", index(head));
    ghosts_.add(head, ghost);
    ages_.become(ghost.age, {.head = head,
                             .place = ghosts_.number_of(head),
                             .is_ghost = true,
                             .head_class = static_cast<uint8_t>(ReuseModel::class_of(ghost.head))});
    CHECK_LE(ages_.size(), entries_.size() + ghosts_.size());
}

void EvictionOrder::use_ghost(HeadId head) {
    Ghost& used = ghost(head);
    policy_.note_used(used.head, ages_.age(used.age));
    ++used.head.num_uses;
    CHECK_GT(used.head.num_uses, 0);
    const int32_t head_class = ReuseModel::class_of(used.head);
    ages_.use(used.age, head_class);
    policy_.note_reached(head_class, 0);
}

int32_t EvictionOrder::generation_of_ghost(HeadId head) const {
    const Ghost* found = ghosts_.find(head);
    CHECK(found != nullptr, "head {} is no ghost", index(head));
    return found->head.generation;
}

void EvictionOrder::forget_ghost(HeadId head) {
    ages_.erase(ghost(head).age);
    ghosts_.erase(head);
    CHECK(!entries_.contains(head), "head {} is a ghost and alive", index(head));
}

// --- what comes and goes

void EvictionOrder::add(const Head& head) {
    CHECK(!ghosts_.contains(head.id), "head {} is a ghost", index(head.id));
    add(head,
        {.head = head.id, .kind = head.kind, .generation = head.generation, .length = head.length(), .now = now_++});
}

void EvictionOrder::add(const Head& head, HeadId ghost) {
    CHECK(head.id != ghost, "head {} takes its ghost's place", index(ghost));
    const Ghost before = this->ghost(ghost);
    forget_ghost(ghost);
    add(head, {.head = head.id,
               .kind = before.head.kind,
               .generation = head.generation,
               .num_uses = static_cast<int32_t>(before.head.num_uses),
               .length = head.length(),
               .now = now_++});
    if (before.head.num_uses > 0) note_returned(head.id);
}

void EvictionOrder::add(const Head& head, const HeadUse& use) {
    CHECK_GT(head.length(), 0);
    Entry& added = entries_.add(head.id, {.of = &head, .use = use, .segment = head.blocks.segment});
    added.number = entries_.number_of(head.id);
    added.proven = head.kind == HeadKind::kTurn && !policy_.goes_by_rank_alone();
    const int32_t head_class = use.class_number();
    policy_.note_reached(head_class, 0);
    if (policy_.ranks_by_worth()) {
        added.age = ages_.add({.head = head.id, .place = added.number, .head_class = static_cast<uint8_t>(head_class)});
    }
    if (is_ranked_) {
        rank(added);
        all_.insert(key_of(added));
    }
    CHECK(added.num_pins == 0 && all_.contains(added.number) == is_ranked_, "head {} comes in with {} pins",
          index(head.id), added.num_pins);
}

void EvictionOrder::use(HeadId head) {
    Entry& used = entry(head);
    const int64_t before = used.rank;
    policy_.note_used(used.use.head_class(), age_of(used));
    ++used.use.num_uses;
    CHECK(used.use.num_uses > 0 && used.use.now < now_, "head {} is used {} times, at {} of {}", index(head),
          used.use.num_uses, used.use.now, now_);
    used.use.now = now_++;
    used.use.age = 0;
    const int32_t head_class = used.use.class_number();
    policy_.note_reached(head_class, 0);
    if (used.age != AgeQueues::kNone) ages_.use(used.age, head_class);
    note_returned(head);
    used.proven = !policy_.goes_by_rank_alone();
    if (is_ranked_) used.rank = policy_.rank(used.use);
    place(used);
    CHECK(used.rank >= before || policy_.ranks_by_worth(), "head {} was used and falls from rank {} to {}", index(head),
          before, used.rank);
}

void EvictionOrder::pin(HeadId head) {
    Entry& pinned = entry(head);
    if (pinned.num_pins++ > 0) return;
    if (is_ranked_) all_.erase(pinned.number);
    refresh(pinned.segment);
    CHECK(!is_offered(pinned.segment, head), "head {} is pinned and may go for blocks", index(head));
}

void EvictionOrder::unpin(HeadId head) {
    Entry& unpinned = entry(head);
    CHECK(unpinned.num_pins > 0, "head {} is not pinned", index(head));
    if (--unpinned.num_pins > 0) return;
    if (!is_ranked_) return;
    all_.insert(key_of(unpinned));
    refresh(unpinned.segment);
    CHECK(all_.at(unpinned.number).head == head, "head {} is not pinned and has no place", index(head));
}

void EvictionOrder::expect(HeadId head) {
    Entry& expected = entry(head);
    if (++expected.num_expected == 1) place(expected);
    CHECK(key_of(expected).expected, "{} requests wait for head {}, which is not spared", expected.num_expected,
          index(head));
}

void EvictionOrder::unexpect(HeadId head) {
    Entry* expected = entries_.find(head);
    if (expected == nullptr) return;
    CHECK(expected->num_expected > 0, "no request waits for head {}", index(head));
    if (--expected->num_expected == 0) place(*expected);
}

void EvictionOrder::remove(HeadId head) {
    const Entry& removed = entry(head);
    CHECK(removed.num_pins == 0, "head {} goes with {} pins", index(head), removed.num_pins);
    if (is_ranked_) all_.erase(removed.number);
    const SegmentId segment = removed.segment;
    if (removed.age != AgeQueues::kNone) ages_.erase(removed.age);
    entries_.erase(head);
    refresh(segment);
    CHECK(!is_offered(segment, head), "head {} is gone and may go for blocks", index(head));
}

// The entry's rank, or what else its place depends on, has changed.
void EvictionOrder::place(const Entry& entry) {
    if (!is_ranked_) return;
    if (entry.num_pins == 0) all_.replace(key_of(entry));
    refresh(entry.segment);
    CHECK(entry.num_pins == 0 || !is_offered(entry.segment, entry.use.head), "head {} is pinned and may go for blocks",
          index(entry.use.head));
}

// Segments change whenever tables do; tops_ catches up before a head is chosen.
void EvictionOrder::refresh(SegmentId segment) {
    if (segment == kNoSegment || policy_.goes_by_rank_alone() || !is_ranked_) return;
    ++num_visits_;
    const auto number = static_cast<uint32_t>(index(segment));
    const bool was_offered = tops_.contains(number);
    const std::optional<Key> top = top_of(segment);
    if (top && was_offered) {
        tops_.replace(*top);
    } else if (top) {
        tops_.insert(*top);
    } else if (was_offered) {
        tops_.erase(number);
    }
    CHECK_EQ(tops_.contains(number), top.has_value());
}

auto EvictionOrder::top_of(SegmentId segment) const -> std::optional<Key> {
    std::optional<Key> top;
    for (const HeadId head : kv_.top_heads(segment)) {
        ++num_visits_;
        const Entry* found = entries_.find(head);
        if (found == nullptr || found->num_pins > 0) return std::nullopt;
        Key key = key_of(*found);
        key.number = static_cast<uint32_t>(index(segment));
        key.proven = false;
        if (!top || *top < key) top = key;
    }
    return top;
}

std::optional<HeadId> EvictionOrder::first(Pool pool, const Reach& reach) {
    if (!is_ranked_) rank_all();
    const bool by_rank_alone = pool == Pool::kState || policy_.goes_by_rank_alone();
    if (!by_rank_alone) {
        for (const SegmentId segment : kv_.take_changed()) refresh(segment);
    }
    auto chosen = first_of(by_rank_alone ? all_ : tops_, reach);
    // Other heads have come and gone since the head was ranked: the one that is lowest by its worth of today goes.
    while (chosen && worth_ && policy_.ranks_by_worth()) {
        Entry& lowest = entry(*chosen);
        const int64_t before = lowest.rank;
        rank_again(lowest);
        if (lowest.rank <= before) break;
        chosen = first_of(all_, reach);
    }
    CHECK(!chosen || (*chosen != reach.except && num_pins(*chosen) == 0), "head {} may not go", index(*chosen));
    return chosen;
}

std::optional<HeadId> EvictionOrder::first_of(const IndexedHeap<Key>& order, const Reach& reach) const {
    const HeadId spared = ages_.now() - returned_at_ <= 1 ? returned_ : kNoHead;  // V4
    std::optional<HeadId> choice;
    order.visit_in_order([&](const Key& key) {
        ++num_visits_;
        if ((key.expected && (reach.spare_expected || choice)) || (key.proven && reach.spare_proven)) return false;
        if (key.head != reach.except) choice = key.head;
        return key.head == reach.except || key.head == spared;
    });
    return choice;
}

void EvictionOrder::note_returned(HeadId head) {
    CHECK(entries_.contains(head), "head {} is not in the order", index(head));
    if (!policy_.ranks_by_worth()) return;
    CHECK_GE(ages_.now(), returned_at_);
    returned_ = head;
    returned_at_ = ages_.now();
}

std::vector<HeadId> EvictionOrder::in_order() const {
    std::vector<Key> keys = all_.in_order();
    if (!is_ranked_) {
        entries_.for_each([&](HeadId, Entry ranked) {
            rank(ranked);
            if (ranked.num_pins == 0) keys.push_back(key_of(ranked));
        });
        std::ranges::sort(keys, [](const Key& a, const Key& b) { return a < b; });
    }
    std::vector<HeadId> heads;
    for (const Key& key : keys) heads.push_back(key.head);
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
    std::set<SegmentId> segments;  // that have a head at their top
    size_t num_unpinned = 0;
    entries_.for_each([&](HeadId head, const Entry& checked) {
        const Key key = key_of(checked);
        const bool is_placed = checked.num_pins == 0 && is_ranked_;
        CHECK(entries_.number_of(head) == key.number && all_.contains(key.number) == is_placed, "head {} with {} pins",
              index(head), checked.num_pins);
        CHECK(!is_placed || all_.at(key.number) == key, "head {} has another place", index(head));
        num_unpinned += is_placed ? 1 : 0;
        if (!is_ranked_ || checked.segment == kNoSegment || policy_.goes_by_rank_alone()) return;
        const auto top = top_of(checked.segment);
        if (!top) return;
        segments.insert(checked.segment);
        CHECK(tops_.contains(top->number) && tops_.at(top->number) == *top, "segment {} offers another head",
              index(checked.segment));
    });
    CHECK_EQ(num_unpinned, all_.size());
    CHECK(segments.size() == tops_.size(), "{} heads may go for blocks, {} are offered", segments.size(), tops_.size());
    CHECK(ages_.size() == (policy_.ranks_by_worth() ? entries_.size() + ghosts_.size() : 0),
          "{} heads grow older, of {}", ages_.size(), entries_.size() + ghosts_.size());
    all_.verify();
    tops_.verify();
    ages_.verify();
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
