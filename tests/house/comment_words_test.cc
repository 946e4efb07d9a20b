// Comments name things of the code as their subjects (docs/development.md).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/house/source_text.h"

namespace verbatim::house {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Words that stand for a noun without naming it. `whose` is not one: it also refers to things.
const std::regex& stand_ins() {
    static const std::regex kWords(
        R"(\b(nobody|somebody|anybody|everybody|whoever|whomever|who|whom|told|beside|its own|their own)\b)",
        std::regex::ECMAScript | std::regex::icase);
    return kWords;
}

// The text of comments only: code is blank, and so are names in backticks, quoted texts and flags.
std::string comments_of(std::string_view text) {
    static const std::regex kQuoted(R"(`[^`\n]*`|"[^"\n]*"|--[a-z-]+)");
    const std::string code = blank_comments(text, true);
    std::string comments(text);
    for (size_t i = 0; i < comments.size(); ++i) {
        if (comments[i] != '\n' && code[i] == comments[i]) comments[i] = ' ';
    }
    return std::regex_replace(comments, kQuoted, " ");
}

Violations stand_ins_in_comments(const SourceFile& file) {
    Violations found;
    const std::vector<std::string> lines = split_lines(comments_of(file.text));
    for (size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        if (!std::regex_search(lines[i], match, stand_ins())) continue;
        found.push_back(fmt::format("{}:{}: the word `{}`: name the thing of the code that it stands for", file.path,
                                    i + 1, match.str()));
    }
    return found;
}

TEST(CommentWords, CommentsNameThingsOfTheCode) {
    const std::vector<SourceFile> sources = repository_files({".h", ".cc", ".cu", ".cuh"});
    ASSERT_THAT(sources, Not(IsEmpty()));
    for (const SourceFile& file : sources) {
        const Violations found = stand_ins_in_comments(file);
        EXPECT_THAT(found, IsEmpty()) << fmt::format("{}", fmt::join(found, "\n"));
    }
}

TEST(CommentWords, AStandInIsFoundInAComment) {
    for (const char* comment : {"// Nobody reads it.", "int x;  // is told by\n", "/* the one\n who waits */",
                                "// in memory of its own", "// runs beside the engine"}) {
        EXPECT_THAT(stand_ins_in_comments({"a/x.h", comment}), ElementsAre(HasSubstr("a/x.h:"))) << comment;
    }
    EXPECT_THAT(stand_ins_in_comments({"a/x.h", "int a;\n// b\n// whoever\n"}),
                ElementsAre("a/x.h:3: the word `whoever`: name the thing of the code that it stands for"));
}

TEST(CommentWords, CodeAndQuotedNamesMayHaveAnyWord) {
    for (const char* text :
         {"int who;  // the thread", "const char* x = \"who\";", "// `told` is called after --beside",
          "// the error \"nobody\"", "// whole, besides, a row whose length is 0"}) {
        EXPECT_THAT(stand_ins_in_comments({"a/x.h", text}), IsEmpty()) << text;
    }
}

}  // namespace
}  // namespace verbatim::house
