// Text whose tokens are known already.
#include "server/text/known_ids.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "server/text/tokenizer_json.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::text;

class KnownText : public testing::Test {
protected:
    KnownText() : tokenizer_(*load_tokenizer(std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python")) {
        for (const AddedToken& token : tokenizer_.added_tokens()) {
            if (token.special && end_.content.empty()) end_ = token;
        }
    }
    // As a template's text, in which special tokens are special.
    std::vector<TokenId> encode(const std::string& text, const std::vector<TokenId>& known = {}) {
        return *tokenizer_.encode_prompt(text, {}, words_, KnownIds(tokenizer_, known));
    }
    // One token for each byte: what no encoding would give.
    std::vector<TokenId> spelled(const std::string& text) {
        std::vector<TokenId> ids;
        for (const char c : text) {
            for (TokenId id = 0; id < tokenizer_.num_ids(); ++id) {
                if (!tokenizer_.has(id) || tokenizer_.is_special(id) || tokenizer_.bytes_of(id) != std::string(1, c))
                    continue;
                ids.push_back(id);
                break;
            }
        }
        EXPECT_EQ(ids.size(), text.size());
        return ids;
    }
    static std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
        a.insert(a.end(), b.begin(), b.end());
        return a;
    }
    Tokenizer tokenizer_;
    WordCache words_;
    AddedToken end_;
};

// In pieces of eight bytes, or not: as a look at every token's bytes says.
TEST_F(KnownText, MatchedIdsHaveTheTextsBytes) {
    std::vector<TokenId> ids;
    std::string text;
    for (TokenId id = 0; id < tokenizer_.num_ids(); id += 1 + id / 40) {
        if (!tokenizer_.has(id) || tokenizer_.is_special(id)) continue;
        ids.push_back(id);
        text += tokenizer_.bytes_of(id);
    }
    ASSERT_TRUE(std::ranges::any_of(ids, [&](TokenId id) { return tokenizer_.bytes_of(id).size() > 8; }));
    const auto plainly = [&](std::string_view from) {
        Tokenizer::Spelled found;
        for (; found.count < ids.size(); ++found.count) {
            const std::string& bytes = tokenizer_.bytes_of(ids[found.count]);
            found.differs = !from.substr(found.end).starts_with(bytes);
            if (found.differs) break;
            found.end += bytes.size();
        }
        return found;
    };
    const auto expect_same = [&](const std::string& from) {
        const Tokenizer::Spelled found = tokenizer_.spelled(ids, from);
        const Tokenizer::Spelled wanted = plainly(from);
        EXPECT_EQ(found.count, wanted.count);
        EXPECT_EQ(found.end, wanted.end);
        EXPECT_EQ(found.differs, wanted.differs);
    };
    expect_same(text + "more");
    for (size_t at = 0; at < text.size(); ++at) {
        expect_same(text.substr(0, at));
        std::string other = text;
        other[at] = static_cast<char>(other[at] ^ 1);
        expect_same(other);
    }
    ids.insert(ids.begin() + 3, end_.id);
    EXPECT_EQ(tokenizer_.spelled(ids, text).count, 3u) << "a special token";
    ids[3] = tokenizer_.num_ids();
    EXPECT_EQ(tokenizer_.spelled(ids, text).count, ids.size()) << "without a token: no bytes";
    EXPECT_EQ(tokenizer_.spelled(ids, text).end, text.size());
}

TEST_F(KnownText, EqualTextKeepsItsTokensAndTheRestIsEncodedBehindThem) {
    const std::vector<TokenId> known = joined(joined(encode("def add"), {end_.id}), spelled("return"));
    ASSERT_NE(spelled("return"), encode("return"));
    const std::string text = "def add" + end_.content + "return";
    EXPECT_EQ(encode(text, known), known);
    EXPECT_EQ(encode(text + end_.content + "more", known), joined(joined(known, {end_.id}), encode("more")));
    EXPECT_EQ(encode(text + " a + b", known), joined(known, encode(" a + b")));
}

TEST_F(KnownText, FromTheFirstDifferenceOnItIsEncoded) {
    const std::vector<TokenId> first = joined(spelled("def add"), {end_.id});
    const std::vector<TokenId> known = joined(joined(first, spelled("return")), {end_.id});
    const std::string text = "def add" + end_.content + "returns" + end_.content;
    EXPECT_EQ(encode(text, known), joined(joined(first, encode("returns")), {end_.id}));
    EXPECT_EQ(encode("def sub" + end_.content + "return", known), encode("def sub" + end_.content + "return"));
    EXPECT_EQ(encode("def add" + end_.content + "ret" + end_.content, known),
              joined(joined(first, encode("ret")), {end_.id}));
}

TEST_F(KnownText, SpecialTokensAreFoundWhereTheTemplateWroteThemOnly) {
    const std::vector<TokenId> spells = joined(spelled("a"), joined(spelled(end_.content), spelled("b")));
    EXPECT_EQ(encode("a" + end_.content + "b", spells), encode("a" + end_.content + "b"));
    const std::vector<TokenId> special = joined(joined(spelled("a"), {end_.id}), spelled("b"));
    const EncodeOptions plain{.add_special = false, .parse_special = false};
    EXPECT_EQ(*tokenizer_.encode("a" + end_.content + "b", plain, words_, KnownIds(tokenizer_, special)),
              *tokenizer_.encode("a" + end_.content + "b", plain, words_));
}

// A padded vocabulary: what was drawn and shows nothing belongs to the text before it.
TEST_F(KnownText, IdsWithoutATokenAreFoundAgain) {
    const TokenId none = tokenizer_.num_ids() + 7;
    const std::vector<TokenId> answer = joined(joined({none}, spelled("re")), joined({none, none}, spelled("turn")));
    const std::vector<TokenId> known = joined(joined(encode("def"), {end_.id}), joined(answer, {none, end_.id}));
    const std::string text = "def" + end_.content + "return" + end_.content;
    EXPECT_EQ(encode(text, known), known);
    EXPECT_EQ(encode(text + "more", known), joined(known, encode("more")));
    const std::vector<TokenId> cut = joined(spelled("x\xc3\xa4"), {});
    const std::vector<TokenId> among = {cut[0], cut[1], none, cut[2]};
    EXPECT_EQ(encode("x\xc3\xa4", among), among) << "between the bytes of a character";
}

// An answer that was cut inside a character: a text that has the whole of it, and one as the client has seen it.
TEST_F(KnownText, NoCharacterIsSplit) {
    const std::vector<TokenId> whole = spelled("x\xc3\xa4");
    const std::vector<TokenId> cut(whole.begin(), whole.end() - 1);
    EXPECT_EQ(encode("x\xc3\xa4", cut), encode("x\xc3\xa4"));
    EXPECT_EQ(encode("x\xef\xbf\xbd"
                     "def",
                     cut),
              joined(cut, encode("def")));
}

}  // namespace
}  // namespace verbatim::tests
