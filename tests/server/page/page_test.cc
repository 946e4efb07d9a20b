#include "server/http/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using server::read_page;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Page, PartsTakeThePlacesOfTheLinesThatNameThem) {
    const ScratchFolder folder;
    folder.write("a.css", "b { }\n");
    folder.write("one.js", "1;\n");
    folder.write("two.js", "2;\n");
    folder.write("index.html",
                 "<p>\n<link rel=\"stylesheet\" href=\"a.css\">\n<script src=\"one.js\"></script>\n"
                 "<script src=\"two.js\"></script>\n</p>\n");
    const auto page = read_page(folder.path().string());
    ASSERT_TRUE(page) << page.error().message;
    EXPECT_EQ(*page, "<p>\n<style>\nb { }\n</style>\n<script>\n1;\n</script>\n<script>\n2;\n</script>\n</p>\n");
}

TEST(Page, AMissingPartIsNamed) {
    const ScratchFolder folder;
    folder.write("index.html", "<script src=\"one.js\"></script>\n");
    const auto page = read_page(folder.path().string());
    ASSERT_FALSE(page);
    EXPECT_THAT(page.error().message, HasSubstr("one.js"));
    EXPECT_FALSE(read_page((folder.path() / "none").string()));
}

TEST(Page, LoadsNothing) {
    const auto page = read_page(VERBATIM_SOURCE_DIR "/server/page");
    ASSERT_TRUE(page) << page.error().message;
    EXPECT_THAT(*page, AllOf(Not(HasSubstr(" src=\"")), Not(HasSubstr("rel=\"stylesheet\"")), Not(HasSubstr("@import")),
                             Not(HasSubstr("url(")), Not(HasSubstr("innerHTML"))));
    EXPECT_THAT(*page, HasSubstr("require-trusted-types-for 'script'"));
}

}  // namespace
}  // namespace verbatim::tests
