// Which lines of CUDA source the preprocessor leaves out, as g++ says it.
#include "kernels/sandbox/preprocessor_branches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/sandbox/compile_kernel.h"

namespace verbatim::sandbox {
namespace {

// What is left of the text, without blanks.
std::string left_of(const std::string& text) {
    EXPECT_TRUE(has_branches(text));
    const ScratchFolder folder;
    const auto marked = folder.path() / "marked.cu", output = folder.path() / "output";
    write_scratch(marked, with_branch_marks(text, 3, "my.cu"));
    EXPECT_EQ(run_command({"g++", "-std=c++23", "-E", "-P", "-w", "-x", "c++", marked.string(), "-o", output.string()},
                          folder.path() / "said"),
              0)
        << said_in(folder.path() / "said");
    const std::string preprocessed = said_in(output);
    EXPECT_TRUE(is_included(3, preprocessed));
    std::string left = without_dead_branches(text, 3, preprocessed);
    EXPECT_EQ(std::ranges::count(left, '\n'), std::ranges::count(text, '\n'));
    std::erase_if(left, [](char c) { return c == '\n' || c == '\r' || c == ' '; });
    return left;
}

TEST(PreprocessorBranches, AreTheOnesOfThePreprocessor) {
    EXPECT_EQ(left_of("a;\n#if 0\nb;\n#else\nc;\n#endif\nd;\n"), "a;c;d;");
    EXPECT_EQ(left_of("a;\r\n#if 0\r\nb;\r\n#else\r\nc;\r\n#endif\r\nd;\r\n"), "a;c;d;");
    EXPECT_EQ(left_of("#if 0 || \\\r\n  1\r\na;\r\n#else\r\nb;\r\n#endif\r\n"), "a;");
    EXPECT_EQ(left_of("#ifdef NONE\na;\n#elifdef __GNUC__\nb;\n#endif\nc;\n"), "b;c;");
    EXPECT_EQ(left_of("#ifdef NONE\na;\n#elifndef NONE\nb;\n#endif\nc;\n"), "b;c;");
    EXPECT_EQ(left_of("#if!1\na;\n#elif~0\nb;\n#endif\n"), "b;");
    EXPECT_EQ(left_of("#if-1\na;\n#else\nb;\n#endif\n"), "a;");
    EXPECT_EQ(left_of("#if'a'==98\na;\n#else\nb;\n#endif\n"), "b;");
    EXPECT_EQ(left_of("%:if 0\na;\n%:else\nb;\n%:endif\n"), "b;");
    EXPECT_EQ(left_of(" /* x */ # /* y */ if 0\na;\n#else\nb;\n#endif\n"), "b;");
}

TEST(PreprocessorBranches, BeginBehindACommentThatADirectiveOpens) {
    EXPECT_EQ(left_of("#if 1 /* one\n two */\na;\n#else /* three\n four\n */\nb;\n#endif\n"), "a;");
    EXPECT_EQ(left_of("#if 0 /* one\n two */\na;\n#else /* three\n four\n */\nb;\n#endif\n"), "b;");
}

TEST(PreprocessorBranches, AreNoneInALiteralOrALineThatGoesOn) {
    EXPECT_EQ(left_of("#if 1\nR\"(\n#if 0\n)\";\na;\n#endif\n"), "R\"(#if0)\";a;");
    EXPECT_EQ(left_of("#if 1\n#define A \\\n#if 0\na;\n#endif\n"), "#defineA\\#if0a;");
}

// The marks add lines, and `__LINE__` is still the file's.
TEST(PreprocessorBranches, KeepTheNumbersOfTheLines) {
    EXPECT_EQ(left_of("#if __LINE__ == 1\na;\n#endif\n#if __LINE__ == 4\nb;\n#endif\n#if 1 /*\n*/\n#if __LINE__ == "
                      "9\nc;\n#endif\n#endif\n"),
              "a;b;c;");
}

// A header may be live in one place and dead in the next: its directives stay.
TEST(PreprocessorBranches, DirectivesStayWhereAFileIsIncludedTwice) {
    const std::string text = "#ifdef A\na;\n#endif\n", mark = with_branch_marks("", 0, "x");
    const std::string first = mark.substr(0, mark.find('\n'));
    EXPECT_EQ(without_dead_branches(text, 0, first + "\nverbatim_branch_0_1_\na;\n" + first), text);
    EXPECT_EQ(without_dead_branches(text, 0, first + "\nverbatim_branch_0_1_\na;\n"), "\na;\n\n");
    EXPECT_FALSE(is_included(1, first));
}

}  // namespace
}  // namespace verbatim::sandbox
