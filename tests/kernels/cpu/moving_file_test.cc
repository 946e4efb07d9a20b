#include "kernels/cpu/moving_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/prng.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

std::string random_bytes(int64_t size) {
    Prng prng(20251128);
    std::string bytes(static_cast<size_t>(size), '\0');
    for (char& byte : bytes) byte = static_cast<char>(prng.next());
    return bytes;
}

struct MovingFileTest : testing::Test {
    [[nodiscard]] MovingFile map(const std::string& bytes) const {
        const auto file = RegularFile::open(folder.write("file", bytes));
        CHECK(file.has_value(), "{}", file.error().message);
        auto mapped = MovingFile::map(*file);
        CHECK(mapped.has_value(), "{}", mapped.error().message);
        return std::move(*mapped);
    }
    tests::ScratchFolder folder;
};

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The number of the process's mappings at these addresses that belong to a file.
int mappings_of_file(std::span<const std::byte> bytes, const std::string& path) {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);) {
        const uintptr_t begin = std::stoull(line, nullptr, 16);
        const auto first = reinterpret_cast<uintptr_t>(bytes.data());
        if (begin >= first && begin < first + bytes.size() && line.ends_with(path)) ++count;
    }
    return count;
}

TEST_F(MovingFileTest, ItHasTheFilesBytesBeforeAndAfterTheMove) {
    for (const int64_t size : {int64_t{1}, int64_t{4095}, kHugePage, kHugePage + 1, 17 * kHugePage + 4097}) {
        SCOPED_TRACE(size);
        const std::string bytes = random_bytes(size);
        MovingFile file = map(bytes);
        const std::byte* const before = file.bytes().data();
        EXPECT_EQ(reinterpret_cast<uintptr_t>(before) % static_cast<uintptr_t>(kHugePage), 0);
        EXPECT_TRUE(file.populate(file.bytes()));
        EXPECT_TRUE(text_of(file.bytes()) == bytes);
        EXPECT_EQ(mappings_of_file(file.bytes(), folder.path() / "file"), 1);
        file.start_move();
        MovingFile holder = std::move(file);  // while it moves
        EXPECT_EQ(holder.finish_move(), size);
        EXPECT_EQ(holder.bytes().data(), before);
        EXPECT_EQ(mappings_of_file(holder.bytes(), folder.path() / "file"), 0) << "the file can change now";
        folder.write("file", "other bytes");
        EXPECT_TRUE(text_of(holder.bytes()) == bytes);
    }
}

// Readers in other threads never see anything else.
TEST_F(MovingFileTest, ReadersSeeTheSameBytesWhileTheyMove) {
    const std::string bytes = random_bytes(20 * kHugePage);
    MovingFile file = map(bytes);
    std::atomic<bool> ends = false;
    std::atomic<int> rounds = 0;
    std::atomic<int> wrong = 0;
    const auto read = [&] {
        while (!ends) {
            if (std::memcmp(file.bytes().data(), bytes.data(), bytes.size()) != 0) ++wrong;
            ++rounds;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the move has a low priority
        }
    };
    std::jthread first(read);
    std::jthread second(read);
    file.start_move();
    EXPECT_EQ(file.finish_move(), std::ssize(bytes));
    while (rounds < 3) std::this_thread::yield();
    ends = true;
    first.join();
    second.join();
    EXPECT_EQ(wrong, 0);
}

TEST_F(MovingFileTest, ItMayEndWhileItMoves) {
    const std::string bytes = random_bytes(24 * kHugePage);
    for (int i = 0; i < 8; ++i) {
        MovingFile file = map(bytes);
        file.start_move();
        EXPECT_EQ(std::memcmp(file.bytes().data() + i * kHugePage, bytes.data() + i * kHugePage, 4096), 0);
    }
}

TEST_F(MovingFileTest, AFileThatHasBecomeShorterIsAnError) {
    const std::string bytes = random_bytes(4 * 4096);
    const MovingFile file = map(bytes);
    std::filesystem::resize_file(folder.path() / "file", 4096);
    EXPECT_TRUE(file.populate(file.bytes().first(4096)));
    const Status cut = file.populate(file.bytes());
    ASSERT_FALSE(cut);
    EXPECT_THAT(cut.error().message, testing::HasSubstr("ends before its size"));
}

TEST_F(MovingFileTest, AnEmptyFileIsRefused) {
    const auto file = RegularFile::open(folder.write("file", ""));
    const auto mapped = MovingFile::map(*file);
    ASSERT_FALSE(mapped);
    EXPECT_THAT(mapped.error().message, testing::HasSubstr("is empty"));
}

}  // namespace
}  // namespace verbatim::cpu
