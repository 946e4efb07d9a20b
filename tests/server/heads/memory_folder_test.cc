#include "server/heads/memory_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "files/mapped_file.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::server {
namespace {

using testing::HasSubstr;

int64_t count_in(const std::filesystem::path& folder) {
    const std::filesystem::directory_iterator files(folder);
    return std::distance(begin(files), end(files));
}

TEST(MemoryFolder, GoesWithItsOwner) {
    const tests::ScratchFolder parent;
    {
        const auto first = MemoryFolder::make(1, parent.path());
        const auto second = MemoryFolder::make(1, parent.path());
        ASSERT_TRUE(first && second);
        EXPECT_NE(first->path(), second->path());
        std::ofstream(first->path() / "a.head") << "text";
        struct stat about {};
        ASSERT_EQ(::stat(first->path().c_str(), &about), 0);
        EXPECT_EQ(about.st_mode & 0777, 0700u);
        EXPECT_EQ(count_in(parent.path()), 4) << "two folders and their locks";
    }
    EXPECT_EQ(count_in(parent.path()), 0);
}

TEST(MemoryFolder, OfAKilledProcessIsCollectedAndThatOfALivingOneIsNot) {
    const tests::ScratchFolder parent;
    const pid_t child = ::fork();
    if (child == 0) {
        const auto folder = MemoryFolder::make(1, parent.path());
        if (folder) std::ofstream(folder->path() / "a.head") << "text";
        ::_exit(0);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_EQ(count_in(parent.path()), 2);
    const auto living = MemoryFolder::make(1, parent.path());
    ASSERT_TRUE(living);
    EXPECT_EQ(count_in(parent.path()), 2);
    const auto next = MemoryFolder::make(1, parent.path());
    EXPECT_TRUE(std::filesystem::exists(living->path()));
}

TEST(MemoryFolder, LinksAndEntriesOfOtherUsersStay) {
    const tests::ScratchFolder parent;
    const auto text_of = [](const std::filesystem::path& path) { return read_text_file(path, 100).value_or("none"); };
    const std::filesystem::path theirs = parent.path() / "text";
    std::ofstream(theirs) << "text";
    std::filesystem::create_symlink(theirs, parent.path() / "verbatim-heads-1-0.lock");
    const std::filesystem::path own_lock = parent.path() / fmt::format("verbatim-heads-{}-0.lock", ::getpid());
    std::filesystem::create_symlink(theirs, own_lock);
    const std::filesystem::path other_lock = parent.path() / "verbatim-heads-2-0.lock";
    std::ofstream(other_lock) << "2";
    const bool is_root = ::chown(other_lock.c_str(), 1, 1) == 0;
    ASSERT_TRUE(MemoryFolder::make(1, parent.path()));
    EXPECT_EQ(text_of(theirs), "text");
    EXPECT_TRUE(std::filesystem::is_symlink(own_lock));
    EXPECT_EQ(std::filesystem::exists(other_lock), is_root) << "this user's is collected";
}

TEST(MemoryFolder, WithoutRoomOrPlaceItIsAnErrorThatSaysSo) {
    const tests::ScratchFolder parent;
    const auto large = MemoryFolder::make(int64_t{1} << 62, parent.path());
    ASSERT_FALSE(large);
    EXPECT_THAT(large.error().message, HasSubstr("wanted 4611686018427387904"));
    EXPECT_FALSE(MemoryFolder::make(1, parent.path() / "none"));
}

}  // namespace
}  // namespace verbatim::server
