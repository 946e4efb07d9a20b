#include "files/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace verbatim::files {
namespace {

Error machine_error(std::string message) { return {std::move(message), ErrorKind::kMachine}; }

}  // namespace

Result<FileLock> FileLock::acquire(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0)
        return tl::unexpected(machine_error(fmt::format("{}: {}", path.string(), std::strerror(errno))));
    FileLock lock(descriptor);
    struct stat about {};
    if (::fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode))
        return tl::unexpected(machine_error(fmt::format("{}: is not a file", path.string())));
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK)
            return tl::unexpected(machine_error(fmt::format("{}: {}", path.string(), std::strerror(errno))));
        std::array<char, 32> holder{};
        const ssize_t count = ::pread(descriptor, holder.data(), holder.size() - 1, 0);
        return tl::unexpected(machine_error(
            fmt::format("{}: process {} has this folder", path.string(), count > 0 ? holder.data() : "?")));
    }
    const std::string id = std::to_string(::getpid());
    // In this order it takes no room on a full disk if the file had an id.
    if (::pwrite(descriptor, id.data(), id.size(), 0) < 0 ||
        ::ftruncate(descriptor, static_cast<off_t>(id.size())) != 0)
        return tl::unexpected(machine_error(fmt::format("{}: {}", path.string(), std::strerror(errno))));
    return lock;
}

FileLock::~FileLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace verbatim::files
