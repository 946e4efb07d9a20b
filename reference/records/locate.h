// reference/records/locate.h: from the place where two records part to the element, and whose fault it is.
//
// The computed run is made again up to there and looked at; beside it the uncached reference computes the same
// positions. So it is known which of the two left the reference, in which operation first, and whether what that
// operation read, KV and states among it, was as it should be.
//   L1  "recorded" is a value that was recorded: the reference's where its digest is the record's, or what the
//       record's digest says where one element alone differs from the computed run
#pragma once

#include "engine/base/result.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "reference/records/comparison.h"
#include "reference/records/format.h"
#include "reference/records/run_again.h"
#include "reference/records/run_index.h"
#include "reference/records/walk_points.h"

namespace verbatim::records {

struct LocateArgs {
    const Record& record;
    const RunIndex& recorded;
    const RunIndex& computed;
    const WalkPoints& points;
    const reference::Model& model;
    reference::Profile profile = reference::Profile::kExact;  // the reference's
    RunAgainOptions again;                                    // how the computed run was made
};

// Fills in what can be found out; what cannot stays unknown, and the difference's remark says why. Errors: the run
// cannot be made again.
[[nodiscard]] Status locate(const LocateArgs& args, RecordDifference& difference);

// Between two binary32 numbers, how many others lie; 0 for equal ones. Empty when one is no number.
[[nodiscard]] std::optional<int64_t> ulps_between(float a, float b);

}  // namespace verbatim::records
