// SentencePiece tokenizers of GGUF files: ids as a search for the best pair, again and again, gives them; texts come
// back; what would change ids is refused by name.
#include "server/text/gguf_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "reference/loader/gguf_config.h"
#include "server/text/decoder.h"
#include "server/text/gguf_keys.h"
#include "server/text/sentence_pieces.h"
#include "server/text/tokenizer_json.h"
#include "server/text/utf8.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::text {
namespace {

using reference::GgufMetadata;
using reference::GgufNumbers;
using reference::GgufStrings;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kFloat32 = 6;  // GGUF's numbers of types
constexpr uint32_t kInt32 = 5;

struct Token {
    std::string text;
    float score = 0;
    int32_t type = kNormal;
};

constexpr TokenId kMark = 259;

// <unk>, <s>, </s>, the bytes from id 3 on, the space, then what is added.
class Vocabulary {
public:
    Vocabulary() {
        add({"<unk>", 0, kUnknown});
        add({"<s>", 0, kControl});
        add({"</s>", 0, kControl});
        for (int byte = 0; byte < 256; ++byte) add({fmt::format("<0x{:02X}>", byte), 0, kByte});
        add({std::string(kSpaceMark), -9});
    }
    TokenId add(const Token& token) {
        tokens_.push_back(token);
        return static_cast<TokenId>(tokens_.size() - 1);
    }
    std::vector<Token>& tokens() { return tokens_; }
    // Owned by this object.
    const GgufMetadata& metadata() {
        texts_.clear();
        scores_.clear();
        types_.clear();
        for (const Token& token : tokens_) {
            texts_.push_back(token.text);
            scores_.push_back(token.score);
            types_.push_back(token.type);
        }
        metadata_["tokenizer.ggml.model"] = std::string_view("llama");
        metadata_["tokenizer.ggml.tokens"] = texts_;
        metadata_["tokenizer.ggml.scores"] = GgufNumbers{kFloat32, std::as_bytes(std::span(scores_))};
        metadata_["tokenizer.ggml.token_type"] = GgufNumbers{kInt32, std::as_bytes(std::span(types_))};
        metadata_["tokenizer.ggml.bos_token_id"] = int64_t{1};
        metadata_["tokenizer.ggml.eos_token_id"] = int64_t{2};
        for (const auto& [key, value] : more) metadata_[key] = value;
        return metadata_;
    }
    GgufMetadata more;

private:
    std::vector<Token> tokens_;
    GgufStrings texts_;
    std::vector<float> scores_;
    std::vector<int32_t> types_;
    GgufMetadata metadata_;
};

std::vector<TokenId> ids_of(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
    WordCache cache;
    return *tokenizer.encode(text, options, cache);
}

std::string problem_of(Vocabulary& of) {
    const auto made = gguf_pieces(of.metadata(), "some.gguf");
    return made ? "" : made.error().message;
}

// --- by hand

TEST(GgufPieces, TheBestScoreIsMergedFirstAndOfEqualOnesTheLeftmost) {
    Vocabulary of;
    const TokenId a = of.add({"a", -10});
    const TokenId b = of.add({"b", -11});
    const TokenId ab = of.add({"ab", -3});
    const TokenId ba = of.add({"ba", -2});
    const TokenId aa = of.add({"aa", -2});
    of.more["tokenizer.ggml.add_space_prefix"] = false;
    of.more["tokenizer.ggml.add_bos_token"] = false;
    const auto tokenizer = gguf_pieces(of.metadata(), "some.gguf");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_THAT(ids_of(*tokenizer, "ab"), ElementsAre(ab));
    EXPECT_THAT(ids_of(*tokenizer, "aba"), ElementsAre(a, ba));
    EXPECT_THAT(ids_of(*tokenizer, "aaa"), ElementsAre(aa, a));
    EXPECT_THAT(ids_of(*tokenizer, "baa"), ElementsAre(ba, a));
    EXPECT_THAT(ids_of(*tokenizer, "bb"), ElementsAre(b, b));
    EXPECT_THAT(ids_of(*tokenizer, ""), ElementsAre());
}

TEST(GgufPieces, ACharacterThatIsNoPieceBecomesItsBytes) {
    Vocabulary of;
    const auto tokenizer = gguf_pieces(of.metadata(), "some.gguf");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_THAT(ids_of(*tokenizer, "\xC3\xBC\n"), ElementsAre(1, kMark, 3 + 0xC3, 3 + 0xBC, 3 + 0x0A));
    EXPECT_EQ(tokenizer->bytes_of(3 + 0xC3), "\xC3");
    EXPECT_EQ(tokenizer->bytes_of(kMark), " ");
}

TEST(GgufPieces, ASpaceIsPutBeforeATextAndBehindAddedTokens) {
    Vocabulary of;
    const TokenId hi = of.add({"hi", -9});
    const TokenId h = of.add({"h", -9});
    const TokenId i = of.add({"i", -9});
    const TokenId spaced = of.add({"\xE2\x96\x81hi", -8});
    const TokenId call = of.add({"[CALL]", 0, kUserDefined});
    const auto tokenizer = gguf_pieces(of.metadata(), "some.gguf");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_THAT(ids_of(*tokenizer, "hi"), ElementsAre(1, spaced));
    EXPECT_THAT(ids_of(*tokenizer, " hi"), ElementsAre(1, kMark, spaced));
    EXPECT_THAT(ids_of(*tokenizer, "hi[CALL]hi</s>hi"), ElementsAre(1, spaced, call, spaced, 2, spaced));
    EXPECT_EQ(decode_text(*tokenizer, ids_of(*tokenizer, "hi[CALL]hi</s> hi")), "<s>hi[CALL]hi</s> hi");
    EXPECT_EQ(decode_text(*tokenizer, std::vector<TokenId>{1, h, i, spaced}, true), "hi hi");
    EXPECT_TRUE(tokenizer->has(hi));
}

// "<s>" can be spelt with pieces, and is text then.
TEST(GgufPieces, NoTextGivesAControlTokenUnlessTheyAreParsed) {
    Vocabulary of;
    of.add({"<", -5});
    of.add({"s", -5});
    of.add({">", -5});
    of.add({"<s", -4});
    const auto tokenizer = gguf_pieces(of.metadata(), "some.gguf");
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    for (const TokenId id : ids_of(*tokenizer, "<s><unk>", {.add_special = false, .parse_special = false}))
        EXPECT_FALSE(tokenizer->is_special(id)) << id;
    EXPECT_THAT(ids_of(*tokenizer, "<s><unk>"), ElementsAre(1, 1, 0));
}

TEST(GgufPieces, AFileWithThemIsATokenizersFile) {
    Vocabulary of;
    of.add({"hi", -9});
    const tests::ScratchFolder scratch;
    const auto file = scratch.write("text.gguf", reference::gguf_prefix(of.metadata(), {}));
    const auto tokenizer = load_tokenizer(file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->num_ids(), 261);
}

// --- against a search for the best pair

// Symbols as texts; a piece's score, if it is one.
std::vector<TokenId> searched(Vocabulary& of, std::string_view text) {
    std::map<std::string, std::pair<float, TokenId>> pieces;
    for (size_t id = 0; id < of.tokens().size(); ++id)
        if (of.tokens()[id].type == kNormal)
            pieces[of.tokens()[id].text] = {of.tokens()[id].score, static_cast<TokenId>(id)};
    std::vector<std::string> symbols = {std::string(kSpaceMark)};
    for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        next_character(text, at);
        const std::string character(text.substr(begin, at - begin));
        symbols.push_back(character == " " ? std::string(kSpaceMark) : character);
    }
    while (true) {
        size_t best = symbols.size();
        for (size_t i = 0; i + 1 < symbols.size(); ++i) {
            if (!pieces.contains(symbols[i] + symbols[i + 1])) continue;
            const float score = pieces[symbols[i] + symbols[i + 1]].first;
            if (best == symbols.size() || score > pieces[symbols[best] + symbols[best + 1]].first) best = i;
        }
        if (best == symbols.size()) break;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    }
    std::vector<TokenId> ids;
    for (const std::string& symbol : symbols) {
        if (pieces.contains(symbol)) {
            ids.push_back(pieces[symbol].second);
            continue;
        }
        for (const char c : symbol) ids.push_back(3 + static_cast<unsigned char>(c));
    }
    return ids;
}

