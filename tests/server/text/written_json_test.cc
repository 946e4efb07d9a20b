// JSON as text: written, taken apart, and with stand-ins in the place of pivots.
#include "server/text/written_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "server/text/user_text.h"
#include "server/text/utf8.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::text;
using testing::ElementsAre;

// Every character that JSON escapes, brackets and commas inside of texts, and every kind of value.
Json every_kind() {
    std::string all;
    for (char32_t c = 0; c < 0x180; ++c) append_utf8(all, c);
    return {{"text", all},
            {"", {1, -1, 1.5, 1e300, 18446744073709551615u, true, false, nullptr}},
            {"\"[,{\\", {{{"a", "]},["}}, Json::array(), Json::object(), "\\\"", "\u20ac\U0001F600"}}};
}

TEST(WrittenJson, IsWhatTheLibraryWrites) {
    EXPECT_EQ(written(every_kind()), every_kind().dump());
    for (const Json& value : every_kind()) EXPECT_EQ(written(value), value.dump());
}

TEST(WrittenJson, AListComesApartIntoWhatItWasMadeOf) {
    const std::vector<std::string> values = {written(every_kind()), "{}", R"("a,\"]")", "[[1,2],[]]",
                                             written(every_kind())};
    const std::string list = written_list(values);
    EXPECT_EQ(Json::parse(list)[4], every_kind());
    const auto apart = values_of_list(list);
    ASSERT_TRUE(apart);
    EXPECT_EQ(std::vector<std::string>(apart->begin(), apart->end()), values);
    EXPECT_THAT(*values_of_list("[]"), ElementsAre());
    EXPECT_EQ(written_list({}), "[]");
    for (const char* none : {"", "[", "{}", "[{]", "[]]"}) EXPECT_FALSE(values_of_list(none)) << none;
}

// The same by way of the parser: what the texts of the value become.
Json with_replaced(const Json& value, const std::vector<StandIn>& stand_ins) {
    const auto of = [&](const std::string& text) {
        std::string out;
        for (size_t at = 0; at < text.size();) {
            char32_t c = next_character(text, at);
            for (const StandIn& one : stand_ins) c = c == one.character ? one.stand_in : c;
            append_utf8(out, c);
        }
        return out;
    };
    if (value.is_string()) return of(value.get<std::string>());
    if (!value.is_structured()) return value;
    Json out = value.is_object() ? Json::object() : Json::array();
    for (const auto& [key, inner] : value.items()) {
        if (value.is_object())
            out[of(key)] = with_replaced(inner, stand_ins);
        else
            out.push_back(with_replaced(inner, stand_ins));
    }
    return out;
}

// Whatever the pivot is: punctuation that JSON uses itself, what it escapes, letters of escapes and of words like true.
TEST(WrittenJson, StandInsTakeThePlaceOfPivotsInTextsAlone) {
    for (const char32_t pivot : std::u32string(U"|<[]{},:\"\\nut0e1 \n\b\x1f\x7f\u00e9\u20ac\U0001F600")) {
        std::string json = written(every_kind());
        const auto stand_ins = put_stand_ins({pivot}, json);
        ASSERT_TRUE(stand_ins) << stand_ins.error().message;
        ASSERT_EQ(stand_ins->size(), 1u) << static_cast<uint32_t>(pivot);
        EXPECT_EQ(json, with_replaced(every_kind(), *stand_ins).dump()) << static_cast<uint32_t>(pivot);
    }
    std::string json = written(every_kind());
    const auto several = put_stand_ins({U'|', U'"', U'\u4e00', U'n'}, json);
    ASSERT_TRUE(several);
    EXPECT_EQ(several->size(), 3u) << "one of them is not there";
    EXPECT_EQ(json, with_replaced(every_kind(), *several).dump());
}

TEST(WrittenJson, SeveralTextsHaveTheSameStandIns) {
    std::string first = R"(["a|b"])";
    std::string second = "[\"\uFDD0\"]";
    std::string third = R"(["<|>"])";
    const auto stand_ins = put_stand_ins({U'|', U'<'}, std::array{&first, &second, &third});
    ASSERT_TRUE(stand_ins);
    EXPECT_EQ(first, "[\"a\uFDD1b\"]");
    EXPECT_EQ(second, "[\"\uFDD0\"]");
    EXPECT_EQ(third, "[\"\uFDD2\uFDD1>\"]");
}

TEST(WrittenJson, AStandInThatTheTextHasIsPassedOver) {
    std::string json = "[\"\uFDD0\uFDD2|<\"]";
    const auto stand_ins = put_stand_ins({U'|', U'<'}, json);
    ASSERT_TRUE(stand_ins);
    EXPECT_EQ(json, "[\"\uFDD0\uFDD2\uFDD1\uFDD3\"]");
}

}  // namespace
}  // namespace verbatim::tests
