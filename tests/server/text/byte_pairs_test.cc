#include "server/text/byte_pairs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <optional>

namespace verbatim::tests {
namespace {

using namespace verbatim::text;

// Merges over the letters a and b, in any order of ranks, and the token of every text.
struct RandomMerges {
    BytePairs::Tables tables;
    std::vector<std::string> texts;
};

RandomMerges random_merges() {
    RandomMerges random;
    for (int byte = 0; byte < 256; ++byte) {
        random.tables.bytes[static_cast<size_t>(byte)] = byte;
        random.texts.emplace_back(1, static_cast<char>(byte));
    }
    std::vector<TokenId> known = {'a', 'b'};
    const int count = *rc::gen::inRange(0, 14);
    for (int i = 0; i < count; ++i) {
        const TokenId left = known[*rc::gen::inRange<size_t>(0, known.size())];
        const TokenId right = known[*rc::gen::inRange<size_t>(0, known.size())];
        const std::string text = random.texts[static_cast<size_t>(left)] + random.texts[static_cast<size_t>(right)];
        const auto found = std::ranges::find(random.texts, text);
        const auto whole = static_cast<TokenId>(found - random.texts.begin());
        if (found == random.texts.end()) {
            random.texts.push_back(text);
            known.push_back(whole);
        }
        // Somewhere among the ranks, so that a token may be used before it is made.
        const auto at = *rc::gen::inRange<size_t>(0, random.tables.merges.size() + 1);
        random.tables.merges.insert(random.tables.merges.begin() + static_cast<std::ptrdiff_t>(at),
                                    {left, right, whole});
    }
    return random;
}

// The definition: again and again the lowest rank, leftmost.
std::vector<TokenId> plainly_merged(const BytePairs::Tables& tables, const std::string& word) {
    std::vector<TokenId> ids(word.begin(), word.end());
    while (true) {
        std::optional<std::pair<size_t, size_t>> best;  // rank, place
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
            for (size_t rank = 0; rank < tables.merges.size(); ++rank) {
                const BytePairMerge& merge = tables.merges[rank];
                const bool last = std::none_of(
                    tables.merges.begin() + static_cast<std::ptrdiff_t>(rank) + 1, tables.merges.end(),
                    [&](const BytePairMerge& later) { return later.left == merge.left && later.right == merge.right; });
                if (last && merge.left == ids[i] && merge.right == ids[i + 1] && (!best || rank < best->first))
                    best = {rank, i};
            }
        }
        if (!best) return ids;
        ids[best->second] = tables.merges[best->first].whole;
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best->second) + 1);
    }
}

RC_GTEST_PROP(BytePairs, ShortAndLongWordsAreMergedByTheDefinition, ()) {
    const RandomMerges random = random_merges();
    const BytePairs pairs(random.tables);
    WordCache cache;
    for (const int longest : {6, 20, 150}) {
        const auto letters = *rc::gen::container<std::vector<char>>(static_cast<size_t>(*rc::gen::inRange(0, longest)),
                                                                    rc::gen::element('a', 'b'));
        const std::string word(letters.begin(), letters.end());
        std::vector<TokenId> ids;
        pairs.encode(word, cache, ids);
        RC_ASSERT(ids == plainly_merged(random.tables, word));
        ids.clear();
        pairs.encode(word, cache, ids);  // out of the cache, if it is short
        RC_ASSERT(ids == plainly_merged(random.tables, word));
    }
}

TEST(BytePairs, AWordOfTheVocabularyIsItsTokenWhateverTheMergesSay) {
    BytePairs::Tables tables;
    for (int byte = 0; byte < 256; ++byte) tables.bytes[static_cast<size_t>(byte)] = byte;
    tables.whole_words["ab"] = 300;
    const BytePairs pairs(tables);
    WordCache cache;
    std::vector<TokenId> ids;
    pairs.encode("ab", cache, ids);
    pairs.encode("aba", cache, ids);
    EXPECT_EQ(ids, (std::vector<TokenId>{300, 'a', 'b', 'a'}));
}

}  // namespace
}  // namespace verbatim::tests
