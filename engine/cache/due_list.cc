#include "engine/cache/due_list.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {
namespace {

uint64_t key_of(int64_t tick) { return static_cast<uint64_t>(tick); }

}  // namespace

uint32_t DueList::add(HeadId head, int64_t tick) {
    const uint32_t next = firsts_.find(key_of(tick));
    const uint32_t number = entries_.add({.head = head, .tick = tick, .next = next});
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
    CHECK(number < entries_.num_numbers() && entries_[number].head != kNoHead, "entry {} of {} is not there", number,
          entries_.num_numbers());
    const Entry erased = entries_[number];
    if (erased.next != kNone) entries_[erased.next].previous = erased.previous;
    if (erased.previous != kNone) {
        entries_[erased.previous].next = erased.next;
    } else if (erased.next != kNone) {
        firsts_.assign(key_of(erased.tick), erased.next);
    } else {
        firsts_.erase(key_of(erased.tick));
    }
    entries_.free(number);
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
        entries_.free(number);
        number = entry.next;
    }
    std::ranges::sort(due);
    CHECK(!due.empty() && firsts_.size() <= size(), "{} ticks for {} heads", firsts_.size(), size());
    return due;
}

}  // namespace verbatim
