// engine/base/index_table.h: owns a hash table from 64-bit keys to 32-bit indices, 12 bytes an entry, for millions of
// entries.
//
//   T1  an entry lies at or behind the place of its key's hash, with no free place between (linear probing)
//   T2  at most three quarters of the places are taken
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace verbatim {

class IndexTable {
public:
    static constexpr uint32_t kNone = ~uint32_t{0};  // is no index

    [[nodiscard]] uint32_t find(uint64_t key) const;  // kNone: not there
    // False, and nothing has changed: the key is there. REQUIRES: index != kNone
    bool insert(uint64_t key, uint32_t index);
    void assign(uint64_t key, uint32_t index);  // REQUIRES: the key is there; index != kNone
    void erase(uint64_t key);                   // REQUIRES: the key is there
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] size_t num_bytes() const { return entries_.capacity() * sizeof(Entry); }

private:
    struct Entry {
        uint32_t key_low = 0;  // two halves, so that an entry has no padding
        uint32_t key_high = 0;
        uint32_t index = kNone;
        [[nodiscard]] uint64_t key() const { return (uint64_t{key_high} << 32) | key_low; }
    };
    static_assert(sizeof(Entry) == 12);
    [[nodiscard]] size_t home_of(uint64_t key) const;
    [[nodiscard]] size_t place_of(uint64_t key) const;
    void grow();

    std::vector<Entry> entries_;  // a power of two, or none
    size_t size_ = 0;
};

}  // namespace verbatim
