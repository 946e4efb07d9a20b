// tools/program/writable.h: whether a file can be written, asked before work that takes long.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "reference/model/regular_file.h"

namespace verbatim::tools {

// Whether reference::write_file could begin. Leaves no trace; no path is fine.
inline Status check_writable(const std::string& path) {
    if (path.empty()) return {};
    RETURN_IF_ERROR(reference::NewFile::create(path));
    return {};
}

}  // namespace verbatim::tools
