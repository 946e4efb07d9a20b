// The fast JSON reader reports the events of the slower parser.
#include "files/quick_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace verbatim::tests {
namespace {

using nlohmann::json;

// Records the reported events.
struct ToldJson final : JsonEvents {
    std::string told;
    int depth = 0;
    bool tell(const std::string& what) { return told += what + ";", true; }
    bool null() override { return tell("null"); }
    bool boolean(bool value) override { return tell(value ? "true" : "false"); }
    bool number_integer(int64_t value) override {
        return value == 0 ? number_unsigned(0) : tell(fmt::format("integer {}", value));
    }
    bool number_unsigned(uint64_t value) override { return tell(fmt::format("unsigned {}", value)); }
    bool number_float(double value, const std::string&) override { return tell(fmt::format("float {}", value)); }
    bool string(std::string& value) override { return tell("text " + value); }
    bool binary(json::binary_t&) override { return tell("binary"); }
    bool start_object(size_t size) override { return tell(fmt::format("object {}", size)) && ++depth < 20; }
    bool key(std::string& key) override { return tell("key " + key); }
    bool end_object() override { return --depth, tell("end"); }
    bool start_array(size_t size) override { return tell(fmt::format("array {}", size)) && ++depth < 20; }
    bool end_array() override { return --depth, tell("end"); }
    bool parse_error(size_t, const std::string&, const json::exception&) override { return false; }
};

bool is_read_quickly(std::string_view text) {
    ToldJson told;
    return read_quickly(text, told);
}

// Where it is sure, it is right.
bool expect_quick_is_right(const std::string& text) {
    ToldJson quick;
    if (!read_quickly(text, quick)) return false;
    ToldJson slow;
    EXPECT_TRUE(json::sax_parse(text, &slow)) << text;
    EXPECT_EQ(quick.told, slow.told) << text;
    return true;
}

const std::array<std::string, 5> kUsualTexts = {
    R"({"messages": [{"role": "user", "content": "a \"line\"\n\\ and\tmore\/\b\f\r"}], "n": 2, "stream": true})",
    R"( [ -0, 0, 7, -12, 123456789012345678, 1234567890123456789, -1e-3, 0.25, 1E+9, null, false ] )",
    R"({"": {"": {"": [[], {}, [[]]]}}, "a\u0041\u00e9\u20aC\u0000": "\uD7ff\ue000"})",
    "{\"\xc3\xa9\": \"\xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf \xc2\x80\"}",
    "\"\x7f\"",
};

TEST(QuickJson, ReadsLikeTheSlowParser) {
    for (const std::string& text : kUsualTexts) EXPECT_TRUE(expect_quick_is_right(text)) << text;
}

TEST(QuickJson, InvalidJsonIsRefused) {
    for (const char* text : {"",
                             " ",
                             "[1,]",
                             "[01]",
                             "[-]",
                             "[+1]",
                             "[1.]",
                             "[.5]",
                             "{\"a\" 1}",
                             "{\"a\":1,}",
                             "tru",
                             "[1] 2",
                             "\"",
                             "\"\\",
                             "\"\\u12\"",
                             "\"\\x\"",
                             "\"\\u00g0\"",
                             "NaN",
                             "[1e999]",
                             "{1:2}",
                             "\"\xc0\x80\"",
                             "\"\xc2\"",
                             "\"\xed\xa0\x80\"",
                             "\"\xf4\x90\x80\x80\"",
                             "\"\xff\"",
                             "\"\xe0\x80\x80\"",
                             "\"\xf0\x80\x80\x80\"",
                             "\"\xe2\x28\xa1\"",
                             "\"\n\"",
                             "[",
                             "{",
                             "]"})
        EXPECT_FALSE(is_read_quickly(text)) << text;
    EXPECT_FALSE(is_read_quickly(std::string_view("\"a\0b\"", 5)));
    EXPECT_FALSE(is_read_quickly("\"\\ud83d\""));                                // half a character
    EXPECT_FALSE(is_read_quickly(std::string(20, '[') + std::string(20, ']')));  // the builder's limit
}

TEST(QuickJson, IsCorrectForEveryByteAndItsSuccessors) {
    int num_quick = 0;
    for (int first = 0; first < 256; ++first) {
        for (int second = 0; second < 256; ++second) {
            for (const char* rest : {"", "\x80", "\x80\x80"}) {
                const std::string bytes = {static_cast<char>(first), static_cast<char>(second)};
                num_quick += expect_quick_is_right("\"" + bytes + rest + "\"") ? 1 : 0;
                num_quick += expect_quick_is_right("[1," + bytes + rest + "]") ? 1 : 0;
            }
        }
    }
    // Of ASCII those that stand for themselves, and escapes; characters of two, three and four bytes; two digits.
    EXPECT_GT(num_quick, 94 * 94 + 30 * 64 + 15 * 32 + 90);
}

TEST(QuickJson, IsCorrectForAlmostValidTexts) {
    std::mt19937 random(1);
    const std::string bytes = "{}[]\",:\\u0e-+.19 tfn\n\x01\x7f\x80\xbf\xc2\xe0\xed\xf0\xf4\xff";
    int num_quick = 0;
    constexpr int kTexts = 40'000;
    for (int i = 0; i < kTexts; ++i) {
        std::string text = kUsualTexts[random() % kUsualTexts.size()];
        for (size_t change = random() % 3 + 1; change > 0; --change) {
            const size_t at = random() % text.size();
            const char byte = bytes[random() % bytes.size()];
            switch (random() % 4) {
                case 0: text[at] = byte; break;
                case 1: text.insert(at, 1, byte); break;
                case 2: text.erase(at, 1); break;
                default: std::swap(text[at], text[random() % text.size()]);
            }
            if (text.empty()) text = " ";
        }
        num_quick += expect_quick_is_right(text) ? 1 : 0;
    }
    EXPECT_GT(num_quick, kTexts / 20);
    EXPECT_LT(num_quick, kTexts / 2);
}

}  // namespace
}  // namespace verbatim::tests
