// engine/cache/id_set.h: owns a set of ids [0, size): one bit for each, and one bit for every 64 of them.
//
// Finding the lowest member and the end of a run look at words, not at members: pools of a million units with thousands
// of free runs take and give units back at the same cost.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace verbatim {

class IdSet {
public:
    explicit IdSet(int32_t size);  // empty. REQUIRES: size >= 0

    void insert(int32_t begin, int32_t end);  // all of [begin, end)
    void erase(int32_t begin, int32_t end);
    [[nodiscard]] bool contains(int32_t id) const { return (words_[word_of(id)] >> bit_of(id) & 1) != 0; }
    [[nodiscard]] bool contains_all(int32_t begin, int32_t end) const { return end_of_run(begin, end) == end; }
    [[nodiscard]] bool contains_none(int32_t begin, int32_t end) const;
    [[nodiscard]] std::optional<int32_t> lowest();
    // The first id in [begin, limit) that is no member; limit when all are.
    [[nodiscard]] int32_t end_of_run(int32_t begin, int32_t limit) const;
    [[nodiscard]] int32_t size() const { return size_; }
    // The second level follows from the first, and nothing lies beyond the end. O(size).
    void verify() const;

private:
    static constexpr int32_t kBits = 64;
    [[nodiscard]] static size_t word_of(int32_t id) { return static_cast<size_t>(id) / kBits; }
    [[nodiscard]] static int32_t bit_of(int32_t id) { return id % kBits; }
    // Calls visit(word, mask) for every word that [begin, end) touches.
    template <typename Visit>
    static void for_words(int32_t begin, int32_t end, const Visit& visit);

    int32_t size_;
    std::vector<uint64_t> words_;
    std::vector<uint64_t> nonzero_;  // per word: whether it has a member
    size_t first_group_ = 0;         // of nonzero_: those before it are empty
};

}  // namespace verbatim