constexpr std::string_view kAlphabet[] = {"a", "b", "c", "\xE2\x96\x81", "\xC3\xBC", "\xF0\x9F\x99\x82"};

std::string random_text(std::mt19937& random, int most) {
    std::string text;
    for (int i = static_cast<int>(random() % static_cast<uint32_t>(most + 1)); i > 0; --i)
        text += kAlphabet[random() % std::size(kAlphabet)];
    return text;
}

RC_GTEST_PROP(GgufPieces, IdsAreThoseOfASearchAndTextsComeBack, ()) {
    std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
    Vocabulary of;
    of.more["tokenizer.ggml.add_bos_token"] = false;
    std::map<std::string, int> seen = {{std::string(kSpaceMark), 1}};
    for (int i = static_cast<int>(random() % 40); i > 0; --i) {
        const std::string text = random_text(random, 4);
        // Few scores, so that many are equal.
        if (!text.empty() && seen[text]++ == 0) of.add({text, -static_cast<float>(random() % 8), kNormal});
    }
    const auto tokenizer = gguf_pieces(of.metadata(), "some.gguf");
    RC_ASSERT(tokenizer.has_value());
    for (int i = 0; i < 20; ++i) {
        std::string text = random_text(random, 30);
        for (size_t at = text.find(kSpaceMark); at != std::string::npos; at = text.find(kSpaceMark))
            text.replace(at, kSpaceMark.size(), " ");
        if (text.empty()) continue;
        const std::vector<TokenId> ids = ids_of(*tokenizer, text);
        RC_ASSERT(ids == searched(of, text));
        RC_ASSERT(decode_text(*tokenizer, ids) == text);
    }
}

