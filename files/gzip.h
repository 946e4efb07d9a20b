// files/gzip.h: text in the gzip format (RFC 1952).
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace verbatim::files {

// One member. A file of several members, one after another, is the file of all their text. Error: 4 GiB and more.
Result<std::string> gzipped(std::string_view text);

}  // namespace verbatim::files
