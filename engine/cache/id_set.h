// engine/cache/id_set.h: owns a set of ids [0, size): one bit for each, and one bit for every 64 of them.
//
// Finding the lowest member and the end of a run look at words, not at members: pools of a million units with thousands
// of free runs take and give units back at the same cost.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace verbatim {

class IdSet {
public:
    explicit IdSet(int32_t size);  // empty. REQUIRES: size >= 0

    void grow(int32_t size);                  // new ids are no members. REQUIRES: size >= size()
    void insert(int32_t begin, int32_t end);  // all of [begin, end)
    // The same. False when one of them was a member.
    [[nodiscard]] bool insert_new(int32_t begin, int32_t end);
    void erase(int32_t begin, int32_t end);
    // Erases what is a member from `begin` on: up to the first that is none, or `limit`. Returns where it stopped.
    int32_t erase_run(int32_t begin, int32_t limit);
    // Erases the lowest `count` members; take(begin, end) gets their runs, ascending. A run that continues in the
    // next word comes in parts. REQUIRES: there are so many.
    template <typename Take>
    void erase_lowest(int32_t count, const Take& take);
    [[nodiscard]] bool contains(int32_t id) const { return (words_[word_of(id)] >> bit_of(id) & 1) != 0; }
    [[nodiscard]] bool contains_none(int32_t begin, int32_t end) const;
    [[nodiscard]] int32_t size() const { return size_; }
    // The second level follows from the first, and nothing lies beyond the end. O(size).
    void verify() const;

private:
    static constexpr int32_t kBits = 64;
    [[nodiscard]] static size_t word_of(int32_t id) { return static_cast<uint32_t>(id) / kBits; }
    [[nodiscard]] static int32_t bit_of(int32_t id) { return static_cast<int32_t>(static_cast<uint32_t>(id) % kBits); }
    // The first word that has members. REQUIRES: there are any.
    [[nodiscard]] size_t lowest_word();
    void set_word(size_t word, uint64_t members) {
        words_[word] = members;
        if (members == 0) nonzero_[word / kBits] &= ~(uint64_t{1} << word % kBits);
    }
    // Calls visit(word, mask) for every word that [begin, end) touches.
    template <typename Visit>
    static void for_words(int32_t begin, int32_t end, const Visit& visit);

    int32_t size_;
    std::vector<uint64_t> words_;
    std::vector<uint64_t> nonzero_;  // per word: whether it has a member
    size_t first_group_ = 0;         // of nonzero_: those before it are empty
};

template <typename Take>
void IdSet::erase_lowest(int32_t count, const Take& take) {
    while (count > 0) {
        const size_t word = lowest_word();
        const int32_t base = static_cast<int32_t>(word) * kBits;
        uint64_t left = words_[word];
        while (left != 0 && count > 0) {
            const int32_t bit = std::countr_zero(left);
            const int32_t members = std::min(std::countr_one(left >> bit), count);
            left &= ~(~uint64_t{0} >> (kBits - members) << bit);
            count -= members;
            take(base + bit, base + bit + members);
        }
        set_word(word, left);
    }
}

}  // namespace verbatim
