// kernels/sandbox/source_files.h: owns which files a kernel's source is made of: the file, and the headers that it
// includes from its folder or from those of `-I` among the user's flags. The project's headers are not among them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace verbatim::sandbox {

// "-I folder" and "-Ifolder" of the user's flags, as absolute paths.
std::vector<std::filesystem::path> include_folders(const std::vector<std::string>& flags);

// Texts by absolute paths. A header that cannot be read is not there; `file` always is.
using SourceFiles = std::map<std::filesystem::path, std::string>;
SourceFiles source_files_of(const std::filesystem::path& file, const std::vector<std::string>& flags);

}  // namespace verbatim::sandbox
