#include "files/reserved_bytes.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace verbatim {

Result<ReservedBytes> ReservedBytes::make(size_t num_bytes) {
    if (num_bytes == 0) return ReservedBytes();
    void* address =
        ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
        return tl::unexpected(Error{fmt::format("{} bytes cannot be reserved: {}", num_bytes, std::strerror(errno)),
                                    ErrorKind::kMachine});
    }
    return ReservedBytes({static_cast<std::byte*>(address), num_bytes});
}

ReservedBytes::ReservedBytes(ReservedBytes&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

ReservedBytes& ReservedBytes::operator=(ReservedBytes&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
}

ReservedBytes::~ReservedBytes() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace verbatim
