#include "files/output_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>

namespace verbatim::files {
namespace {

namespace fs = std::filesystem;

// What the system said last.
tl::unexpected<Error> system_error(const fs::path& path, std::string_view problem) {
    const int code = errno;
    const char* advice = code == EFBIG ? " (a limit on file sizes: ulimit -f)" : "";
    return tl::unexpected(
        Error{fmt::format("{}: {}: {}{}", path.string(), problem, std::strerror(code), advice), ErrorKind::kMachine});
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// A descriptor that is closed unless it is released.
class Descriptor {
public:
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (number_ >= 0) ::close(number_);
    }
    [[nodiscard]] int get() const { return number_; }
    int release() { return std::exchange(number_, -1); }

private:
    int number_;
};

// N of /proc/self/fd/N, -1 for any other path.
int own_descriptor(const fs::path& path) {
    std::error_code ignored;
    const fs::path folder = fs::canonical(folder_of(path), ignored);
    const std::string name = path.filename().string();
    if (folder != fmt::format("/proc/{}/fd", ::getpid())) return -1;
    int number = -1;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
    return code == std::errc{} && end == name.data() + name.size() ? number : -1;
}

// Whether `path` is the name of the file that `descriptor` has open.
bool is_name_of(const fs::path& path, int descriptor) {
    struct stat named = {};
    struct stat open = {};
    return ::lstat(path.c_str(), &named) == 0 && ::fstat(descriptor, &open) == 0 && named.st_dev == open.st_dev &&
           named.st_ino == open.st_ino;
}

// Pipes and terminals have nothing that could be kept.
bool cannot_be_synced(int code) { return code == EINVAL || code == ENOTSUP || code == EROFS; }

// Moves an unfinished file to the first free of NAME.1, NAME.2, ... REQUIRES: it is locked, so that nothing else moves.
Result<fs::path> move_away(const fs::path& partial) {
    for (int i = 1;; ++i) {
        const fs::path place = fmt::format("{}.{}", partial.string(), i);
        std::error_code ignored;
        if (fs::exists(fs::symlink_status(place, ignored))) continue;
        if (std::rename(partial.c_str(), place.c_str()) != 0) return system_error(partial, "cannot be moved");
        return place;
    }
}

}  // namespace

fs::path partial_of(const fs::path& path) { return path.string() + ".partial"; }

bool names_descriptor(const fs::path& path) {
    struct statfs system = {};
    return ::statfs(folder_of(path).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

Result<fs::path> behind_links(fs::path path) {
    constexpr int kMostLinks = 40;  // as the system's
    for (int i = 0; i < kMostLinks; ++i) {
        std::error_code problem;
        if (names_descriptor(path) || !fs::is_symlink(path, problem)) return path;
        const fs::path target = fs::read_symlink(path, problem);
        if (problem) return error("{}: cannot be read: {}", path.string(), problem.message());
        path = target.is_absolute() ? target : folder_of(path) / target;
    }
    return error("{}: too many symbolic links", path.string());
}

Status sync_folder(const fs::path& folder) {
    const Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (open.get() < 0 && errno == EACCES) return {};  // may be written, and not read
    if (open.get() >= 0 && (::fsync(open.get()) == 0 || cannot_be_synced(errno))) return {};
    return system_error(folder, "cannot be synced to the disk");
}

Result<OutputFile> OutputFile::create(const fs::path& path, OutputOptions options) {
    ASSIGN_OR_RETURN(std::optional<OutputFile> file, create_unless_written(path, options));
    if (file) return *std::move(file);
    ASSIGN_OR_RETURN(const fs::path target, behind_links(path));
    return tl::unexpected(Error{fmt::format("{}: is being written by another command, which has the lock on {}: wait "
                                            "until it is done, or name another file",
                                            path.string(), partial_of(target).string()),
                                ErrorKind::kMachine});
}

Result<std::optional<OutputFile>> OutputFile::create_unless_written(const fs::path& path, OutputOptions options) {
    OutputFile file;
    if (path.empty()) return file;
    file.asked_ = path;
    file.options_ = options;
    ASSIGN_OR_RETURN(file.path_, behind_links(path == "-" ? "/proc/self/fd/1" : path));
    std::error_code ignored;
    const fs::file_status there = fs::status(file.path_, ignored);
    if (names_descriptor(file.path_) || (fs::exists(there) && !fs::is_regular_file(there))) {
        RETURN_IF_ERROR(file.open_directly(file.path_));
        return file;
    }
    // The folder's permissions would allow to replace it.
    if (fs::exists(there) && ::access(file.path_.c_str(), W_OK) != 0) return system_error(path, "cannot be written");
    file.partial_ = partial_of(file.path_);
    ASSIGN_OR_RETURN(const bool locked, file.lock_partial());
    if (!locked) return std::nullopt;
    // Under the lock: no other writer makes it now.
    if (!options.replaces && fs::exists(fs::symlink_status(file.path_, ignored)))
        return error("{}: is there already, and stays as it is: name another file", path.string());
    RETURN_IF_ERROR(file.take_permissions());
    return file;
}

Status OutputFile::open_directly(const fs::path& resolved) {
    const int own = own_descriptor(resolved);
    std::fflush(stdout);  // what was printed before comes first
    // A copy goes on where the descriptor is; what is opened anew would begin at the file's begin.
    Descriptor open(own >= 0 ? ::fcntl(own, F_DUPFD_CLOEXEC, 0)
                             : ::open(resolved.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY));
    if (open.get() < 0) return system_error(asked_, "cannot be written");
    file_.reset(::fdopen(open.get(), "w"));
    if (!file_) return system_error(asked_, "cannot be written");
    open.release();
    return {};
}

Result<bool> OutputFile::lock_partial() {
    // Other writers may take the name or give it up at any moment: each round is another state of the folder.
    for (;;) {
        Descriptor open(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
        const bool is_new = open.get() >= 0;
        if (!is_new && errno != EEXIST) return system_error(asked_, "cannot be created");
        Descriptor old(is_new ? -1 : ::open(partial_.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
        const int descriptor = is_new ? open.get() : old.get();
        if (descriptor < 0 && errno == ENOENT) continue;
        if (descriptor < 0) return system_error(partial_, "is in the way, and cannot be opened");
        if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EINTR) continue;
            if (errno == EWOULDBLOCK) return false;
            return system_error(partial_, "cannot be locked");
        }
        if (!is_name_of(partial_, descriptor)) continue;  // its writer was done meanwhile
        if (is_new) {
            file_.reset(::fdopen(descriptor, "wb"));
            if (!file_) return system_error(asked_, "cannot be created");
            open.release();
            return true;
        }
        // Of a process that died. Moved or removed under its lock, so that one writer alone does it.
        struct stat left = {};
        if (::fstat(descriptor, &left) == 0 && left.st_size > 0 && options_.keeps_unfinished) {
            ASSIGN_OR_RETURN(moved_, move_away(partial_));
        } else if (::unlink(partial_.c_str()) != 0) {
            return system_error(partial_, "is in the way, and cannot be removed");
        }
    }
}

// Of the file that it will replace.
Status OutputFile::take_permissions() {
    struct stat there = {};
    if (::stat(path_.c_str(), &there) != 0) return {};
    const int descriptor = ::fileno(file_.get());
    const bool has_group = ::fchown(descriptor, static_cast<uid_t>(-1), there.st_gid) == 0;
    static_cast<void>(::fchown(descriptor, there.st_uid, static_cast<gid_t>(-1)) == 0);  // root alone may
    constexpr mode_t kBits = 0777;
    constexpr mode_t kGroup = 0070;
    // The bits of one group are not another group's.
    const mode_t bits = has_group ? there.st_mode & kBits : there.st_mode & kBits & ~kGroup;
    if (::fchmod(descriptor, bits) != 0) return system_error(asked_, "cannot be given its permissions");
    return {};
}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
    if (this == &other) return *this;
    abandon();
    asked_ = std::move(other.asked_);
    path_ = std::move(other.path_);
    partial_ = std::move(other.partial_);
    moved_ = std::move(other.moved_);
    options_ = other.options_;
    file_ = std::move(other.file_);
    return *this;
}

Status OutputFile::write(std::span<const std::byte> bytes) {
    if (!file_ || bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return {};
    return system_error(asked_, "cannot be written");
}

Status OutputFile::flush() {
    if (!file_ || std::fflush(file_.get()) == 0) return {};
    return system_error(asked_, "cannot be written");
}

Status OutputFile::finish() {
    if (!file_) return {};
    Status finished = take_name();
    if (!finished) {
        abandon();
        return finished;
    }
    const Status synced = partial_.empty() ? Status{} : sync_folder(folder_of(path_));
    file_.reset();  // all of it is synced: closing has nothing to write
    return synced;
}

Status OutputFile::finish_with(std::string_view text) {
    RETURN_IF_ERROR(write(text));
    return finish();
}

// No call behind the one that failed: errno says why. The lock is kept throughout.
Status OutputFile::take_name() {
    const bool written = std::fflush(file_.get()) == 0 &&
                         (::fsync(::fileno(file_.get())) == 0 || (partial_.empty() && cannot_be_synced(errno))) &&
                         (partial_.empty() || std::rename(partial_.c_str(), path_.c_str()) == 0);
    return written ? Status{} : system_error(asked_, "cannot be written");
}

// While it has the lock, the partial's name is this file's.
void OutputFile::abandon() {
    if (!file_) return;
    struct stat written = {};
    std::fflush(file_.get());
    const bool is_kept =
        options_.keeps_unfinished && ::fstat(::fileno(file_.get()), &written) == 0 && written.st_size > 0;
    if (!partial_.empty() && !is_kept) ::unlink(partial_.c_str());
    file_.reset();
}

Status write_file(const fs::path& path, std::string_view text) {
    ASSIGN_OR_RETURN(OutputFile file, OutputFile::create(path));
    return file.finish_with(text);
}

}  // namespace verbatim::files
