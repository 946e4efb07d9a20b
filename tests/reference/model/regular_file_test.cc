#include "reference/model/regular_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

namespace fs = std::filesystem;
using reference::NewFile;
using reference::write_file;
using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

int64_t num_entries(const fs::path& folder) { return std::distance(fs::directory_iterator(folder), {}); }

bool has_nameless_files(const fs::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_WRONLY, 0600);
    if (descriptor >= 0) ::close(descriptor);
    return descriptor >= 0;
}

TEST(NewFile, ReplacesTheFormerOneWhenItIsDone) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    {
        auto file = NewFile::create(path);
        ASSERT_TRUE(file) << file.error().message;
        ASSERT_TRUE(file->write(std::as_bytes(std::span("half"))));
        EXPECT_EQ(text_of(path), "former");
    }
    EXPECT_EQ(text_of(path), "former") << "it was not finished";
    EXPECT_EQ(num_entries(folder.path()), 1);
    ASSERT_TRUE(write_file(path, "whole"));
    EXPECT_EQ(text_of(path), "whole");
    EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(NewFile, OfAProgramThatIsKilledNothingStays) {
    const ScratchFolder folder;
    if (!has_nameless_files(folder.path())) GTEST_SKIP() << "this file system has no files without a name";
    const auto file = NewFile::create(folder.path("a"));
    ASSERT_TRUE(file);
    EXPECT_EQ(num_entries(folder.path()), 0);
}

TEST(NewFile, ALinksTargetIsReplacedAndNotTheLink) {
    const ScratchFolder folder;
    const std::string target = folder.write("target", "former");
    fs::create_symlink("target", folder.path("link"));
    ASSERT_TRUE(write_file(folder.path("link"), "new"));
    EXPECT_TRUE(fs::is_symlink(folder.path("link")));
    EXPECT_EQ(text_of(target), "new");
    EXPECT_EQ(num_entries(folder.path()), 2);
}

// /dev/null must not become a file, whoever writes to it, and /dev/stdout must work.
TEST(NewFile, WhatIsNoRegularFileIsWrittenAsItIs) {
    const ScratchFolder folder;
    fs::create_symlink("/dev/null", folder.path("null"));
    ASSERT_TRUE(write_file(folder.path("null"), "text"));
    EXPECT_TRUE(fs::is_symlink(folder.path("null")));
    EXPECT_TRUE(fs::is_character_file(fs::status(folder.path("null"))));

    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    ASSERT_TRUE(write_file("/proc/self/fd/" + std::to_string(ends[1]), "text"));
    std::array<char, 8> got{};
    EXPECT_EQ(::read(ends[0], got.data(), got.size()), 4);
    EXPECT_STREQ(got.data(), "text");
    ::close(ends[0]);
    ::close(ends[1]);
}

TEST(NewFile, WhatCannotBeWrittenIsTheMachinesFault) {
    const ScratchFolder folder;
    fs::create_symlink("/dev/full", folder.path("full"));
    for (const auto& [path, problem] :
         {std::pair{folder.path("full"), "No space left"}, std::pair{folder.path().string(), "directory"},
          std::pair{folder.path("none/a"), "No such file"}}) {
        const Status written = write_file(path, "text");
        ASSERT_FALSE(written) << path;
        EXPECT_THAT(written.error().message, HasSubstr(problem));
        EXPECT_EQ(written.error().kind, ErrorKind::kMachine) << path;
    }
    EXPECT_EQ(num_entries(folder.path()), 1);
}

}  // namespace
}  // namespace verbatim::tests
