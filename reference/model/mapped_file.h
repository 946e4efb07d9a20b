// reference/model/mapped_file.h: a regular file mapped read-only for as long as the object lives.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "engine/base/result.h"

namespace verbatim::reference {

class MappedFile {
public:
    // Errors: cannot be opened, is not a regular file. An empty file maps to no bytes.
    static Result<MappedFile> open(const std::filesystem::path& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    // The file must not be truncated by others while it is mapped.
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
    // Whole pages of `part`, as far as it lies in the file, leave memory until they are read again.
    void release(std::span<const std::byte> part) const;

private:
    explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
    std::span<const std::byte> bytes_;
};

// The whole of a small text file. Errors: as above, and larger than max_bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, size_t max_bytes);

}  // namespace verbatim::reference
