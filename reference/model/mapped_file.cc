#include "reference/model/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace verbatim::reference {
namespace {

class FileDescriptor {
public:
    explicit FileDescriptor(int fd) : fd_(fd) {}
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    ~FileDescriptor() {
        if (fd_ >= 0) ::close(fd_);
    }
    [[nodiscard]] int get() const { return fd_; }

private:
    int fd_;
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    // Without O_NONBLOCK a named pipe would wait for its writer.
    const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) return error("{}: cannot be opened: {}", path.string(), std::strerror(errno));
    struct stat status = {};
    if (::fstat(fd.get(), &status) != 0)
        return error("{}: cannot be examined: {}", path.string(), std::strerror(errno));
    if (!S_ISREG(status.st_mode)) return error("{}: is not a regular file", path.string());
    const auto size = static_cast<size_t>(status.st_size);
    if (size == 0) return MappedFile({});
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (address == MAP_FAILED) return error("{}: cannot be mapped: {}", path.string(), std::strerror(errno));
    ::madvise(address, size, MADV_WILLNEED);  // a wish: it will be read from end to end, best begun now
    return MappedFile({static_cast<const std::byte*>(address), size});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto file_begin = reinterpret_cast<uintptr_t>(bytes_.data());
    const auto part_begin = reinterpret_cast<uintptr_t>(part.data());
    const uintptr_t begin = (std::max(file_begin, part_begin) + page - 1) / page * page;
    const uintptr_t end = std::min(file_begin + bytes_.size(), part_begin + part.size()) / page * page;
    if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<std::string> read_text_file(const std::filesystem::path& path, size_t max_bytes) {
    ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
    if (file.bytes().size() > max_bytes)
        return error("{}: has {} bytes, wanted at most {}: is this the right file?", path.string(), file.bytes().size(),
                     max_bytes);
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace verbatim::reference
