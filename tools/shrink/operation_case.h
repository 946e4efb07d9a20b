// tools/shrink/operation_case.h: owns how one operation of a run becomes a case of its own (tools/kernel/value_case.h):
// its inputs as the uncached reference has them, a few rows around the one that differs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "reference/records/walk_points.h"
#include "tools/kernel/value_case.h"

namespace verbatim::tools {

// The operation at a position of a sequence, and the rows that were computed with it.
struct OperationPlace {
    size_t op = 0;      // of the walk
    int64_t begin = 0;  // the sequence's rows in that step: [begin, end)
    int64_t end = 0;
    int64_t position = 0;  // in it
    int64_t element = 0;   // of the row
};

// `tokens`: the sequence's, at least up to `end`. `profile`: of the run. A matrix that is too large for a small file is
// cut to 64 of its outputs around the element. Errors: an operation that `verbatim kernel list` has not.
Result<ValueCase> operation_case(const reference::Model& model, reference::Profile profile,
                                 const records::WalkPoints& points, const OperationPlace& place,
                                 std::span<const TokenId> tokens, std::string met);

}  // namespace verbatim::tools
