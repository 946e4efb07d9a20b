// Answers as they are written.
#include "server/http/answers.h"

#include <gtest/gtest.h>

#include <string>

#include "server/text/tokenizer_json.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;

TEST(AnswerWriter, AChunkOfTextIsWrittenAsItsJsonWouldBe) {
    const auto tokenizer = text::load_tokenizer(std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python");
    ASSERT_TRUE(tokenizer);
    for (const ApiKind kind : {ApiKind::kChat, ApiKind::kCompletion}) {
        AnswerWriter writer({kind, "chatcmpl-\"\\\n\xff", "a {} model", "exact/\u00e9", 7}, *tokenizer);
        const auto expect_equal = [&](const ChoicePart& part) {
            EXPECT_EQ(writer.written_chunk(part), written_answer(writer.chunk(part)));
        };
        for (const char* said : {"a", "\"\\\n\t\x01{}", "\u00e9\u20ac\U0001F600", ""}) {
            for (const bool shows : {false, true}) {
                expect_equal({.index = 3, .text = said, .num_top_log_probs = shows ? std::optional(1) : std::nullopt});
                expect_equal({.index = 0, .text = said, .finish = FinishReason::kLength});
                expect_equal({.index = 0, .text = said, .finish = FinishReason::kStopToken, .head = "1-ab"});
            }
        }
        expect_equal({.text = "a", .log_probs = {{{5, -1.5f}, {{6, -2.0f}}, 1}}, .num_top_log_probs = 1});
        writer.rename("other", 8);
        expect_equal({.text = "b"});
        EXPECT_NE(writer.written_chunk({.text = "b"}).find("\"id\":\"other\""), std::string::npos);
    }
}

}  // namespace
}  // namespace verbatim::tests
