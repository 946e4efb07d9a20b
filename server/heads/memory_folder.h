// server/heads/memory_folder.h: owns a folder in host memory that goes with its process.
//
//   M1  the folder is this process's and its user's alone
//   M2  folders of processes that were killed are removed when the user's next one is made. Links and entries of other
//       users stay
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "engine/base/result.h"
#include "files/file_lock.h"

namespace verbatim::server {

class MemoryFolder {
public:
    // `parent`: where a file system lies in memory. Errors (kMachine): the system's; fewer bytes are free there.
    static Result<MemoryFolder> make(int64_t num_bytes, const std::filesystem::path& parent = "/dev/shm");
    MemoryFolder(MemoryFolder&& other) noexcept;
    MemoryFolder& operator=(MemoryFolder&&) = delete;
    ~MemoryFolder();

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    MemoryFolder(std::filesystem::path path, files::FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}

    std::filesystem::path path_;  // empty: moved from
    std::optional<files::FileLock> lock_;
};

}  // namespace verbatim::server
