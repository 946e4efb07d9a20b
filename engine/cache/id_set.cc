#include "engine/cache/id_set.h"

#include <algorithm>
#include <bit>

#include "engine/base/check.h"

namespace verbatim {

IdSet::IdSet(int32_t size) : size_(0) { grow(size); }

void IdSet::grow(int32_t size) {
    CHECK_GE(size, size_);
    size_ = size;
    words_.resize((static_cast<size_t>(size) + kBits - 1) / kBits);
    nonzero_.resize((words_.size() + kBits - 1) / kBits);
}

template <typename Visit>
void IdSet::for_words(int32_t begin, int32_t end, const Visit& visit) {
    if (begin >= end) return;
    const size_t last = word_of(end - 1);
    uint64_t mask = ~uint64_t{0} << bit_of(begin);
    for (size_t word = word_of(begin); word < last; ++word) {
        visit(word, mask);
        mask = ~uint64_t{0};
    }
    visit(last, mask & ~uint64_t{0} >> (kBits - 1 - bit_of(end - 1)));
}

void IdSet::insert(int32_t begin, int32_t end) { (void)insert_new(begin, end); }

bool IdSet::insert_new(int32_t begin, int32_t end) {
    CHECK(0 <= begin && begin <= end && end <= size_, "ids [{}, {}) of {}", begin, end, size_);
    uint64_t before = 0;
    for_words(begin, end, [&](size_t word, uint64_t mask) {
        before |= words_[word] & mask;
        words_[word] |= mask;
        nonzero_[word / kBits] |= uint64_t{1} << word % kBits;
    });
    first_group_ = std::min(first_group_, word_of(begin) / kBits);
    return before == 0;
}

void IdSet::erase(int32_t begin, int32_t end) {
    CHECK(0 <= begin && begin <= end && end <= size_, "ids [{}, {}) of {}", begin, end, size_);
    for_words(begin, end, [&](size_t word, uint64_t mask) { set_word(word, words_[word] & ~mask); });
}

int32_t IdSet::erase_run(int32_t begin, int32_t limit) {
    CHECK(0 <= begin && begin <= limit && limit <= size_, "ids [{}, {}) of {}", begin, limit, size_);
    while (begin < limit) {
        const size_t word = word_of(begin);
        const int32_t bit = bit_of(begin);
        const int32_t members = std::min(std::countr_one(words_[word] >> bit), limit - begin);
        if (members == 0) break;
        set_word(word, words_[word] & ~(~uint64_t{0} >> (kBits - members) << bit));
        begin += members;
    }
    CHECK_LE(begin, limit);
    return begin;
}

bool IdSet::contains_none(int32_t begin, int32_t end) const {
    bool none = true;
    for_words(begin, end, [&](size_t word, uint64_t mask) { none = none && (words_[word] & mask) == 0; });
    return none;
}

size_t IdSet::lowest_word() {
    while (first_group_ < nonzero_.size() && nonzero_[first_group_] == 0) ++first_group_;
    CHECK_LT(first_group_, nonzero_.size());
    const size_t word = first_group_ * kBits + static_cast<size_t>(std::countr_zero(nonzero_[first_group_]));
    CHECK(words_[word] != 0, "word {} is marked and has no member", word);
    return word;
}

void IdSet::verify() const {
    CHECK_LT(words_.size() * kBits, static_cast<size_t>(size_) + kBits);
    CHECK_LT(nonzero_.size() * kBits, words_.size() + kBits);
    for (size_t word = 0; word < words_.size(); ++word) {
        const bool marked = (nonzero_[word / kBits] >> word % kBits & 1) != 0;
        CHECK(marked == (words_[word] != 0), "word {} of a set is {:x}, and marked {}", word, words_[word], marked);
    }
    for (size_t group = 0; group < first_group_; ++group) CHECK_EQ(nonzero_[group], 0u);
    if (bit_of(size_) > 0) CHECK_EQ(words_.back() >> bit_of(size_), 0u);
}

}  // namespace verbatim
