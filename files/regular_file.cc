#include "files/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>
#include <utility>

namespace verbatim {
namespace {

namespace fs = std::filesystem;

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

// Error: what the system said last. Of the machine, unless the path names no file.
tl::unexpected<Error> system_error(const fs::path& path, std::string_view problem) {
    const int code = errno;
    const bool is_of_path = code == ENOENT || code == ENOTDIR || code == ELOOP || code == ENAMETOOLONG;
    return tl::unexpected(Error{fmt::format("{}: {}: {}", path.string(), problem, std::strerror(code)),
                                is_of_path ? ErrorKind::kInput : ErrorKind::kMachine});
}

}  // namespace

void wait_for_tick(const FileState& state) {
    // At most: the clock of a file server may be ahead of ours.
    for (int milliseconds = 0; milliseconds < 20; ++milliseconds) {
        timespec now = {};
        clock_gettime(CLOCK_REALTIME_COARSE, &now);  // what the system stamps files with
        if (nanoseconds(now) > state.changed_ns) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

Result<RegularFile> RegularFile::open(const fs::path& path) {
    // Without O_NONBLOCK a named pipe would wait for its writer.
    RegularFile file(path, ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.descriptor_ < 0) return system_error(path, "cannot be opened");
    struct stat status = {};
    if (::fstat(file.descriptor_, &status) != 0) return system_error(path, "cannot be examined");
    if (!S_ISREG(status.st_mode)) return error("{}: is not a regular file", path.string());
    file.state_ = {status.st_size, status.st_ino, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim)};
    return file;
}

RegularFile::RegularFile(RegularFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), state_(other.state_) {}

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(state_, other.state_);
    return *this;
}

RegularFile::~RegularFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void RegularFile::read_ahead() const { ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_WILLNEED); }

Status RegularFile::read(int64_t offset, std::span<std::byte> destination) const {
    while (!destination.empty()) {
        const ssize_t got = ::pread(descriptor_, destination.data(), destination.size(), offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_error(path_, "cannot be read");
        if (got == 0) return error("{}: ends at byte {}: is it truncated?", path_.string(), offset);
        destination = destination.subspan(static_cast<size_t>(got));
        offset += got;
    }
    return {};
}

}  // namespace verbatim
