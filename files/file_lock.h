// files/file_lock.h: a lock that a process holds until it ends. The lock's file names the process.
#pragma once

#include <filesystem>
#include <utility>

#include "engine/base/result.h"

namespace verbatim::files {

class FileLock {
public:
    // Makes the file if it is not there. Errors (kMachine): the system's; another process, which is named, holds it;
    // the path is a link, or no file.
    static Result<FileLock> acquire(const std::filesystem::path& path);
    FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    FileLock& operator=(FileLock&&) = delete;
    ~FileLock();

private:
    explicit FileLock(int descriptor) : descriptor_(descriptor) {}
    int descriptor_ = -1;
};

}  // namespace verbatim::files
