// What holds for every file of the repository, whatever it is about.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/house/source_text.h"

namespace verbatim::house {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// Every hand-written file: sources, build files, scripts, documents.
const std::vector<std::string> kTexts = {".h",        ".cc",   ".cu",  ".inc",   ".md",       ".txt",    ".cmake",
                                         ".sh",       ".py",   "/run", "/check", "/verbatim", "/format", "/gpu-check",
                                         "-chromium", ".json", ".js",  ".css",   ".html"};

constexpr size_t kMaxLines = 600;  // a file that one can read in one sitting

Violations too_long(const SourceFile& file) {
    const size_t num_lines = split_lines(file.text).size();
    if (num_lines < kMaxLines) return {};
    return {fmt::format("{}: {} lines, fewer than {} wanted: split it", file.path, num_lines, kMaxLines)};
}

constexpr size_t kMaxColumns = 120;

// Characters, not bytes: a byte 10xxxxxx goes on with the one before.
size_t num_columns(const std::string& line) {
    return static_cast<size_t>(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

// In Markdown, the rows of a table and what a program printed have the width that they need.
Violations too_wide(const SourceFile& file) {
    const bool is_prose = file.path.ends_with(".md");
    bool printed = false;
    Violations found;
    const std::vector<std::string> lines = split_lines(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
        if (is_prose && lines[i].starts_with("```")) printed = !printed;
        if (is_prose && (printed || lines[i].starts_with("|"))) continue;
        if (num_columns(lines[i]) <= kMaxColumns) continue;
        found.push_back(
            fmt::format("{}:{}: {} columns, {} at most", file.path, i + 1, num_columns(lines[i]), kMaxColumns));
    }
    return found;
}

// Two parts of a word that this file names and must not contain.
std::string word(const char* head, const char* tail) { return std::string(head) + tail; }

// Work left undone, names that say nothing, and paths that exist on one machine only.
Violations unwanted_words(const SourceFile& file) {
    static const std::regex kWords(word(R"(\bTO)", R"(DO\b|\bFIX)") + word(R"(ME\b|\bXX)", R"(X\b|[Hh]elp)") +
                                   word(R"(er|[/_]uti)", R"(ls?\b|/wo)") + word(R"(rk/|/ho)", R"(me/|/ro)") + "ot/");
    Violations found;
    const std::vector<std::string> lines = split_lines(file.text);
    for (size_t i = 0; i < lines.size(); ++i) {
        std::smatch match;
        if (std::regex_search(lines[i], match, kWords)) {
            found.push_back(fmt::format("{}:{}: the word `{}`", file.path, i + 1, match.str()));
        }
    }
    return found;
}

// A header begins with its path and what it owns, and has an include guard.
Violations headless(const SourceFile& file) {
    Violations found;
    if (!file.text.starts_with(fmt::format("// {}: ", file.path))) {
        found.push_back(fmt::format("{}: the first line is not `// {}: what it owns`", file.path, file.path));
    }
    if (file.text.find("\n#pragma once\n") == std::string::npos) {
        found.push_back(fmt::format("{}: no #pragma once", file.path));
    }
    return found;
}

// Relative links of a Markdown file that lead nowhere.
Violations dead_links(const SourceFile& file) {
    static const std::regex kLink(R"(\]\(([^)#:]+)(#[^)]*)?\))");
    const std::filesystem::path folder = (std::filesystem::path(VERBATIM_SOURCE_DIR) / file.path).parent_path();
    Violations found;
    for (std::sregex_iterator at(file.text.begin(), file.text.end(), kLink), end; at != end; ++at) {
        if (!std::filesystem::exists(folder / (*at)[1].str())) {
            found.push_back(fmt::format("{}: the link to {} leads nowhere", file.path, (*at)[1].str()));
        }
    }
    return found;
}

template <typename Rule>
void expect_everywhere(Rule rule, const std::vector<SourceFile>& files) {
    ASSERT_THAT(files, testing::Not(IsEmpty()));
    for (const SourceFile& file : files) {
        const Violations found = rule(file);
        EXPECT_THAT(found, IsEmpty()) << fmt::format("{}", fmt::join(found, "\n"));
    }
}

TEST(Tidiness, EverySourceFileIsShort) { expect_everywhere(too_long, source_files()); }

TEST(Tidiness, ALongFileIsFound) {
    EXPECT_THAT(too_long({"x.cc", std::string(kMaxLines, '\n')}), SizeIs(1));
    EXPECT_THAT(too_long({"x.cc", std::string(kMaxLines - 1, '\n')}), IsEmpty());
}

TEST(Tidiness, NoLineIsWiderThanAScreen) {
    std::vector<SourceFile> files = repository_files(kTexts);
    std::erase_if(files, [](const SourceFile& file) {
        return file.path.ends_with(".json") || file.path.starts_with("docs/measurements/");
    });
    expect_everywhere(too_wide, files);
}

TEST(Tidiness, AWideLineIsFound) {
    const std::string wide = std::string(kMaxColumns, 'x') + "x\n";
    for (const char* file : {"x.cc", "x.sh", "x.md", "CMakeLists.txt"}) {
        EXPECT_THAT(too_wide({file, wide}), SizeIs(1)) << file;
        EXPECT_THAT(too_wide({file, std::string(kMaxColumns - 1, 'x') + "\u00d7\n"}), IsEmpty()) << file;
    }
    EXPECT_THAT(too_wide({"x.md", "```\n" + wide + "```\n|" + wide}), IsEmpty());
    EXPECT_THAT(too_wide({"x.md", "```\n```\n" + wide}), SizeIs(1));
}

TEST(Tidiness, NoFileHasUnwantedWords) { expect_everywhere(unwanted_words, repository_files(kTexts)); }

TEST(Tidiness, AnUnwantedWordIsFound) {
    const std::string undone = "// " + word("TO", "DO") + ": all of it\n";
    const std::string vague_name = "class Cache" + word("Help", "er") + ";\n";
    const std::string vague_file = "#include \"a" + word("/uti", "ls") + ".h\"\n";
    EXPECT_THAT(unwanted_words({"x.cc", undone + "int x;\n" + vague_name + vague_file}), SizeIs(3));
    EXPECT_THAT(unwanted_words({"x.md", "see " + word("/ho", "me/somebody/x")}), SizeIs(1));
    EXPECT_THAT(unwanted_words({"x.md", "a utilisation of 80 % helps"}), IsEmpty());
}

TEST(Tidiness, EveryHeaderSaysWhatItOwns) { expect_everywhere(headless, repository_files({".h"})); }

TEST(Tidiness, AHeadlessHeaderIsFound) {
    EXPECT_THAT(headless({"a/x.h", "// a/x.h: owns x.\n#pragma once\n"}), IsEmpty());
    EXPECT_THAT(headless({"a/x.h", "// a/y.h: owns x.\n#pragma once\n"}), SizeIs(1));
    EXPECT_THAT(headless({"a/x.h", "// a/x.h: owns x.\n"}), SizeIs(1));
}

TEST(Tidiness, EveryLinkOfTheDocumentsLeadsSomewhere) { expect_everywhere(dead_links, repository_files({".md"})); }

TEST(Tidiness, ADeadLinkIsFound) {
    EXPECT_THAT(dead_links({"docs/x.md", "[a](../README.md#top) [b](https://example.org/x) [c](#here)"}), IsEmpty());
    EXPECT_THAT(dead_links({"docs/x.md", "[a](no-such-file.md)"}), SizeIs(1));
}

TEST(Tidiness, EveryDocumentIsInTheIndex) {
    std::string index;
    for (const SourceFile& file : repository_files({"docs/README.md"})) index = file.text;
    ASSERT_FALSE(index.empty());
    for (const SourceFile& file : repository_files({".md"})) {
        if (!file.path.starts_with("docs/") || file.path == "docs/README.md") continue;
        const std::string name = file.path.substr(std::string("docs/").size());
        EXPECT_NE(index.find("(" + name + ")"), std::string::npos) << "docs/README.md has no link to " << name;
    }
}

// The exact profile is IEEE-754 as written: a flag that lets a compiler fuse or reorder would break it silently. What a
// compile command lacks, and what it must not have.
std::vector<std::string> arithmetic_problems(const std::string& command) {
    std::vector<std::string> problems;
    std::vector<std::string> wanted = {"-ffp-contract=off"};
    if (command.find(".cu ") != std::string::npos) {
        wanted = {"-Xcompiler=-ffp-contract=off", "-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true"};
    }
    const auto has = [&](const std::string& flag) {
        return (" " + command + " ").find(" " + flag + " ") != std::string::npos;
    };
    for (const std::string& flag : wanted) {
        if (!has(flag)) problems.push_back("no " + flag);
    }
    for (const char* flag : {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-march=native", "-use_fast_math",
                             "--use_fast_math"}) {
        if (has(flag)) problems.emplace_back(flag);
    }
    return problems;
}

TEST(CompileCommands, KeepTheArithmeticAsWritten) {
    std::ifstream in(VERBATIM_BINARY_DIR "/compile_commands.json");
    const nlohmann::json commands = nlohmann::json::parse(in);
    ASSERT_GT(commands.size(), 10u);
    for (const nlohmann::json& entry : commands) {
        const auto command = entry.at("command").get<std::string>();
        EXPECT_THAT(arithmetic_problems(command), IsEmpty()) << command;
    }
}

TEST(CompileCommands, AFlagThatChangesTheArithmeticIsFound) {
    EXPECT_THAT(arithmetic_problems("g++ -ffp-contract=off -c a.cc"), IsEmpty());
    EXPECT_THAT(arithmetic_problems("g++ -c a.cc"), SizeIs(1));
    EXPECT_THAT(arithmetic_problems("g++ -ffp-contract=off -march=native -c a.cc"), SizeIs(1));
    EXPECT_THAT(arithmetic_problems("nvcc -ffp-contract=off -c a.cu -o a.o"), SizeIs(5));
}

}  // namespace
}  // namespace verbatim::house
