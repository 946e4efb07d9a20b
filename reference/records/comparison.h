// reference/records/comparison.h: compares two records of the same requests, made on any executors and under any
// schedules, and finds the first difference.
//
// Requests are matched by conversation. Positions, not steps, are compared: tokens one by one, the logits they were
// sampled from, states at lengths that both committed, and the digests of layers or operations wherever both records'
// sums cover the same positions, or add up to that. After the first different token a request's inputs differ, and
// nothing more of it is compared. A request with neither a token nor a commit (its client left) is counted separately:
// what both records computed of it is compared, and the second record may lack it, since its progress depends on the
// schedule.
//   C1  identical() means that nothing differs and that everything with a promise was compared (verdict.h)
//   C2  the first difference is that of the earliest recorded step; in a step the oldest sequence's; in a sequence the
//       earliest operation, then logits, then the token, then the state
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "reference/records/format.h"
#include "reference/records/request_share.h"
#include "reference/records/run_index.h"
#include "reference/records/verdict.h"
#include "reference/records/walk_points.h"

namespace verbatim::records {

enum class DifferenceKind : uint8_t { kOperation, kLayer, kLogits, kToken, kState, kPrompt, kRequest };

// The first difference of two runs. Unknown values are -1, or empty.
struct RecordDifference {
    DifferenceKind kind = DifferenceKind::kToken;
    int64_t step = -1;  // of the first record
    int64_t computed_step = -1;
    RequestId request{-1};  // of the first record
    RequestId computed_request{-1};
    int64_t begin = -1;  // positions [begin, end) that contain the difference
    int64_t end = -1;
    int64_t position = -1;
    int32_t layer = -2;  // -1: the embedding; number of layers: final norm, logits; -2: no layer applies
    std::string op;      // "scan mixed", "layer residual", "logits", "token", "state", "prompt", "request"
    int64_t op_index = -1;
    int64_t element = -1;
    std::optional<double> recorded;
    std::optional<double> computed;
    std::optional<int64_t> ulps;
    std::optional<bool> inputs_equal;
    std::string remark;  // further facts
};
[[nodiscard]] std::string to_string(const RecordDifference& difference);

struct Comparison {
    ComparedCounts compared;
    int64_t num_requests = 0;       // in both records
    int64_t num_different = 0;      // of num_requests
    int64_t num_other_prompts = 0;  // with different prompts: nothing of them is compared
    int64_t num_missing = 0;        // absent from the second record, though they were answered
    int64_t num_unanswered = 0;     // with neither a token nor a commit: the second record may lack them
    int64_t num_ordinary = 0;       // without a promise of bits: nothing of them is compared
    bool same_plans = false;        // equal schedules, step by step
    ComparedShare share;
    std::optional<RecordDifference> first;

    [[nodiscard]] Verdict verdict() const { return verdict_of(first.has_value(), share); }
    [[nodiscard]] bool identical() const { return verdict() == Verdict::kSame; }
};

struct CompareOptions {
    // Ignore a different token, and its consequences, while there is a difference in what was computed from equal
    // tokens.
    bool follow_tokens = false;
    // The second record covers all of the first: a request that it lacks is a difference, unless the request was
    // unanswered.
    bool is_complete = true;
    // Different prompts are a difference. They are expected after the answers of ordinary requests.
    bool same_prompts = true;
    // Compare requests in ordinary arithmetic too: both runs used the same one, in the same steps.
    bool ordinary = true;
    ComparedSides sides;
};

// REQUIRES: points belong to the records' model.
[[nodiscard]] Comparison compare(const RunIndex& recorded, const RunIndex& computed, const WalkPoints& points,
                                 const CompareOptions& options = {});

// Why two records cannot be compared: different models or arithmetics. One line each; empty: they can.
[[nodiscard]] std::vector<std::string> what_differs(const RunDescription& recorded, const RunDescription& computed);

}  // namespace verbatim::records
