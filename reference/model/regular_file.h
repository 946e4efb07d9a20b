// reference/model/regular_file.h: files as weights are kept in: read at any place by any thread, and written so that a
// file appears whole under its name or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
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

// Grows beside `path` and takes its name when it is done; whoever has the former file of that name open keeps that.
// Gone without a trace when it is destroyed before, and where the file system has files without a name, when the
// program is killed. Of a link the target is replaced; what is no regular file (a pipe, /dev/stdout, /dev/null) is
// written as it is.
class NewFile {
public:
    // Errors, of it and of what follows: what the system says, of kind kMachine.
    static Result<NewFile> create(std::filesystem::path path);
    NewFile(NewFile&&) = default;
    ~NewFile();

    Status write(std::span<const std::byte> bytes);
    Status finish();  // after it nothing more is written

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    NewFile(std::filesystem::path path, std::filesystem::path partial, std::FILE* file)
        : path_(std::move(path)), partial_(std::move(partial)), file_(file) {}
    Status take_name();

    std::filesystem::path path_;
    std::filesystem::path partial_;           // its name until it is done; empty: written as it is
    bool nameless_ = false;                   // until then without one
    std::unique_ptr<std::FILE, Close> file_;  // none: finished, or moved from
};

// A new file with this text alone.
Status write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace verbatim::reference
