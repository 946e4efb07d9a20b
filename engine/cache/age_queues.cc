#include "engine/cache/age_queues.h"

#include "engine/base/check.h"

namespace verbatim {

uint32_t AgeQueues::add(const Followed& followed) {
    CHECK_NE(index(followed.head), index(kNoHead));
    const uint32_t number = items_.add({.followed = followed, .last_use = now_});
    link(number, queues_.front().last);
    return number;
}

void AgeQueues::use(uint32_t number, int32_t head_class) {
    CHECK(head_class >= 0 && head_class < ReuseModel::kNumClasses, "class {}", head_class);
    unlink(number);
    items_[number].followed.head_class = static_cast<uint8_t>(head_class);
    items_[number].age = 0;
    items_[number].last_use = now_;
    link(number, queues_.front().last);
    CHECK_EQ(queues_.front().last, number);
}

void AgeQueues::age_like(uint32_t number, uint32_t other) {
    CHECK_NE(number, other);
    unlink(number);
    items_[number].age = items_[other].age;
    items_[number].last_use = items_[other].last_use;
    items_[number].followed.head_class = items_[other].followed.head_class;
    link(number, other);
    CHECK_EQ(items_[other].next, number);
}

void AgeQueues::become(uint32_t number, const Followed& followed) {
    Item& item = items_[number];
    CHECK(item.followed.head == followed.head, "head {} becomes head {}", index(item.followed.head),
          index(followed.head));
    CHECK(!item.followed.is_ghost && followed.is_ghost, "head {} was a ghost before", index(followed.head));
    item.followed = followed;
}

void AgeQueues::erase(uint32_t number) {
    CHECK(number < items_.num_numbers() && items_[number].followed.head != kNoHead, "number {} of {} is not there",
          number, items_.num_numbers());
    unlink(number);
    items_.free(number);
}

// The oldest ones first, which are mostly those of the lowest heads.
auto AgeQueues::take_due() -> const std::vector<std::pair<HeadId, uint32_t>>& {
    ++now_;
    due_.clear();
    for (size_t age = queues_.size(); age-- > 0;) {
        while (queues_[age].due <= now_) {
            const uint32_t first = queues_[age].first;
            CHECK_EQ(queues_[age].due, now_);
            due_.emplace_back(items_[first].followed.head, first);
            unlink(first);
        }
    }
    CHECK_LE(due_.size(), items_.size());
    if (!std::ranges::is_sorted(due_)) std::ranges::sort(due_);
    return due_;
}

void AgeQueues::link(uint32_t number, uint32_t before) {
    Item& item = items_[number];
    Queue& queue = queues_[static_cast<size_t>(item.age)];
    const uint32_t next = before == kNone ? queue.first : items_[before].next;
    CHECK(before == kNone || items_[before].last_use <= item.last_use, "head {} is queued behind a later use",
          index(item.followed.head));
    CHECK(next == kNone || items_[next].last_use >= item.last_use, "head {} is queued before an earlier use",
          index(item.followed.head));
    item.previous = before;
    item.next = next;
    (before == kNone ? queue.first : items_[before].next) = number;
    (next == kNone ? queue.last : items_[next].previous) = number;
    if (before == kNone) queue.due = due_of(item);
}

void AgeQueues::unlink(uint32_t number) {
    const Item& item = items_[number];
    Queue& queue = queues_[static_cast<size_t>(item.age)];
    CHECK(queue.first != kNone && queue.last != kNone, "head {} of age {} is in no queue", index(item.followed.head),
          item.age);
    (item.previous == kNone ? queue.first : items_[item.previous].next) = item.next;
    (item.next == kNone ? queue.last : items_[item.next].previous) = item.previous;
    if (item.previous == kNone) queue.due = item.next == kNone ? kNever : due_of(items_[item.next]);
}

void AgeQueues::verify() const {
    size_t num_items = 0;
    for (size_t age = 0; age < queues_.size(); ++age) {
        const Queue& queue = queues_[age];
        CHECK_EQ(queue.due, queue.first == kNone ? kNever : due_of(items_[queue.first]));
        uint32_t previous = kNone;
        for (uint32_t number = queue.first; number != kNone; previous = std::exchange(number, items_[number].next)) {
            const Item& item = items_[number];
            CHECK_EQ(item.age, static_cast<int32_t>(age));
            CHECK_EQ(item.age, ReuseModel::bucket_of(now_ - item.last_use));
            CHECK_EQ(item.previous, previous);
            CHECK(previous == kNone || items_[previous].last_use <= item.last_use, "head {} is queued too late",
                  index(item.followed.head));
            ++num_items;
        }
        CHECK_EQ(queue.last, previous);
    }
    CHECK_EQ(num_items, items_.size());
}

}  // namespace verbatim
