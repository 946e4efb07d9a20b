// files/output_file.h: owns the way in which files are written: a file appears whole under its name or not at all.
//
//   O1  until finish() the former file of that name stays as it is; the new one grows under the name PATH.partial
//   O2  one writer per path: PATH.partial is locked while it is written, and a second writer is refused at once; the
//       lock of a process that died is free
//   O3  when finish() has returned, the file and its name survive a power failure (fsync of the file and its folder)
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
    bool replaces = true;  // false: a file that exists already is an error
    // What was written before a failure or the end of the process is worth reading: it stays under PATH.partial, and
    // the next writer moves it to PATH.partial.1 (or .2, ...).
    bool keeps_unfinished = false;
};

class OutputFile {
public:
    OutputFile() = default;  // no file is wanted: write(), flush() and finish() do nothing
    // An empty path: no file is wanted. Errors (kMachine, as those of what follows): what the system says; another
    // process or another OutputFile writes this path.
    static Result<OutputFile> create(const std::filesystem::path& path, OutputOptions options = {});
    // The same; none while the path is written elsewhere.
    static Result<std::optional<OutputFile>> create_unless_written(const std::filesystem::path& path,
                                                                   OutputOptions options = {});
    OutputFile(OutputFile&&) = default;
    OutputFile& operator=(OutputFile&& other) noexcept;
    ~OutputFile() { abandon(); }

    [[nodiscard]] bool is_wanted() const { return file_ != nullptr; }
    Status write(std::span<const std::byte> bytes);
    Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
    Status flush();                             // the system has all of it: it survives the end of this process
    Status finish();                            // nothing is written after it, whatever it returns
    Status finish_with(std::string_view text);  // writes this and finishes
    // Its name until finish(); empty: it is written directly.
    [[nodiscard]] const std::filesystem::path& partial() const { return partial_; }
    // The name that an unfinished file of a process that died has now; empty: there was none.
    [[nodiscard]] const std::filesystem::path& moved() const { return moved_; }

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    Status open_directly(const std::filesystem::path& resolved);
    Result<bool> lock_partial();  // false: the path is written elsewhere
    Status take_permissions();
    Status take_name();
    void abandon();

    std::filesystem::path asked_;    // as messages call it
    std::filesystem::path path_;     // behind its links
    std::filesystem::path partial_;  // empty: written directly
    std::filesystem::path moved_;
    OutputOptions options_;
    std::unique_ptr<std::FILE, Close> file_;  // its descriptor has the lock; none: not wanted, finished, moved from
};

// A file with this text alone; none where the path is empty.
Status write_file(const std::filesystem::path& path, std::string_view text);

// The name under which a file of this name is written until it is complete. `path`: behind its links.
[[nodiscard]] std::filesystem::path partial_of(const std::filesystem::path& path);
// The file behind symbolic links, which need not exist. Errors: links that go round in circles.
[[nodiscard]] Result<std::filesystem::path> behind_links(std::filesystem::path path);
// Whether the path (behind its links) names a descriptor of a process, whatever it is open for.
[[nodiscard]] bool names_descriptor(const std::filesystem::path& path);

// The names in the folder survive a power failure. Errors: what the system says.
Status sync_folder(const std::filesystem::path& folder);

}  // namespace verbatim::files
