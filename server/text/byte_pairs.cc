#include "server/text/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <queue>

#include "engine/base/check.h"

namespace verbatim::text {
namespace {

// Words up to here are merged by looking for the lowest rank again and again: less work than any order kept.
constexpr size_t kShortWord = 40;

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: multiplicative hashing

uint64_t pair_of(TokenId left, TokenId right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

std::array<uint64_t, 2> packed(std::string_view word) {
    std::array<uint64_t, 2> bytes{};
    std::memcpy(bytes.data(), word.data(), word.size());
    return bytes;
}

}  // namespace

WordCache::Entry& WordCache::entry_of(std::string_view word) {
    const auto [low, high] = packed(word);
    const uint64_t mixed = (low ^ std::rotl(high * kGolden, 29) ^ word.size()) * kGolden;
    return entries_[mixed >> (64 - kBits)];
}

bool WordCache::holds(const Entry& entry, std::string_view word) {
    return entry.num_bytes == word.size() && entry.word == packed(word);
}

void WordCache::put(Entry& entry, std::string_view word, const TokenId* tokens, size_t num_tokens) {
    CHECK(num_tokens > 0 && word.size() <= kMaxBytes, "{} tokens of {} bytes", num_tokens, word.size());
    if (num_tokens > kMaxTokens) return;
    entry.word = packed(word);
    entry.num_bytes = static_cast<uint8_t>(word.size());
    entry.num_tokens = static_cast<uint8_t>(num_tokens);
    std::copy_n(tokens, num_tokens, entry.tokens.begin());
}

BytePairs::BytePairs(Tables tables) : bytes_(tables.bytes), whole_words_(std::move(tables.whole_words)) {
    slots_.resize(std::bit_ceil(std::max<size_t>(16, 2 * tables.merges.size())));
    shift_ = 64 - std::countr_zero(slots_.size());
    for (size_t rank = 0; rank < tables.merges.size(); ++rank) {
        const BytePairMerge& merge = tables.merges[rank];
        const uint64_t pair = pair_of(merge.left, merge.right);
        slot_of(pair) = {pair, static_cast<uint32_t>(rank), merge.whole};
    }
}

BytePairs::Slot& BytePairs::slot_of(uint64_t pair) {
    size_t at = pair * kGolden >> shift_;
    while (slots_[at].pair != pair && slots_[at].pair != kNoPair) at = (at + 1) & (slots_.size() - 1);
    return slots_[at];
}

// The pair's slot, or an empty one with kNoRank.
const BytePairs::Slot& BytePairs::find(TokenId left, TokenId right) const {
    return const_cast<BytePairs*>(this)->slot_of(pair_of(left, right));
}

void BytePairs::encode(std::string_view word, WordCache& cache, std::vector<TokenId>& ids) const {
    if (word.empty()) return;
    if (word.size() > WordCache::kMaxBytes) return merge(word, ids);
    WordCache::Entry& entry = cache.entry_of(word);
    if (WordCache::holds(entry, word)) {
        ids.insert(ids.end(), entry.tokens.begin(), entry.tokens.begin() + entry.num_tokens);
        return;
    }
    const size_t before = ids.size();
    merge(word, ids);
    WordCache::put(entry, word, ids.data() + before, ids.size() - before);
}

void BytePairs::merge(std::string_view word, std::vector<TokenId>& ids) const {
    if (!whole_words_.empty()) {
        if (const auto found = whole_words_.find(std::string(word)); found != whole_words_.end()) {
            ids.push_back(found->second);
            return;
        }
    }
    word.size() <= kShortWord ? merge_short(word, ids) : merge_long(word, ids);
}

void BytePairs::merge_short(std::string_view word, std::vector<TokenId>& ids) const {
    std::array<TokenId, kShortWord> tokens{};
    std::array<Slot, kShortWord> pairs{};  // [i]: of tokens i and i + 1
    size_t num_tokens = word.size();
    for (size_t i = 0; i < num_tokens; ++i) tokens[i] = bytes_[static_cast<unsigned char>(word[i])];
    for (size_t i = 0; i + 1 < num_tokens; ++i) pairs[i] = find(tokens[i], tokens[i + 1]);
    while (num_tokens > 1) {
        const auto lowest = std::min_element(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(num_tokens - 1),
                                             [](const Slot& a, const Slot& b) { return a.rank < b.rank; });
        if (lowest->rank == kNoRank) break;
        const auto at = static_cast<size_t>(lowest - pairs.begin());
        tokens[at] = lowest->whole;
        --num_tokens;
        std::copy(tokens.begin() + at + 2, tokens.begin() + num_tokens + 1, tokens.begin() + at + 1);
        if (at + 1 < num_tokens) {
            std::copy(pairs.begin() + at + 2, pairs.begin() + num_tokens, pairs.begin() + at + 1);
            pairs[at] = find(tokens[at], tokens[at + 1]);
        }
        if (at > 0) pairs[at - 1] = find(tokens[at - 1], tokens[at]);
    }
    ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(num_tokens));
}

// A word as a list of tokens, and for every rank the places where it was seen, in the order of the word.
struct BytePairs::LongWord {
    struct Places {
        std::vector<uint32_t> at;
        size_t done = 0;
        bool sorted = true;
        bool waiting = false;  // its rank is in `ranks`
    };

