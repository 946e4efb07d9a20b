// JSON from outside: what is refused, and that nothing in it costs more than its length.
#include "files/strict_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace verbatim::tests {
namespace {

using testing::HasSubstr;

std::string strict_refusal(const std::string& text) {
    const auto plain = parse_strict_json(text, "x");
    const auto ordered = parse_strict_ordered_json(text, "x");
    EXPECT_EQ(plain.has_value(), ordered.has_value()) << text;
    if (plain || ordered) return "accepted";
    EXPECT_EQ(plain.error().message, ordered.error().message);
    return plain.error().message;
}

TEST(StrictJson, ItsValuesAreTheParsersValues) {
    for (const std::string text :
         {R"({"b": 1, "a": [true, false, null, -1, 1.5, 18446744073709551615, "\u00e9\ud83d\ude00\n"], "": {}})", "[]",
          "{}", R"("a")", " 7 ", R"([[], [[]], {"z": {"y": {"x": []}}, "a": 1}, {"z": 2}])",
          R"({"0":0,"1":1,"2":[2],"3":3,"4":{"4":4},"5":5,"6":6,"7":7,"8":8,"9":9})"}) {
        EXPECT_EQ(parse_strict_json(text, "x"), nlohmann::json::parse(text)) << text;
        const auto ordered = parse_strict_ordered_json(text, "x");
        ASSERT_TRUE(ordered) << ordered.error().message;
        EXPECT_EQ(ordered->dump(), nlohmann::ordered_json::parse(text).dump()) << text;
    }
}

TEST(StrictJson, AmbiguousJsonIsRefused) {
    EXPECT_THAT(strict_refusal(R"({"a": 1, "b": {"a": 2, "c": 3, "a": 4}})"), HasSubstr("key \"a\" occurs twice"));
    EXPECT_THAT(strict_refusal(R"({"a": 1, "\u0061": 2})"), HasSubstr("key \"a\" occurs twice"));
    EXPECT_EQ(strict_refusal(R"([{"a": 1}, {"a": 2}, {"b": {"a": 3}, "a": 4}])"), "accepted");
    EXPECT_THAT(strict_refusal(std::string(65, '[') + std::string(65, ']')), HasSubstr("nested deeper than 64"));
    EXPECT_EQ(strict_refusal(std::string(64, '[') + std::string(64, ']')), "accepted");
    EXPECT_THAT(strict_refusal("{} {}"), HasSubstr("parse error at line 1, column 4"));
    EXPECT_THAT(strict_refusal("[1e999]"), HasSubstr("number overflow"));
    for (const char* text :
         {"", "[", "[1,]", "{\"a\"}", "\"\xff\"", "\"\xed\xa0\x80\"", "\"\\ud800\"", "NaN", "{1: 2}", "\"\n\""})
        EXPECT_NE(strict_refusal(text), "accepted") << text;
}

// nlohmann's parser takes a NUL byte for the end of the text.
TEST(StrictJson, ANulByteIsRefusedWhereverItStands) {
    const auto with_nul = [](std::string text, size_t at) { return text.insert(at, 1, '\0'); };
    const std::string json = "{\"a\": [1, true, \"b\"],\n \"c\": Infinity}";
    for (const std::string& text : {json, std::string("{}"), std::string("7"), std::string(" ")}) {
        for (size_t at = 0; at <= text.size(); ++at)
            EXPECT_THAT(strict_refusal(with_nul(text, at)), HasSubstr("NUL byte at line ")) << text << at;
    }
    EXPECT_EQ(strict_refusal(with_nul("{\n}garbage", 3)),
              "x: NUL byte at line 2, column 2: wanted JSON text without NUL bytes");
    EXPECT_EQ(strict_refusal(R"(["\u0000"])"), "accepted");  // a character of a text
}

TEST(StrictJson, InfinityInFilesIsAText) {
    const auto made = parse_strict_json(R"([Infinity, -Infinity, "Infinity\"", 1])", "x");
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->dump(), R"(["Infinity","-Infinity","Infinity\"",1])");
    for (const char* text : {"[Infinity]", "{\"a\": -Infinity}"})
        EXPECT_FALSE(parse_strict_ordered_json(text, "x")) << text;  // clients send JSON
}

// An object that looks at all its members for each new one would take minutes.
TEST(StrictJson, ManyMembersTakeLinearTime) {
    std::string text = "{";
    for (int i = 0; i < 200'000; ++i) text += fmt::format("\"{}\":0,", i);
    const auto made = parse_strict_ordered_json(text + "\"x\":0}", "x");
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_EQ(made->size(), 200'001u);
    EXPECT_THAT(strict_refusal(text + "\"7\":0}"), HasSubstr("key \"7\" occurs twice"));
}

}  // namespace
}  // namespace verbatim::tests
