// reference/records/comparison.h: two records of the same requests, made on any executors and under any schedules:
// are they the same, and if not, where do they part?
//
// Requests are matched by conversation. What is compared depends on positions, not on steps: tokens one by one, the
// logits drawn from, states at lengths that both committed, and the digests of layers or operations wherever both
// records' sums are over the same positions, or can be added up to be. Behind the first token that differs a request's
// inputs differ: nothing there is compared. A request without a token and a commit (its client left before) is counted
// apart: what both records computed of it is compared, and it may be missing in the second one, since how far it came
// depends on the schedule.
//   C1  identical() means that nothing differs and that everything promised was compared (verdict.h)
//   C2  the first difference is the one of the earliest recorded step; in a step the oldest sequence's; of a sequence
//       the earliest operation, then logits, then the token, then the state
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

// Where two runs part. What is unknown is -1, or empty.
struct RecordDifference {
    DifferenceKind kind = DifferenceKind::kToken;
    int64_t step = -1;  // of the first record
    int64_t computed_step = -1;
    RequestId request{-1};  // of the first record
    RequestId computed_request{-1};
    int64_t begin = -1;  // positions [begin, end), somewhere in which it is
    int64_t end = -1;
    int64_t position = -1;
    int32_t layer = -2;  // -1: the embedding; number of layers: final norm, logits; -2: it is not about a layer
    std::string op;      // "scan mixed", "layer residual", "logits", "token", "state", "prompt", "request"
    int64_t op_index = -1;
    int64_t element = -1;
    std::optional<double> recorded;
    std::optional<double> computed;
    std::optional<int64_t> ulps;
    std::optional<bool> inputs_equal;
    std::string remark;  // what else is known
};
[[nodiscard]] std::string to_string(const RecordDifference& difference);

struct Comparison {
    ComparedCounts compared;
    int64_t num_requests = 0;       // that both have
    int64_t num_different = 0;      // of them
    int64_t num_other_prompts = 0;  // whose prompts are not the same: nothing of them is compared
    int64_t num_missing = 0;        // that the second record lacks, though they were answered
    int64_t num_unanswered = 0;     // that had neither a token nor a commit: they may be missing
    int64_t num_ordinary = 0;       // that promise no bits: nothing of them is compared
    bool same_plans = false;        // the same schedule, step by step
    ComparedShare share;
    std::optional<RecordDifference> first;

    [[nodiscard]] Verdict verdict() const { return verdict_of(first.has_value(), share); }
    [[nodiscard]] bool identical() const { return verdict() == Verdict::kSame; }
};

struct CompareOptions {
    // A token that differs is not the difference that is looked for, nor what follows from it: only what was computed
    // of the same tokens counts, as long as there is any such difference.
    bool follow_tokens = false;
    // The second record goes to the first one's end: a request that is missing there is a difference, unless it was
    // unanswered.
    bool is_complete = true;
    // Other prompts are a difference. They need not be one behind the answers of ordinary requests.
    bool same_prompts = true;
    // Requests in ordinary arithmetic are compared, too: it has been the same one, in the same steps.
    bool ordinary = true;
    ComparedSides sides;
};

// REQUIRES: points are of the records' model.
[[nodiscard]] Comparison compare(const RunIndex& recorded, const RunIndex& computed, const WalkPoints& points,
                                 const CompareOptions& options = {});

// Why two records cannot be compared: other models, other arithmetic. One line for each; empty: they can.
[[nodiscard]] std::vector<std::string> what_differs(const RunDescription& recorded, const RunDescription& computed);

}  // namespace verbatim::records
