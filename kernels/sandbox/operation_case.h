// kernels/sandbox/operation_case.h: owns making a case (kernels/sandbox/value_case.h) of one operation of a run: its
// inputs from the uncached reference, a few rows around the one that differs.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "kernels/sandbox/value_case.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "reference/records/walk_points.h"

namespace verbatim::sandbox {

// The operation at a position of a sequence, and the rows computed with it.
struct OperationPlace {
    size_t op = 0;      // of the walk
    int64_t begin = 0;  // the sequence's rows in that step: [begin, end)
    int64_t end = 0;
    int64_t position = 0;  // in it
    int64_t element = 0;   // of the row
};

// `tokens`: the sequence's, at least up to `end`. `profile`: the run's. A matrix that is too large for a small file is
// cut to 64 of its outputs around the element. Errors: an operation that `verbatim kernel list` does not have.
Result<ValueCase> operation_case(const reference::Model& model, reference::Profile profile,
                                 const records::WalkPoints& points, const OperationPlace& place,
                                 std::span<const TokenId> tokens, std::string met);

}  // namespace verbatim::sandbox
