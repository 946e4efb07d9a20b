// files/appended_file.h: adds lines to a file.
#pragma once

#include <filesystem>
#include <string_view>

#include "engine/base/result.h"

namespace verbatim::files {

// Makes the file if it is not there, and waits until the text is on the disk. Errors (kMachine): the system's; a
// beginning of `text` may be in the file then.
Status append_to_file(const std::filesystem::path& path, std::string_view text);

}  // namespace verbatim::files
