// files/repository_path.h: where this program's source repository is.
#pragma once

#include <string>
#include <string_view>

namespace verbatim {

// A file of the source repository of this program: "traces/data/scenario.csv" from any working directory.
std::string repository_path(std::string_view path);

}  // namespace verbatim
