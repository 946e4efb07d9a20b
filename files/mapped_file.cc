#include "files/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace verbatim {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    ASSIGN_OR_RETURN(const RegularFile file, RegularFile::open(path));
    const auto size = static_cast<size_t>(file.state().num_bytes);
    if (size == 0) return MappedFile({}, file.state());
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    if (address == MAP_FAILED) return error("{}: cannot be mapped: {}", path.string(), std::strerror(errno));
    return MappedFile({static_cast<const std::byte*>(address), size}, file.state());
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})), state_(other.state_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(state_, other.state_);
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

void read_ahead(std::span<const std::byte> mapped) {
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<uintptr_t>(mapped.data());
    const uintptr_t before = begin % page;
    if (!mapped.empty()) ::madvise(reinterpret_cast<void*>(begin - before), mapped.size() + before, MADV_WILLNEED);
}

Result<std::string> read_text_file(const std::filesystem::path& path, size_t max_bytes) {
    ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(path));
    if (file.bytes().size() > max_bytes)
        return error("{}: has {} bytes, wanted at most {}: is this the right file?", path.string(), file.bytes().size(),
                     max_bytes);
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace verbatim
