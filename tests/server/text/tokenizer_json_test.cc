// A tokenizer.json from anywhere: what is not supported is refused by its name, what is wrong by its place.
#include "server/text/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "server/text/byte_alphabet.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::text;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

const char* const kRegex = R"(\p{L}+|\s+(?!\S)|\s+|[^\s\p{L}]+)";

// All bytes, "ab" and one special token.
json small_tokenizer() {
    json vocabulary = json::object();
    for (int byte = 0; byte < 256; ++byte) vocabulary[to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
    vocabulary["ab"] = 256;
    const json split = {
        {"type", "Split"}, {"pattern", {{"Regex", kRegex}}}, {"behavior", "Isolated"}, {"invert", false}};
    const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const json special = {{"id", 257}, {"content", "<s>"}, {"special", true}, {"normalized", false}};
    return {{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", json::array({special})},
            {"normalizer", nullptr},
            {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array({split, byte_level})}}},
            {"post_processor", nullptr},
            {"decoder", {{"type", "ByteLevel"}}},
            {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array({"a b"})}}}};
}

std::string refusal(const std::function<void(json&)>& change) {
    json file = small_tokenizer();
    change(file);
    const auto tokenizer = parse_tokenizer(file.dump(), "t.json");
    return tokenizer ? "accepted" : tokenizer.error().message;
}

std::string refused_regex(const std::string& regex) {
    return refusal([&](json& file) { file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = regex; });
}

std::vector<TokenId> ids_of(const json& file, const std::string& text, EncodeOptions options = {}) {
    const auto tokenizer = parse_tokenizer(file.dump(), "t.json");
    EXPECT_TRUE(tokenizer) << tokenizer.error().message;
    WordCache cache;
    return tokenizer ? *tokenizer->encode(text, options, cache) : std::vector<TokenId>();
}

TEST(TokenizerJson, ASmallFileIsRead) {
    EXPECT_THAT(ids_of(small_tokenizer(), "abc<s>"), testing::ElementsAre(256, 'c', 257));
}

