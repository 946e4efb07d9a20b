// A chat template that is not UTF-8, wherever it comes from: an error with the file's name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "reference/loader/gguf.h"
#include "server/text/chat.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::text {
namespace {

using reference::GgufMetadata;
using reference::GgufStrings;
using testing::HasSubstr;
using tests::ScratchFolder;

std::string problem_of(const std::filesystem::path& model, const std::filesystem::path& file = {}) {
    const auto found = find_chat_template(model, file);
    return found ? "found" : found.error().message;
}

TEST(TemplateEncoding, AFileInLatin1IsRefusedByItsFirstByte) {
    const ScratchFolder scratch;
    const std::string own = scratch.write("own.jinja", "caf\xe9");
    EXPECT_THAT(problem_of(scratch.path(), own), HasSubstr("own.jinja: the chat template is not UTF-8 at byte 3"));
    EXPECT_EQ(problem_of(scratch.path(), scratch.write("right.jinja", "caf\u00e9")), "found");
    scratch.write("chat_template.jinja", "\xff");
    EXPECT_THAT(problem_of(scratch.path()), HasSubstr("chat_template.jinja: the chat template is not UTF-8 at byte 0"));
}

TEST(TemplateEncoding, AGgufFilesTextsAreHeldToIt) {
    const ScratchFolder scratch;
    const auto problem = [&](std::string_view source, const std::string& bos) {
        const GgufMetadata metadata = {{"tokenizer.chat_template", source},
                                       {"tokenizer.ggml.tokens", GgufStrings{bos}},
                                       {"tokenizer.ggml.bos_token_id", int64_t{0}}};
        return problem_of(scratch.write("m.gguf", reference::gguf_prefix(metadata, {})));
    };
    EXPECT_EQ(problem("a", "<s>"), "found");
    EXPECT_THAT(problem("a\x80", "<s>"), HasSubstr("m.gguf: the chat template is not UTF-8 at byte 1"));
    EXPECT_THAT(problem("a", "<\x80>"), HasSubstr("m.gguf: the text of bos_token is not UTF-8"));
}

}  // namespace
}  // namespace verbatim::text
