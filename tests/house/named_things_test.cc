// What the documents name in backticks is there: tests by `Suite.Case`, and paths of the repository.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/house/source_text.h"

namespace verbatim::house {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

using TestNames = std::map<std::string, std::set<std::string>>;  // the cases of every suite

TestNames test_names(const std::vector<SourceFile>& files) {
    static const std::regex kTest(R"(\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP)\(\s*(\w+)\s*,\s*(\w+))");
    static const std::regex kOfCtest(R"(NAME ([A-Z]\w+)\.(\w+))");
    static const std::regex kWire(R"(verbatim_wire_test\((\w+))");
    TestNames names;
    const auto add = [&](const SourceFile& file, const std::regex& regex) {
        for (std::sregex_iterator at(file.text.begin(), file.text.end(), regex), end; at != end; ++at) {
            names[(*at)[1]].insert((*at)[2]);
        }
    };
    for (const SourceFile& file : files) {
        const bool of_cmake = file.path.ends_with(".txt");
        add(file, of_cmake ? kOfCtest : kTest);
        for (std::sregex_iterator at(file.text.begin(), file.text.end(), kWire), end; of_cmake && at != end; ++at) {
            names["Wire"].insert((*at)[1]);
        }
    }
    return names;
}

// `Suite.Case`, `Prefix/Suite.Case/Parameter`, `Suite.*`, `Suite.TheBeginning...`
bool is_known(const std::smatch& test, const TestNames& names) {
    const auto suite = names.find(test[1]);
    if (suite == names.end()) return false;
    const std::string name = test[2];
    const bool is_begun = test[3].matched;
    return name == "*" || std::ranges::any_of(suite->second, [&](const std::string& known) {
               return is_begun ? known.starts_with(name) : known == name;
           });
}

Violations unknown_tests(const SourceFile& file, const TestNames& names) {
    static const std::regex kTest(R"(`(?:\w+/)?([A-Z][A-Za-z]+)\.([A-Z]\w*|\*)(\.\.\.|…)?(?:/\w+)?`)");
    Violations found;
    for (std::sregex_iterator at(file.text.begin(), file.text.end(), kTest), end; at != end; ++at) {
        if (!is_known(*at, names)) found.push_back(fmt::format("{}: there is no test {}", file.path, at->str()));
    }
    return found;
}

// A path whose first folder is one of the repository's; not a pattern, and no placeholder in capitals.
Violations unknown_paths(const SourceFile& file) {
    static const std::regex kPath(
        R"(`((?:engine|reference|kernels|simulator|server|traces|tools|tests|docs|cmake)/[a-z0-9_./-]*)`)");
    Violations found;
    for (std::sregex_iterator at(file.text.begin(), file.text.end(), kPath), end; at != end; ++at) {
        const std::string path = (*at)[1];
        const std::filesystem::path folder = (std::filesystem::path(VERBATIM_SOURCE_DIR) / file.path).parent_path();
        if (std::filesystem::exists(std::filesystem::path(VERBATIM_SOURCE_DIR) / path)) continue;
        if (std::filesystem::exists(folder / path)) continue;
        found.push_back(fmt::format("{}: there is no {}", file.path, path));
    }
    return found;
}

TEST(NamedThings, EveryTestThatADocumentNamesIsThere) {
    const TestNames names = test_names(repository_files({".cc", "CMakeLists.txt"}));
    ASSERT_GT(names.size(), 100U);
    for (const SourceFile& file : repository_files({".md"})) {
        const Violations found = unknown_tests(file, names);
        EXPECT_THAT(found, IsEmpty()) << fmt::format("{}", fmt::join(found, "\n"));
    }
}

TEST(NamedThings, ATestThatIsNotThereIsFound) {
    const TestNames names =
        test_names({{"tests/a_test.cc", "TEST(Apple, IsRed) {}\nTEST_P(Pear,\n       HasAStem) {}"},
                    {"tests/CMakeLists.txt", "add_test(NAME Plum.IsBlue COMMAND x)\nverbatim_wire_test(Curl x)"}});
    const auto problems = [&](const std::string& text) { return unknown_tests({"docs/x.md", text}, names); };
    EXPECT_THAT(problems("`Apple.IsRed` `All/Pear.HasAStem/3` `Plum.IsBlue` `Wire.Curl` `Apple.*` `Pear.Has...`"),
                IsEmpty());
    EXPECT_THAT(problems("`Apple.IsBlue`"), SizeIs(1));
    EXPECT_THAT(problems("`Apple.Is`"), SizeIs(1));
    EXPECT_THAT(problems("`Melon.*`"), SizeIs(1));
    EXPECT_THAT(problems("`Pear.Was...`"), SizeIs(1));
}

TEST(NamedThings, EveryPathThatADocumentNamesIsThere) {
    for (const SourceFile& file : repository_files({".md"})) {
        const Violations found = unknown_paths(file);
        EXPECT_THAT(found, IsEmpty()) << fmt::format("{}", fmt::join(found, "\n"));
    }
}

TEST(NamedThings, APathThatIsNotThereIsFound) {
    const auto problems = [](const std::string& text) { return unknown_paths({"docs/x.md", text}); };
    EXPECT_THAT(problems("`engine/base/check.h` `tests/` `tests/FOLDER/slow/` `tests/*.cc` `build/dev`"), IsEmpty());
    EXPECT_THAT(problems("`engine/base/no_such_file.h`"), SizeIs(1));
}

}  // namespace
}  // namespace verbatim::house
