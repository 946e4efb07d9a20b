#include "reference/model/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string_view>
#include <thread>
#include <utility>

namespace verbatim::reference {
namespace {

namespace fs = std::filesystem;

int64_t nanoseconds(const timespec& time) { return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec; }

// Error: what the system said last.
tl::unexpected<Error> system_error(const fs::path& path, std::string_view problem, ErrorKind kind = ErrorKind::kInput) {
    return tl::unexpected(Error{fmt::format("{}: {}: {}", path.string(), problem, std::strerror(errno)), kind});
}

// To be written in the folder of `path`, under no name. Null: the file system has no such, or none could be named.
std::FILE* open_nameless(const fs::path& path) {
    if (::access("/proc/self/fd", X_OK) != 0) return nullptr;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    if (descriptor < 0) return nullptr;
    std::FILE* file = ::fdopen(descriptor, "wb");
    if (file == nullptr) ::close(descriptor);
    return file;
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

Result<NewFile> NewFile::create(fs::path path) {
    std::error_code ignored;
    const fs::file_status there = fs::status(path, ignored);
    if (fs::exists(there) && !fs::is_regular_file(there)) {
        std::FILE* file = std::fopen(path.c_str(), "wbe");
        if (!file) return system_error(path, "cannot be written", ErrorKind::kMachine);
        return NewFile(std::move(path), {}, file);
    }
    if (fs::is_symlink(path, ignored) && fs::exists(there)) path = fs::canonical(path, ignored);
    const fs::path partial = fmt::format("{}.partial-{}", path.string(), ::getpid());
    fs::remove(partial, ignored);  // of a former process of that number
    std::FILE* file = open_nameless(path);
    const bool nameless = file != nullptr;
    if (!nameless) file = std::fopen(partial.c_str(), "wbex");
    if (!file) return system_error(path, "cannot be created", ErrorKind::kMachine);
    NewFile made(std::move(path), partial, file);
    made.nameless_ = nameless;
    return made;
}

NewFile::~NewFile() {
    if (!file_ || partial_.empty()) return;
    std::error_code ignored;
    fs::remove(partial_, ignored);
}

Status NewFile::write(std::span<const std::byte> bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return {};
    return system_error(path_, "cannot be written", ErrorKind::kMachine);
}

Status NewFile::finish() {
    Status finished = take_name();
    file_.reset();
    if (finished || partial_.empty()) return finished;
    std::error_code ignored;
    fs::remove(partial_, ignored);
    return finished;
}

// No call behind the one that failed: errno says why.
Status NewFile::take_name() {
    const std::string nameless = fmt::format("/proc/self/fd/{}", ::fileno(file_.get()));
    const bool written =
        std::fflush(file_.get()) == 0 &&
        (!nameless_ || ::linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, partial_.c_str(), AT_SYMLINK_FOLLOW) == 0) &&
        std::fclose(file_.release()) == 0 && (partial_.empty() || std::rename(partial_.c_str(), path_.c_str()) == 0);
    if (written) return {};
    return system_error(path_, "cannot be written", ErrorKind::kMachine);
}

Status write_file(const fs::path& path, std::string_view text) {
    ASSIGN_OR_RETURN(NewFile file, NewFile::create(path));
    RETURN_IF_ERROR(file.write(std::as_bytes(std::span(text))));
    return file.finish();
}

}  // namespace verbatim::reference
