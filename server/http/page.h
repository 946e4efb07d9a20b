// server/http/page.h: owns the page that / shows: one document of the files in server/page/. No sockets.
#pragma once

#include <string>

#include "engine/base/result.h"

namespace verbatim::server {

// index.html of the folder, with each `<link rel="stylesheet" href="FILE">` and `<script src="FILE"></script>` that is
// a line of it replaced by what the file holds. Errors: a file that cannot be read.
[[nodiscard]] Result<std::string> read_page(const std::string& folder);

}  // namespace verbatim::server
