#include "engine/cache/due_list.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {
namespace {

uint64_t key_of(int64_t tick) { return static_cast<uint64_t>(tick); }

}  // namespace

uint32_t DueList::add(HeadId head, int64_t tick) {
    auto number = static_cast<uint32_t>(entries_.size());
    if (free_.empty()) {
        entries_.emplace_back();
    } else {
        number = free_.back();
        free_.pop_back();
    }
    CHECK_EQ(index(entries_[number].head), index(kNoHead));
    const uint32_t next = firsts_.find(key_of(tick));
    entries_[number] = {.head = head, .tick = tick, .next = next};
    if (next == kNone) {
        firsts_.insert(key_of(tick), number);
    } else {
        entries_[next].previous = number;
        firsts_.assign(key_of(tick), number);
    }
    CHECK(firsts_.size() <= size(), "{} ticks for {} heads", firsts_.size(), size());
    return number;
}

void DueList::erase(uint32_t number) {
    CHECK(number < entries_.size() && entries_[number].head != kNoHead, "entry {} of {} is not there", number,
          entries_.size());
    const Entry erased = entries_[number];
    if (erased.next != kNone) entries_[erased.next].previous = erased.previous;
    if (erased.previous != kNone) {
        entries_[erased.previous].next = erased.next;
    } else if (erased.next != kNone) {
        firsts_.assign(key_of(erased.tick), erased.next);
    } else {
        firsts_.erase(key_of(erased.tick));
    }
    free_entry(number);
    CHECK_LE(firsts_.size(), size());
}

std::vector<HeadId> DueList::take(int64_t tick) {
    std::vector<HeadId> due;
    const uint32_t first = firsts_.find(key_of(tick));
    if (first == kNone) return due;
    firsts_.erase(key_of(tick));
    for (uint32_t number = first; number != kNone;) {
        const Entry entry = entries_[number];
        CHECK_EQ(entry.tick, tick);
        due.push_back(entry.head);
        free_entry(number);
        number = entry.next;
    }
    std::ranges::sort(due);
    CHECK(!due.empty() && firsts_.size() <= size(), "{} ticks for {} heads", firsts_.size(), size());
    return due;
}

void DueList::free_entry(uint32_t number) {
    entries_[number] = {};
    free_.push_back(number);
    CHECK_LE(free_.size(), entries_.size());
}

}  // namespace verbatim