TEST(TokenizerJson, WhatIsNotSupportedIsNamed) {
    const auto set = [](const char* pointer, const json& value) {
        return refusal([&](json& file) { file[json::json_pointer(pointer)] = value; });
    };
    EXPECT_EQ(set("/normalizer", {{"type", "NFKC"}}), "t.json: normalizer NFKC is not supported: NFC is");
    EXPECT_THAT(set("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array({json{{"type", "Lowercase"}}})}}),
                HasSubstr("normalizer Lowercase"));
    EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0", {{"type", "Metaspace"}}), HasSubstr("pre_tokenizer Metaspace"));
    EXPECT_THAT(set("/pre_tokenizer/pretokenizers/0/behavior", "MergedWithNext"), HasSubstr("\"MergedWithNext\""));
    EXPECT_THAT(set("/pre_tokenizer/pretokenizers/1/add_prefix_space", true), HasSubstr("add_prefix_space"));
    EXPECT_THAT(set("/pre_tokenizer", nullptr), HasSubstr("without ByteLevel"));
    EXPECT_THAT(set("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder WordPiece"));
    EXPECT_THAT(set("/decoder", nullptr), HasSubstr("decoder is null"));
    EXPECT_THAT(set("/model/type", "Unigram"), HasSubstr("model Unigram"));
    EXPECT_THAT(set("/model/dropout", 0.1), HasSubstr("model.dropout is 0.1"));
    EXPECT_THAT(set("/model/byte_fallback", true), HasSubstr("byte_fallback"));
    EXPECT_THAT(set("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
    EXPECT_THAT(set("/post_processor", {{"type", "BertProcessing"}}), HasSubstr("post_processor BertProcessing"));
    EXPECT_THAT(set("/truncation", {{"max_length", 5}}), HasSubstr("truncation"));
    EXPECT_THAT(set("/padding", {{"strategy", "BatchLongest"}}), HasSubstr("padding"));
    EXPECT_THAT(set("/added_tokens/0/lstrip", true), HasSubstr("added_tokens[0].lstrip is true"));
}

TEST(TokenizerJson, WhatIsWrongIsSaidWithItsPlace) {
    const auto set = [](const char* pointer, const json& value) {
        return refusal([&](json& file) { file[json::json_pointer(pointer)] = value; });
    };
    EXPECT_THAT(set("/model/merges/0", json::array({"a", "zz"})),
                HasSubstr("model.merges[0]: \"zz\" is not in model.vocab"));
    EXPECT_THAT(set("/model/merges/0", json::array({"b", "a"})), HasSubstr("\"ba\" is not in model.vocab"));
    EXPECT_THAT(set("/model/merges/0", "a b c"), HasSubstr("model.merges[0] is \"a b c\""));
    EXPECT_THAT(set("/model/merges", 7), HasSubstr("model.merges is 7"));
    EXPECT_THAT(set("/model/vocab/ab", 7), HasSubstr("both have id 7"));
    EXPECT_THAT(set("/model/vocab/ab", -1), HasSubstr("wanted a token id"));
    EXPECT_THAT(set("/model/vocab/ab", 1e9), HasSubstr("wanted a token id"));
    EXPECT_THAT(set("/model/vocab/ab", int64_t{1} << 40), HasSubstr("wanted a token id"));
    EXPECT_THAT(set("/added_tokens/0/id", 256), HasSubstr("another token has that text or id"));
    EXPECT_THAT(set("/added_tokens/0/content", ""), HasSubstr("wanted a text"));
    EXPECT_THAT(set("/added_tokens/0/content", std::string(300, 'x')), HasSubstr("300 bytes, 256 at most"));
    EXPECT_THAT(set("/added_tokens/0/content", "ab"), HasSubstr("in model.vocab it has 256"));
    EXPECT_THAT(set("/added_tokens/0", "x"), HasSubstr("wanted an object"));
    EXPECT_THAT(refusal([](json& file) {
                    file["model"]["vocab"].erase("a");
                    file["model"]["merges"] = json::array();
                }),
                HasSubstr("no token for byte 0x61"));
    EXPECT_THAT(set("/post_processor", json::parse(R"({"type": "TemplateProcessing",
                                    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
                                    "special_tokens": {"<s>": {"ids": [999]}}})")),
                HasSubstr("no token has id 999"));
    for (const char* text : {"", "[]", "7", "{", "{\"model\": {}}", "\xff"})
        EXPECT_FALSE(parse_tokenizer(text, "t.json")) << text;
    const auto cut = parse_tokenizer(small_tokenizer().dump() + std::string("\0{", 2), "t.json");
    ASSERT_FALSE(cut);
    EXPECT_THAT(cut.error().message, HasSubstr("t.json: NUL byte at line 1"));
    EXPECT_FALSE(load_tokenizer("no/such/folder"));
}

TEST(TokenizerJson, RegexesAreAClosedListToo) {
    EXPECT_THAT(refused_regex("a^b"), AllOf(HasSubstr("regex \"a^b\""), HasSubstr("the anchor ^ at byte 1")));
    EXPECT_THAT(refused_regex("(?<=a)b"), HasSubstr("the group (?<="));
    EXPECT_THAT(refused_regex("(?P<x>b)"), HasSubstr("the group (?P<"));
    EXPECT_THAT(refused_regex(R"(\p{Han}+)"), HasSubstr("the property \"Han\""));
    EXPECT_THAT(refused_regex(R"(\w+)"), HasSubstr("the escape \\w"));
    EXPECT_THAT(refused_regex(R"(a\1)"), HasSubstr("the escape \\1"));
    EXPECT_THAT(refused_regex("a\\"), HasSubstr("a lone \\"));
    EXPECT_THAT(refused_regex("[a-z&&[aeiou]]"), HasSubstr("&& within a class"));
    EXPECT_THAT(refused_regex("[[:alpha:]]"), HasSubstr("a class within a class"));
    EXPECT_THAT(refused_regex("[z-a]"), HasSubstr("a range that ends before it begins"));
    EXPECT_THAT(refused_regex("[abc"), HasSubstr("[ without ]"));
    EXPECT_THAT(refused_regex("[]"), HasSubstr("an empty class"));
    EXPECT_THAT(refused_regex("(ab"), HasSubstr("a group without its end"));
    EXPECT_THAT(refused_regex("ab)"), HasSubstr("an unopened )"));
    EXPECT_THAT(refused_regex("+a"), HasSubstr("a repetition of nothing"));
    EXPECT_THAT(refused_regex("a{2,1}"), HasSubstr("{2,1}"));
    EXPECT_THAT(refused_regex("a{1,2}+"), HasSubstr("{n,m}+"));
    EXPECT_THAT(refused_regex("a{99999}"), HasSubstr("{99999}"));
    EXPECT_THAT(refused_regex("a**"), HasSubstr("a repetition of a repetition"));
    EXPECT_THAT(refused_regex("a*"), HasSubstr("matches the empty text"));
    EXPECT_THAT(refused_regex("(?i:[a-z])"), HasSubstr("whose case is ignored"));
    EXPECT_THAT(refused_regex("(?i:\u00e9)"), HasSubstr("whose case is ignored"));
    EXPECT_THAT(refused_regex(std::string(100, '(') + "a"), HasSubstr("nesting this deep"));
    EXPECT_THAT(refused_regex(std::string(70000, 'a')), HasSubstr("65536 at most"));
    EXPECT_EQ(refused_regex(R"(\x41|\x{1F600}+?|\u0041++|[\]\-a-]?[^\n]|.)"), "accepted");
}

TEST(TokenizerJson, ARegexThatCostsTooMuchIsAnErrorNotAHang) {
    json file = small_tokenizer();
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(?:(?:a+)+)+x|b";
    const auto tokenizer = parse_tokenizer(file.dump(), "t.json");
    ASSERT_TRUE(tokenizer);
    WordCache cache;
    const auto ids = tokenizer->encode(std::string(200, 'a'), {}, cache);
    ASSERT_FALSE(ids);
    EXPECT_THAT(ids.error().message, HasSubstr("the tokenizer's regex fails at character 0"));
}

TEST(TokenizerJson, SplitsRemoveWhatTheFileSays) {
    json file = small_tokenizer();
    json& split = file["pre_tokenizer"]["pretokenizers"][0];
    split["pattern"] = {{"String", "b."}};
    EXPECT_THAT(ids_of(file, "ab.b."), testing::ElementsAre('a', 'b', '.', 'b', '.'));
    split["behavior"] = "Removed";
    EXPECT_THAT(ids_of(file, "ab.bb"), testing::ElementsAre('a', 'b', 'b'));
    split["invert"] = true;
    EXPECT_THAT(ids_of(file, "ab.bb"), testing::ElementsAre('b', '.'));
}

TEST(TokenizerJson, SpecialTokensAreMadeOnlyWhereTheyAreWanted) {
    const EncodeOptions plain{.add_special = false, .parse_special = false};
    EXPECT_THAT(ids_of(small_tokenizer(), "a<s>", plain), testing::ElementsAre('a', '<', 's', '>'));
}

TEST(TokenizerJson, TextThatIsNotUtf8IsAnError) {
    const auto tokenizer = parse_tokenizer(small_tokenizer().dump(), "t.json");
    WordCache cache;
    for (const char* text : {"a\xff", "a\xc3", "a\xed\xa0\x80", "a\xf4\x90\x80\x80", "a\xc0\x80", "a\x80"}) {
        const auto ids = tokenizer->encode(text, {}, cache);
        ASSERT_FALSE(ids) << text;
        EXPECT_EQ(ids.error().message, "the text is not UTF-8 at byte 1");
    }
}

}  // namespace
}  // namespace verbatim::tests
