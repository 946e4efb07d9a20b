#include "engine/cache/id_set.h"

#include <algorithm>
#include <bit>

#include "engine/base/check.h"

namespace verbatim {
namespace {

// Bits [begin, end) of a word. REQUIRES: 0 <= begin < end <= 64
uint64_t mask_of(int32_t begin, int32_t end) {
    const uint64_t up_to_end = end == 64 ? ~uint64_t{0} : (uint64_t{1} << end) - 1;
    return up_to_end & ~((uint64_t{1} << begin) - 1);
}

}  // namespace

IdSet::IdSet(int32_t size)
    : size_(size),
      words_(static_cast<size_t>(size + kBits - 1) / kBits),
      nonzero_((words_.size() + kBits - 1) / kBits) {
    CHECK_GE(size, 0);
}

template <typename Visit>
void IdSet::for_words(int32_t begin, int32_t end, const Visit& visit) {
    while (begin < end) {
        const int32_t base = begin - bit_of(begin);
        const int32_t stop = std::min(end, base + kBits);
        visit(word_of(begin), mask_of(begin - base, stop - base));
        begin = stop;
    }
}

void IdSet::insert(int32_t begin, int32_t end) {
    CHECK(0 <= begin && begin <= end && end <= size_, "ids [{}, {}) of {}", begin, end, size_);
    for_words(begin, end, [&](size_t word, uint64_t mask) {
        words_[word] |= mask;
        nonzero_[word / kBits] |= uint64_t{1} << word % kBits;
    });
    if (begin < end) first_group_ = std::min(first_group_, word_of(begin) / kBits);
}

void IdSet::erase(int32_t begin, int32_t end) {
    CHECK(0 <= begin && begin <= end && end <= size_, "ids [{}, {}) of {}", begin, end, size_);
    for_words(begin, end, [&](size_t word, uint64_t mask) {
        words_[word] &= ~mask;
        if (words_[word] == 0) nonzero_[word / kBits] &= ~(uint64_t{1} << word % kBits);
    });
}

bool IdSet::contains_none(int32_t begin, int32_t end) const {
    bool none = true;
    for_words(begin, end, [&](size_t word, uint64_t mask) { none = none && (words_[word] & mask) == 0; });
    return none;
}

std::optional<int32_t> IdSet::lowest() {
    while (first_group_ < nonzero_.size() && nonzero_[first_group_] == 0) ++first_group_;
    if (first_group_ == nonzero_.size()) return std::nullopt;
    const size_t word = first_group_ * kBits + static_cast<size_t>(std::countr_zero(nonzero_[first_group_]));
    CHECK(words_[word] != 0, "word {} is marked and has no member", word);
    return static_cast<int32_t>(word) * kBits + std::countr_zero(words_[word]);
}

int32_t IdSet::end_of_run(int32_t begin, int32_t limit) const {
    CHECK(0 <= begin && begin <= limit && limit <= size_, "ids [{}, {}) of {}", begin, limit, size_);
    while (begin < limit) {
        const int32_t members = std::countr_one(words_[word_of(begin)] >> bit_of(begin));
        begin += members;
        if (members == 0 || bit_of(begin) != 0) break;
    }
    return std::min(begin, limit);
}

void IdSet::verify() const {
    for (size_t word = 0; word < words_.size(); ++word) {
        const bool marked = (nonzero_[word / kBits] >> word % kBits & 1) != 0;
        CHECK(marked == (words_[word] != 0), "word {} of a set is {:x}, and marked {}", word, words_[word], marked);
    }
    for (size_t group = 0; group < first_group_; ++group) CHECK_EQ(nonzero_[group], 0u);
    if (bit_of(size_) > 0) CHECK_EQ(words_.back() >> bit_of(size_), 0u);
}

}  // namespace verbatim
