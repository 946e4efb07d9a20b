#include "server/text/decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "server/text/tokenizer_json.h"
#include "server/text/utf8.h"
#include "tests/server/text/padded_tokenizer.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::text;

const Tokenizer& qwen_tokenizer() {
    static const Tokenizer kTokenizer =
        *load_tokenizer(std::string(VERBATIM_SOURCE_DIR) + "/tests/data/tokenizers/qwen3_5");
    return kTokenizer;
}

RC_GTEST_PROP(Decoder, TextThatCameOutIsWholeCharactersAndStays, ()) {
    const Tokenizer& tokenizer = qwen_tokenizer();
    const auto ids = *rc::gen::container<std::vector<TokenId>>(rc::gen::inRange<TokenId>(0, tokenizer.num_ids()));
    Decoder decoder(tokenizer);
    std::string joined;
    for (const TokenId id : ids) {
        const std::string part = decoder.add(id);
        RC_ASSERT(!first_invalid_utf8(part));
        joined += part;
    }
    joined += decoder.finish();
    RC_ASSERT(decode(tokenizer, ids) == joined);
}

TEST(Decoder, ACharacterInPiecesComesOutWithItsLastByte) {
    const Tokenizer& tokenizer = qwen_tokenizer();
    Decoder decoder(tokenizer);
    // The bytes of U+1F9FF, one token each: the vocabulary begins with the byte alphabet.
    std::vector<TokenId> bytes;
    for (const char* byte : {"\xF0", "\x9F", "\xA7", "\xBF"}) {
        for (TokenId id = 0; id < 256; ++id) {
            if (tokenizer.bytes_of(id) == byte) bytes.push_back(id);
        }
    }
    ASSERT_EQ(bytes.size(), 4U);
    for (const size_t i : {0U, 1U, 2U}) EXPECT_EQ(decoder.add(bytes[i]), "");
    EXPECT_TRUE(decoder.is_pending());
    EXPECT_EQ(decoder.add(bytes[3]), "\U0001F9FF");
    EXPECT_FALSE(decoder.is_pending());
    decoder.add(bytes[0]);
    EXPECT_EQ(decoder.finish(), "\uFFFD");
    EXPECT_EQ(decoder.finish(), "");
}

TEST(Decoder, AnIdWithoutATokenGivesNothing) {
    for (const Padding padding : {Padding::kTail, Padding::kHoles, Padding::kFirst, Padding::kAllButBytes}) {
        const auto tokenizer = parse_tokenizer(padded_tokenizer_json(padding), "padded");
        ASSERT_TRUE(tokenizer) << tokenizer.error().message;
        Decoder decoder(*tokenizer);
        int num_missing = 0;
        for (TokenId id = -1; id <= kPaddedRows; ++id) {
            if (tokenizer->has(id)) continue;
            ++num_missing;
            EXPECT_EQ(tokenizer->bytes_of(id), "");
            EXPECT_EQ(decoder.add(id), "") << id;
            EXPECT_FALSE(tokenizer->is_special(id));
        }
        EXPECT_GE(num_missing, 3);
        EXPECT_EQ(decoder.finish(), "");
    }
    EXPECT_EQ(decode(qwen_tokenizer(), std::vector<TokenId>{-1, 1 << 30, qwen_tokenizer().num_ids()}), "");
}

// What comes between the bytes of a character and has none leaves it whole.
TEST(Decoder, AnIdWithoutATokenSplitsNoCharacter) {
    const auto tokenizer = parse_tokenizer(padded_tokenizer_json(Padding::kTail), "padded");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    WordCache cache;
    const auto ids = tokenizer->encode("\U0001F9FF", {}, cache);
    ASSERT_TRUE(ids && ids->size() > 1);
    std::vector<TokenId> among = {kPaddedRows - 1};
    for (const TokenId id : *ids) among.insert(among.end(), {id, kPaddedRows - 1});
    EXPECT_EQ(decode(*tokenizer, among), "\U0001F9FF");
}

}  // namespace
}  // namespace verbatim::tests
