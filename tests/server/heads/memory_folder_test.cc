#include "server/heads/memory_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

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

TEST(MemoryFolder, WithoutRoomOrPlaceItIsAnErrorThatSaysSo) {
    const tests::ScratchFolder parent;
    const auto large = MemoryFolder::make(int64_t{1} << 62, parent.path());
    ASSERT_FALSE(large);
    EXPECT_THAT(large.error().message, HasSubstr("wanted 4611686018427387904"));
    EXPECT_FALSE(MemoryFolder::make(1, parent.path() / "none"));
}

}  // namespace
}  // namespace verbatim::server
