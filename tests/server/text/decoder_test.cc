#include "server/text/decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "server/text/tokenizer_json.h"
#include "server/text/utf8.h"

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
    // The bytes of U+1F9FF, each a token of its own: the vocabulary begins with the byte alphabet.
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

TEST(Decoder, AnIdWithoutATokenIsAnError) {
    const Tokenizer& tokenizer = qwen_tokenizer();
    EXPECT_FALSE(decode(tokenizer, std::vector<TokenId>{-1}));
    EXPECT_FALSE(decode(tokenizer, std::vector<TokenId>{0, tokenizer.num_ids()}));
}

}  // namespace
}  // namespace verbatim::tests
