#include "files/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

namespace fs = std::filesystem;
using files::OutputFile;
using files::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

int64_t num_entries(const fs::path& folder) { return std::distance(fs::directory_iterator(folder), {}); }

unsigned permissions_of(const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 0777;
}

// The exit code of `act` in a child process.
int in_child(const std::function<int()>& act) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(act());
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A process that has written `text` to `path`, has not finished, and was killed.
void write_and_be_killed(const std::string& path, const std::string& text, files::OutputOptions options = {}) {
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe(ready.data()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        auto file = OutputFile::create(path, options);
        if (!file || !file->write(text) || !file->flush()) ::_exit(1);
        static_cast<void>(::write(ready[1], "r", 1));
        for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

// From here on fsync() fails in this process with EIO, but for the descriptor `spared`.
bool break_fsync(int spared) {
    const auto number = static_cast<uint32_t>(spared);
    sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 3),
                            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)),
                            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 1, 0),
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
                            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
    return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(OutputFile, ReplacesTheFormerFileWhenItIsFinished) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    {
        auto file = OutputFile::create(path);
        ASSERT_TRUE(file) << file.error().message;
        ASSERT_TRUE(file->write("half"));
        ASSERT_TRUE(file->flush());
        EXPECT_EQ(text_of(path), "former");
        EXPECT_EQ(text_of(path + ".partial"), "half");
    }
    EXPECT_EQ(text_of(path), "former") << "it was not finished";
    EXPECT_EQ(num_entries(folder.path()), 1);
    ASSERT_TRUE(write_file(path, "whole"));
    EXPECT_EQ(text_of(path), "whole");
    EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(OutputFile, NoFileIsWrittenWithoutAPath) {
    auto file = OutputFile::create("");
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->is_wanted());
    EXPECT_TRUE(file->write("text"));
    EXPECT_TRUE(file->finish());
}

TEST(OutputFile, TheSecondWriterOfAPathIsRefusedAtOnce) {
    const ScratchFolder folder;
    fs::create_symlink("a", folder.path("link"));
    fs::create_directory(folder.path("sub"));
    auto first = OutputFile::create(folder.path("a"));
    ASSERT_TRUE(first && first->write("first"));
    for (const std::string& spelling : {folder.path("a"), folder.path("link"), folder.path("sub/../a")}) {
        const auto second = OutputFile::create(spelling);
        ASSERT_FALSE(second) << spelling;
        EXPECT_THAT(second.error().message, AllOf(HasSubstr(spelling + ": is being written"), HasSubstr("a.partial")));
        EXPECT_EQ(second.error().kind, ErrorKind::kMachine);
        const auto unless = OutputFile::create_unless_written(spelling);
        ASSERT_TRUE(unless);
        EXPECT_FALSE(unless->has_value());
    }
    EXPECT_EQ(in_child([&] { return OutputFile::create(folder.path("a")) ? 0 : 7; }), 7) << "another process";
    ASSERT_TRUE(first->finish());
    EXPECT_EQ(text_of(folder.path("a")), "first");
    EXPECT_TRUE(write_file(folder.path("a"), "second"));
    EXPECT_EQ(text_of(folder.path("link")), "second");
}

