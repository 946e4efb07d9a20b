// reference/model/regular_file.h: files as weights are kept in: read at any place by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "engine/base/result.h"

namespace verbatim::reference {

// Another one after every change of the file's bytes that comes after wait_for_tick, and of every copy. Times:
// nanoseconds since 1970.
struct FileState {
    int64_t num_bytes = 0;
    uint64_t inode = 0;
    int64_t modified_ns = 0;  // what tools may set
    int64_t changed_ns = 0;   // what they may not
    friend bool operator==(const FileState&, const FileState&) = default;
};

// File systems tell time in ticks of up to 10 ms: until the tick of its last change is over, the file could change once
// more and have the same state. Returns at once for a file that was not written just now.
void wait_for_tick(const FileState& state);

// Open for reading.
class RegularFile {
public:
    // Errors: cannot be opened, is not a regular file.
    static Result<RegularFile> open(const std::filesystem::path& path);
    RegularFile(RegularFile&& other) noexcept;
    RegularFile& operator=(RegularFile&& other) noexcept;
    ~RegularFile();

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const FileState& state() const { return state_; }  // when it was opened
    [[nodiscard]] int descriptor() const { return descriptor_; }
    // A wish: all of it will be read, best begun now.
    void read_ahead() const;
    // All of `destination`, from `offset` on. Errors: the file ends before, the device fails.
    Status read(int64_t offset, std::span<std::byte> destination) const;

private:
    RegularFile(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
    std::filesystem::path path_;
    int descriptor_ = -1;
    FileState state_;
};

}  // namespace verbatim::reference
