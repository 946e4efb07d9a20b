// files/output_file.h: owns atomic writing of files: a file appears complete under its name or not at all.
//
//   O1  until finish() the existing file of that name stays unchanged; the new one is written as PATH.partial
//   O2  one writer per path: PATH.partial is locked while it is written, and a second writer is refused at once; a dead
//       process's lock is released
//   O3  after finish() returns, the file and its name survive a power failure (fsync of the file and its folder)
//   O4  the target of a symbolic link is replaced, not the link; a replaced file keeps its permission bits and, where
//       the system allows it, its owner; a new file has those of the umask
//   O5  a path that is not a regular file (a pipe, a terminal, /dev/null) or that names a descriptor (`-`, /dev/stdout,
//       /proc/self/fd/3) is written directly
#pragma once

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/result.h"

namespace verbatim::files {

struct OutputOptions {
    bool replaces = true;  // false: an existing file is an error
    // The data before a failure or the end of the process stays as PATH.partial, and the next writer moves it to
    // PATH.partial.1 (or .2, ...).
    bool keeps_unfinished = false;
};

class OutputFile {
public:
    OutputFile() = default;  // no file: write(), flush() and finish() do nothing
    // An empty path: no file. Errors (kMachine, as for all calls): the system's; another process or OutputFile is
    // writing this path.
    static Result<OutputFile> create(const std::filesystem::path& path, OutputOptions options = {});
    // The same; none while another writer has the path.
    static Result<std::optional<OutputFile>> create_unless_written(const std::filesystem::path& path,
                                                                   OutputOptions options = {});
    OutputFile(OutputFile&&) = default;
    OutputFile& operator=(OutputFile&& other) noexcept;
    ~OutputFile() { abandon(); }

    [[nodiscard]] bool is_wanted() const { return file_ != nullptr; }
    Status write(std::span<const std::byte> bytes);
    Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
    Status flush();                             // passes all data to the system: it survives the end of this process
    Status finish();                            // the last call, whatever it returns
    Status finish_with(std::string_view text);  // writes this and finishes
    // The temporary name until finish(); empty: written directly.
    [[nodiscard]] const std::filesystem::path& partial() const { return partial_; }
    // The new name of a dead process's unfinished file; empty: there was none.
    [[nodiscard]] const std::filesystem::path& moved() const { return moved_; }

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    Status open_directly(const std::filesystem::path& resolved);
    Result<bool> lock_partial();  // false: another writer has the path
    Status take_permissions();
    Status take_name();
    void abandon();

    std::filesystem::path asked_;    // as given, for messages
    std::filesystem::path path_;     // with symbolic links resolved
    std::filesystem::path partial_;  // empty: written directly
    std::filesystem::path moved_;
    OutputOptions options_;
    std::unique_ptr<std::FILE, Close> file_;  // its descriptor has the lock; none: no file, finished, moved from
};

// Writes a file with this text; nothing for an empty path.
Status write_file(const std::filesystem::path& path, std::string_view text);

// The temporary name of a file until it is complete. `path`: with symbolic links resolved.
[[nodiscard]] std::filesystem::path partial_of(const std::filesystem::path& path);
// The target of symbolic links, which need not exist. Errors: a cycle of links.
[[nodiscard]] Result<std::filesystem::path> behind_links(std::filesystem::path path);
// Whether the path (with links resolved) names a descriptor of a process, for reading or writing.
[[nodiscard]] bool names_descriptor(const std::filesystem::path& path);

// Makes the names in the folder survive a power failure. Errors: the system's.
Status sync_folder(const std::filesystem::path& folder);

}  // namespace verbatim::files