// However the two meet, one of them writes all of the file.
TEST(OutputFile, ConcurrentWritersLeaveTheFileOfOne) {
    const ScratchFolder folder;
    const std::string path = folder.path("a");
    for (int round = 0; round < 20; ++round) {
        std::vector<pid_t> children;
        for (char letter = 'a'; letter < 'e'; ++letter) {
            const pid_t child = ::fork();
            if (child == 0) ::_exit(write_file(path, std::string(100'000, letter)) ? 0 : 1);
            children.push_back(child);
        }
        int num_written = 0;
        for (const pid_t child : children) {
            int status = 0;
            ::waitpid(child, &status, 0);
            num_written += status == 0 ? 1 : 0;
        }
        EXPECT_GE(num_written, 1);
        const std::string text = text_of(path);
        EXPECT_EQ(text, std::string(100'000, text.empty() ? '-' : text[0]));
        EXPECT_EQ(num_entries(folder.path()), 1);
    }
}

TEST(OutputFile, TheLockOfAKilledProcessIsFree) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    write_and_be_killed(path, "killed");
    EXPECT_EQ(text_of(path), "former");
    EXPECT_EQ(text_of(path + ".partial"), "killed");
    ASSERT_TRUE(write_file(path, "new"));
    EXPECT_EQ(text_of(path), "new");
    EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(OutputFile, AKilledProcesssPartialFileIsKept) {
    const ScratchFolder folder;
    const std::string path = folder.path("a");
    for (const std::string name : {"a.partial.1", "a.partial.2"}) {
        write_and_be_killed(path, "killed before " + name, {.keeps_unfinished = true});
        auto next = OutputFile::create(path, {.keeps_unfinished = true});
        ASSERT_TRUE(next) << next.error().message;
        EXPECT_EQ(next->moved(), folder.path(name));
        EXPECT_EQ(text_of(folder.path(name)), "killed before " + name);
    }
    EXPECT_EQ(num_entries(folder.path()), 2) << "writers without a byte leave nothing";
}

TEST(OutputFile, AnUnfinishedFileStaysOnRequest) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    {
        auto file = OutputFile::create(path, {.keeps_unfinished = true});
        ASSERT_TRUE(file && file->write("half"));
    }
    EXPECT_EQ(text_of(path), "former");
    EXPECT_EQ(text_of(path + ".partial"), "half");
}

TEST(OutputFile, TheTargetOfASymbolicLinkIsReplaced) {
    const ScratchFolder folder;
    const std::string target = folder.write("target", "former");
    fs::create_symlink("target", folder.path("link"));
    fs::create_symlink("to-come", folder.path("dangling"));
    ASSERT_TRUE(write_file(folder.path("link"), "new"));
    ASSERT_TRUE(write_file(folder.path("dangling"), "new"));
    EXPECT_TRUE(fs::is_symlink(folder.path("link")));
    EXPECT_TRUE(fs::is_symlink(folder.path("dangling")));
    EXPECT_EQ(text_of(target), "new");
    EXPECT_EQ(text_of(folder.path("to-come")), "new");
    EXPECT_EQ(num_entries(folder.path()), 4);
    fs::create_symlink("round", folder.path("round"));
    EXPECT_THAT(write_file(folder.path("round"), "").error().message, HasSubstr("too many symbolic links"));
}

TEST(OutputFile, AReplacedFileKeepsItsPermissions) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    for (const unsigned bits : {0600U, 0664U, 0755U}) {
        ASSERT_EQ(::chmod(path.c_str(), bits), 0);
        ASSERT_TRUE(write_file(path, "new"));
        EXPECT_EQ(permissions_of(path), bits);
    }
    const mode_t before = ::umask(0027);
    ASSERT_TRUE(write_file(folder.path("b"), "new"));
    ::umask(before);
    EXPECT_EQ(permissions_of(folder.path("b")), 0640U) << "a new file has the umask's";
}

TEST(OutputFile, AReadOnlyFileStaysAsItIs) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
    ASSERT_EQ(::chmod(folder.path().c_str(), 0777), 0);
    EXPECT_EQ(in_child([&] {
                  constexpr uid_t kNobody = 65534;  // root may write read-only files
                  if (::getuid() == 0 && ::setuid(kNobody) != 0) return 1;
                  return write_file(path, "new") ? 2 : 0;
              }),
              0);
    EXPECT_EQ(text_of(path), "former");
}

// /dev/null must not become a file, whatever writes to it, and /dev/stdout must work.
TEST(OutputFile, ASpecialFileIsWrittenDirectly) {
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

// `--to /dev/stdout > out.txt`: what is printed before and after lies in the same file.
TEST(OutputFile, ADescriptorsFileIsContinuedAndNotReplaced) {
    const ScratchFolder folder;
    const std::string path = folder.path("out");
    EXPECT_EQ(in_child([&] {
                  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT, 0600);
                  if (::dup2(descriptor, 1) != 1) return 1;
                  std::printf("before\n");
                  if (!write_file("/dev/stdout", "file 1\n") || !write_file("-", "file 2\n")) return 2;
                  std::printf("after\n");
                  std::fflush(stdout);
                  return 0;
              }),
              0);
    EXPECT_EQ(text_of(path), "before\nfile 1\nfile 2\nafter\n");
    EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(OutputFile, AFailedWriteIsAMachineError) {
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
    fs::create_directory(folder.path("a.partial"));
    EXPECT_THAT(write_file(folder.path("a"), "text").error().message, HasSubstr("a.partial: is in the way"));
}

TEST(OutputFile, AFileThatMayNotBeReplacedStaysAsItIs) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    const auto file = OutputFile::create(path, {.replaces = false});
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, HasSubstr("a: is there already"));
    EXPECT_EQ(num_entries(folder.path()), 1);
    EXPECT_TRUE(OutputFile::create(folder.path("b"), {.replaces = false}));
}

TEST(OutputFile, TheFormerFileStaysWhenTheSizeLimitIsReached) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    EXPECT_EQ(in_child([&] {
                  ::signal(SIGXFSZ, SIG_IGN);  // as the program does
                  const rlimit small{1000, 1000};
                  ::setrlimit(RLIMIT_FSIZE, &small);
                  const Status written = write_file(path, std::string(100'000, 'x'));
                  if (written || written.error().kind != ErrorKind::kMachine) return 1;
                  return written.error().message.find("ulimit -f") == std::string::npos ? 2 : 0;
              }),
              0);
    EXPECT_EQ(text_of(path), "former");
    EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(OutputFile, AFailedSyncFailsFinish) {
    const ScratchFolder folder;
    const std::string path = folder.write("a", "former");
    EXPECT_EQ(in_child([&] {
                  if (!break_fsync(-1)) return 77;
                  return write_file(path, "new") ? 1 : 0;
              }),
              0);
    EXPECT_EQ(text_of(path), "former") << "it replaced the file without a sync";
    EXPECT_EQ(num_entries(folder.path()), 1);
}

TEST(OutputFile, TheFolderIsSyncedToo) {
    const ScratchFolder folder;
    EXPECT_EQ(in_child([&] {
                  const int next = ::dup(0);  // the number that the file will have
                  ::close(next);
                  if (!break_fsync(next)) return 77;
                  const Status written = write_file(folder.path("a"), "new");
                  if (written) return 1;
                  return written.error().message.find(folder.path().string() + ": cannot be synced") == 0 ? 0 : 2;
              }),
              0);
    EXPECT_EQ(text_of(folder.path("a")), "new");
}

}  // namespace
}  // namespace verbatim::tests
