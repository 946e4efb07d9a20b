#include "tests/house/missing_includes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbatim::house {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(MissingIncludes, AreNowhere) {
    const std::vector<SourceFile> files = source_files();
    const Includes includes(files);
    for (const SourceFile& file : files) {
        const Violations found = includes.missing(file);
        EXPECT_THAT(found, IsEmpty()) << fmt::format("{}", fmt::join(found, "\n"));
    }
}

const SourceFile kPool = {
    "engine/pool.h", "#include <vector>\nnamespace verbatim {\nstruct Pool {\n    std::vector<int> free;\n};\n}\n"};

Violations missing(const std::string& text) { return Includes({kPool}).missing({"engine/x.cc", text}); }

TEST(MissingIncludes, ATypeOfOursIsFound) {
    EXPECT_THAT(missing("namespace verbatim {\nPool pool;\n}\n"), ElementsAre(HasSubstr("Pool without engine/pool.h")));
    EXPECT_THAT(missing("#include \"engine/pool.h\"\nnamespace verbatim::cpu {\nPool pool;\n}\n"), IsEmpty());
}

TEST(MissingIncludes, ANameOfTheStandardLibraryIsFound) {
    EXPECT_THAT(missing("std::optional<int> x;\n"), ElementsAre(HasSubstr("std::optional without <optional>")));
    EXPECT_THAT(missing("#include <optional>\nstd::optional<int> x;\n"), IsEmpty());
    EXPECT_THAT(missing("#include \"engine/pool.h\"\nstd::vector<int> x;\n"), IsEmpty()) << "pool.h has it";
}

TEST(MissingIncludes, OtherUsesOfTheSameNameAreIgnored) {
    for (const char* text :
         {"namespace verbatim {\nclass Pool;\n}\n", "namespace verbatim {\n// Pool\n\"Pool\"; x.Pool;\n}\n",
          "namespace other {\nPool pool;\n}\n", "namespace verbatim {\nother::Pool pool;\n}\n",
          "namespace verbatim {\ntemplate <typename Pool>\nvoid f(Pool p);\n}\n", "cuda::std::optional<int> x;\n"}) {
        EXPECT_THAT(missing(text), IsEmpty()) << text;
    }
}

}  // namespace
}  // namespace verbatim::house
