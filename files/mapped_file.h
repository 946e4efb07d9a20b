// files/mapped_file.h: a regular file mapped read-only for as long as the object lives.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "engine/base/result.h"
#include "files/regular_file.h"

namespace verbatim {

class MappedFile {
public:
    // Errors: cannot be opened, is not a regular file. An empty file maps to no bytes.
    static Result<MappedFile> open(const std::filesystem::path& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    // The file must not be truncated while it is mapped.
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
    [[nodiscard]] const FileState& state() const { return state_; }  // when it was opened
    // Drops the whole pages of `part` that lie in the file; the next access reads them again.
    void release(std::span<const std::byte> part) const;

private:
    MappedFile(std::span<const std::byte> bytes, const FileState& state) : bytes_(bytes), state_(state) {}
    std::span<const std::byte> bytes_;
    FileState state_;
};

// A hint: these bytes of a mapped file will be read soon (readahead).
void read_ahead(std::span<const std::byte> mapped);

// The whole of a small text file. Errors: as above, and larger than max_bytes.
Result<std::string> read_text_file(const std::filesystem::path& path, size_t max_bytes);

}  // namespace verbatim
