// reference/records/asked_tokens.h: owns the tokens of a recorded request, from its record's calls and reported tokens
// alone.
#pragma once

#include <vector>

#include "engine/base/ids.h"
#include "reference/records/format.h"

namespace verbatim::records {

// The whole prompt and every reported token of the output; plans are not read. Empty: no such request. The store is
// `record`'s.
[[nodiscard]] std::vector<TokenId> asked_tokens(const Record& record, RequestId request);

}  // namespace verbatim::records
