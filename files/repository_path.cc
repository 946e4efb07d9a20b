#include "files/repository_path.h"

#include <fmt/format.h>

namespace verbatim {

std::string repository_path(std::string_view path) { return fmt::format("{}/{}", VERBATIM_SOURCE_DIR, path); }

}  // namespace verbatim
