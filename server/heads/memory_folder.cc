#include "server/heads/memory_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

constexpr const char* kPrefix = "verbatim-heads-";
constexpr const char* kLock = ".lock";

Error machine_error(const std::filesystem::path& path, const std::string& why) {
    return {fmt::format("{}: {}", path.string(), why), ErrorKind::kMachine};
}

std::filesystem::path lock_of(std::filesystem::path folder) { return folder += kLock; }

void remove_both(const std::filesystem::path& folder) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    std::filesystem::remove(lock_of(folder), ignored);
}

// Other users can make entries there, links to this user's files among them.
bool is_of_this_user(const std::filesystem::path& path) {
    struct stat about {};
    return ::lstat(path.c_str(), &about) == 0 && about.st_uid == ::geteuid();
}

// Of this user's processes that are dead: their locks are free.
void collect(const std::filesystem::path& parent) {
    std::error_code failed;
    std::vector<std::filesystem::path> folders;
    for (std::filesystem::directory_iterator entry(parent, failed), end; !failed && entry != end;
         entry.increment(failed)) {
        const std::filesystem::path& path = entry->path();
        const bool is_lock = path.extension() == kLock && path.filename().string().starts_with(kPrefix);
        if (is_lock && is_of_this_user(path)) folders.push_back(parent / path.stem());
    }
    for (const std::filesystem::path& folder : folders)
        if (files::FileLock::acquire(lock_of(folder))) remove_both(folder);
}

}  // namespace

Result<MemoryFolder> MemoryFolder::make(int64_t num_bytes, const std::filesystem::path& parent) {
    CHECK_GE(num_bytes, 0);
    collect(parent);
    std::error_code failed;
    const std::filesystem::space_info space = std::filesystem::space(parent, failed);
    if (failed) return tl::unexpected(machine_error(parent, failed.message()));
    if (space.available < static_cast<uintmax_t>(num_bytes))
        return tl::unexpected(machine_error(
            parent, fmt::format("{} bytes are free, wanted {}: is more of the memory to be this file system's?",
                                space.available, num_bytes)));
    constexpr int kMaxFolders = 64;  // of one process
    for (int i = 0; i < kMaxFolders; ++i) {
        const std::filesystem::path folder = parent / fmt::format("{}{}-{}", kPrefix, ::getpid(), i);
        auto lock = files::FileLock::acquire(lock_of(folder));
        if (!lock) continue;
        constexpr mode_t kMode = 0700;
        if (::mkdir(folder.c_str(), kMode) == 0) return MemoryFolder(folder, *std::move(lock));
        const int why = errno;
        if (why != EEXIST)
            return tl::unexpected(machine_error(folder, std::error_code(why, std::generic_category()).message()));
    }
    return tl::unexpected(machine_error(parent, "no folder can be made for this process"));
}

MemoryFolder::MemoryFolder(MemoryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

MemoryFolder::~MemoryFolder() {
    if (!path_.empty()) remove_both(path_);
}

}  // namespace verbatim::server
