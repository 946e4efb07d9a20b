#include "engine/base/index_table.h"

#include "engine/base/check.h"

namespace verbatim {

// The splitmix64 finaliser, so that keys that differ in few bits lie far apart.
size_t IndexTable::home_of(uint64_t key) const {
    key ^= key >> 30;
    key *= 0xbf58476d1ce4e5b9u;
    key ^= key >> 27;
    key *= 0x94d049bb133111ebu;
    key ^= key >> 31;
    return key & (entries_.size() - 1);
}

// Where the key lies, or the free place where it would.
size_t IndexTable::place_of(uint64_t key) const {
    size_t place = home_of(key);
    while (entries_[place].index != kNone && entries_[place].key() != key) place = (place + 1) & (entries_.size() - 1);
    return place;
}

uint32_t IndexTable::find(uint64_t key) const { return entries_.empty() ? kNone : entries_[place_of(key)].index; }

bool IndexTable::insert(uint64_t key, uint32_t index) {
    CHECK(index != kNone, "the key {:x} has no index", key);
    if (4 * (size_ + 1) > 3 * entries_.size()) grow();
    Entry& entry = entries_[place_of(key)];
    if (entry.index != kNone) return false;
    entry = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), index};
    ++size_;
    CHECK_LT(size_, entries_.size());
    return true;
}

void IndexTable::assign(uint64_t key, uint32_t index) {
    CHECK(index != kNone && size_ > 0, "the key {:x} of {}", key, size_);
    Entry& entry = entries_[place_of(key)];
    CHECK(entry.index != kNone, "the key {:x} is not in the table", key);
    entry.index = index;
}

// What lies behind the entry moves up, unless that would put it before its home (T1).
void IndexTable::erase(uint64_t key) {
    CHECK(size_ > 0, "the key {:x} is not in the table", key);
    const size_t mask = entries_.size() - 1;
    size_t hole = place_of(key);
    CHECK(entries_[hole].index != kNone, "the key {:x} is not in the table", key);
    for (size_t next = (hole + 1) & mask; entries_[next].index != kNone; next = (next + 1) & mask) {
        const size_t distance = (next - home_of(entries_[next].key())) & mask;
        if (distance < ((next - hole) & mask)) continue;
        entries_[hole] = entries_[next];
        hole = next;
    }
    entries_[hole] = {};
    --size_;
}

void IndexTable::grow() {
    const size_t size = entries_.empty() ? 8 : 2 * entries_.size();
    std::vector<Entry> before(size);
    before.swap(entries_);
    for (const Entry& entry : before) {
        if (entry.index != kNone) entries_[place_of(entry.key())] = entry;
    }
    CHECK_LE(4 * size_, 3 * entries_.size());
}

}  // namespace verbatim