    LongWord(const BytePairs& pairs, std::string_view word) : pairs(pairs) {
        CHECK_LT(word.size(), size_t{kEnd});
        const auto size = static_cast<uint32_t>(word.size());
        tokens.reserve(size);
        for (const char c : word) tokens.push_back(pairs.bytes_[static_cast<unsigned char>(c)]);
        next.resize(size);
        previous.resize(size);
        for (uint32_t i = 0; i < size; ++i) {
            next[i] = i + 1 < size ? i + 1 : kEnd;
            previous[i] = i > 0 ? i - 1 : kEnd;
        }
        for (uint32_t i = 0; i + 1 < size; ++i) see(i);
    }

    // Notes the pair that begins at `at`; its rank.
    uint32_t see(uint32_t at) {
        if (at == kEnd || next[at] == kEnd) return kNoRank;
        const uint32_t rank = pairs.find(tokens[at], tokens[next[at]]).rank;
        if (rank == kNoRank) return kNoRank;
        Places& of_rank = places[rank];
        of_rank.sorted = of_rank.sorted && (of_rank.at.empty() || of_rank.at.back() <= at);
        of_rank.at.push_back(at);
        if (!of_rank.waiting) ranks.push(rank);
        of_rank.waiting = true;
        return rank;
    }

    // Merges the pair at `at` if it has the rank still; the lowest rank that this made.
    uint32_t merge_at(uint32_t at, uint32_t rank) {
        const uint32_t right = next[at];
        if (tokens[at] == kGone || right == kEnd) return kNoRank;
        const Slot& slot = pairs.find(tokens[at], tokens[right]);
        if (slot.rank != rank) return kNoRank;
        tokens[at] = slot.whole;
        tokens[right] = kGone;
        next[at] = next[right];
        if (next[at] != kEnd) previous[next[at]] = at;
        return std::min(see(previous[at]), see(at));
    }

    // Merges what has `rank`, from left to right, until done or a lower rank has come up.
    void merge_rank(uint32_t rank) {
        Places& of_rank = places[rank];  // stays where it is: references into the map are stable
        if (!of_rank.sorted)
            std::sort(of_rank.at.begin() + static_cast<std::ptrdiff_t>(of_rank.done), of_rank.at.end());
        of_rank.sorted = true;
        of_rank.waiting = true;
        while (of_rank.done < of_rank.at.size()) {
            if (merge_at(of_rank.at[of_rank.done++], rank) < rank) return ranks.push(rank);
        }
        places.erase(rank);
    }

    static constexpr uint32_t kEnd = ~uint32_t{0};
    static constexpr TokenId kGone = -1;
    const BytePairs& pairs;
    std::vector<TokenId> tokens;
    std::vector<uint32_t> next;
    std::vector<uint32_t> previous;
    std::unordered_map<uint32_t, Places> places;
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks;
};

void BytePairs::merge_long(std::string_view text, std::vector<TokenId>& ids) const {
    LongWord word(*this, text);
    while (!word.ranks.empty()) {
        const uint32_t rank = word.ranks.top();
        word.ranks.pop();
        word.merge_rank(rank);
    }
    for (uint32_t at = 0; at != LongWord::kEnd; at = word.next[at]) ids.push_back(word.tokens[at]);
}

}  // namespace verbatim::text
