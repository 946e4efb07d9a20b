// files/regular_file.h: regular files (weights) read at any offset by any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "engine/base/result.h"

namespace verbatim {

// The identity of a file's bytes: differs after every change that follows wait_for_tick, and for every copy. Times:
// nanoseconds since 1970.
struct FileState {
    int64_t num_bytes = 0;
    uint64_t inode = 0;
    int64_t modified_ns = 0;  // tools may set it
    int64_t changed_ns = 0;   // tools cannot set it
    friend bool operator==(const FileState&, const FileState&) = default;
};

// File systems record time in ticks of up to 10 ms: within the tick of its last change, a file could change again and
// keep its state. Waits for the end of that tick; returns at once for a file that was not written just now.
void wait_for_tick(const FileState& state);

// A file open for reading.
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
    // A hint: the whole file will be read soon (readahead).
    void read_ahead() const;
    // Fills `destination` from `offset` on. Errors: the file ends before, the device fails.
    Status read(int64_t offset, std::span<std::byte> destination) const;

private:
    RegularFile(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
    std::filesystem::path path_;
    int descriptor_ = -1;
    FileState state_;
};

}  // namespace verbatim
