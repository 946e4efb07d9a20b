// reference/records/locate.h: finds the element where two records first differ, and which side is wrong.
//
// The computed run is repeated up to that place and observed; the uncached reference computes the same positions. This
// shows which side left the reference, in which operation first, and whether that operation's inputs (KV and states
// among them) were right.
//   L1  "recorded" is a recorded value: the reference's where its digest equals the record's, or the value that the
//       record's digest implies where a single element differs from the computed run
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
    RunAgainOptions again;                                    // options that made the computed run
    int64_t most_positions = 4096;                            // looked at where no digest says which
};

// Fills in all fields that can be found; the rest stay unknown, and the difference's remark says why. Errors: the run
// cannot be repeated.
[[nodiscard]] Status locate(const LocateArgs& args, RecordDifference& difference);

// The number of binary32 values between a and b, 0 for equal ones. Empty when one is NaN.
[[nodiscard]] std::optional<int64_t> ulps_between(float a, float b);

}  // namespace verbatim::records