// --- what is refused

TEST(GgufPieces, WhatIsNotKnownIsRefusedByName) {
    const auto expect = [](const std::function<void(Vocabulary&)>& change, std::string_view problem) {
        Vocabulary of;
        of.add({"a", -1});
        change(of);
        EXPECT_THAT(problem_of(of), HasSubstr(problem));
    };
    expect([](Vocabulary& of) { of.tokens().resize(3); }, "has no token <0x00> of type 6");
    expect([](Vocabulary& of) { of.tokens()[kMark].text = "_"; }, R"(has no piece "\xe2\x96\x81" for a space)");
    expect([](Vocabulary& of) { of.add({"a", -2}); }, "tokenizer.ggml.tokens[261] = \"a\" is empty or there twice");
    expect([](Vocabulary& of) { of.add({"", -2}); }, "is empty or there twice");
    expect([](Vocabulary& of) { of.add({"<0x0A>", 0, kByte}); }, "is no byte, or one that is there twice");
    expect([](Vocabulary& of) { of.add({"<0xZZ>", 0, kByte}); }, "is no byte");
    expect([](Vocabulary& of) { of.add({"<s>", 0, kControl}); }, "longer than 256 bytes, or there twice");
    expect([](Vocabulary& of) { of.add({"b", std::nanf("")}); }, "tokenizer.ggml.scores[261] = nan");
    expect([](Vocabulary& of) { of.add({"b", 0, 9}); }, "tokenizer.ggml.token_type[261] = 9 is not supported");
    expect([](Vocabulary& of) { of.more["tokenizer.ggml.remove_extra_whitespaces"] = true; },
           "remove_extra_whitespaces = true is not supported");
    expect([](Vocabulary& of) { of.more["tokenizer.ggml.precompiled_charsmap"] = GgufStrings{}; },
           "precompiled_charsmap normalises text");
    expect([](Vocabulary& of) { of.more["tokenizer.ggml.bos_token_id"] = int64_t{261}; },
           "bos_token_id = 261, the vocabulary has 261 tokens");
    expect([](Vocabulary& of) { of.more["tokenizer.ggml.scores"] = int64_t{1}; }, "tokenizer.ggml.scores = 1 is of");
}

}  // namespace
}  // namespace verbatim::text
