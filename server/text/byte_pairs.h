// server/text/byte_pairs.h: owns byte-pair encoding: the merges of a vocabulary, applied to one word.
//
//   P1  the pair of lowest rank is merged first, of equal ones the leftmost, until no pair is left
//   P2  a word of n bytes costs O(n) merges and, unless its ranks are out of order, O(n) in all
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim::text {

struct BytePairMerge {
    TokenId left = 0;
    TokenId right = 0;
    TokenId whole = 0;
};

// Caches short words' tokens; direct-mapped: a new entry replaces the old one. For one thread.
class WordCache {
public:
    static constexpr size_t kMaxBytes = 16;
    static constexpr size_t kMaxTokens = 8;
    struct Entry {
        std::array<uint64_t, 2> word{};
        uint8_t num_bytes = 0;  // 0: empty
        uint8_t num_tokens = 0;
        std::array<TokenId, kMaxTokens> tokens{};
    };
    // The place of `word`. REQUIRES: 1 to kMaxBytes bytes.
    Entry& entry_of(std::string_view word);
    [[nodiscard]] static bool holds(const Entry& entry, std::string_view word);
    static void put(Entry& entry, std::string_view word, const TokenId* tokens, size_t num_tokens);

private:
    static constexpr int kBits = 14;
    std::vector<Entry> entries_ = std::vector<Entry>(size_t{1} << kBits);
};

class BytePairs {
public:
    // The token of each single byte; merges by rank; words that are tokens regardless of the merges (may be empty).
    struct Tables {
        std::array<TokenId, 256> bytes{};
        std::vector<BytePairMerge> merges;
        std::unordered_map<std::string, TokenId> whole_words;
    };
    explicit BytePairs(Tables tables);
    void encode(std::string_view word, WordCache& cache, std::vector<TokenId>& ids) const;  // appends

private:
    struct Slot {
        uint64_t pair = kNoPair;
        uint32_t rank = kNoRank;
        TokenId whole = 0;
    };
    struct LongWord;
    static constexpr uint64_t kNoPair = ~uint64_t{0};
    static constexpr uint32_t kNoRank = ~uint32_t{0};

    [[nodiscard]] const Slot& find(TokenId left, TokenId right) const;
    Slot& slot_of(uint64_t pair);
    void merge(std::string_view word, std::vector<TokenId>& ids) const;
    void merge_short(std::string_view word, std::vector<TokenId>& ids) const;
    void merge_long(std::string_view word, std::vector<TokenId>& ids) const;

    std::array<TokenId, 256> bytes_;
    std::unordered_map<std::string, TokenId> whole_words_;
    std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
    int shift_ = 0;
};

}  // namespace verbatim::text
