// reference/lockstep_executor.h: two executors side by side on every plan, compared bit by bit.
//
// Compared are, of every sequence that draws, each logit; drawn tokens and faults; digests of heads that both hold.
// While operations are watched, so is all that both wrote for the same positions, in the walk's order: a difference
// is named where it arises. Where the primary computes ordinary requests in an arithmetic of their own, only
// deterministic ones are compared. A NaN equals a NaN: payloads are not part of the numbers' ABI.
//
// With a RequestBook the secondary reads tokens, sampling parameters, seeds and arithmetic from the requests instead of
// the plan (reference/requested_plan.h), and the plan is compared with them too: a plan that starts wrong is a
// difference. So is a token that the engine reports and that was not drawn.
//   L1  results are the primary's: the engine cannot tell that somebody looks on
//   L2  first_difference() is set once and stays
//   L3  when one side accepts more drafts of a window than the other, which is a difference, the secondary has other
//       lengths than the plans that follow: it computes no more
//   L4  a plan that the requests or the rules of engine/slot_tables.h refuse is not carried out: execute() fails
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/request_book.h"
#include "reference/numeric_executor.h"
#include "reference/requested_plan.h"

namespace verbatim::reference {

// Plain data; what is unknown is -1 or empty.
struct Difference {
    int64_t step = -1;
    RequestId request{-1};
    int64_t position = -1;  // absolute, of the row; of a head: its length
    int32_t layer = -1;     // -1: the embedding; number of layers: final norm, logits
    std::string op;        // "scan mixed", "logits", "token", "head ssm", "plan starts.sampling.seed", "reported token"
    int64_t element = -1;  // within the row or tensor
    double primary = 0;
    double secondary = 0;
    std::string detail;  // of a plan: what it has, and what the request has
    friend bool operator==(const Difference&, const Difference&) = default;
};
std::string to_string(const Difference& difference);

struct LockstepOptions {
    bool watch_operations = true;
    int64_t max_watched_bytes = 1 << 28;  // of one step's activations; a larger step is compared by its logits alone
    bool stop_at_first = false;           // execute() answers the first difference with an error
};

struct LockstepCounts {
    int64_t compared_logits = 0;      // values
    int64_t compared_states = 0;      // heads whose digests both had
    int64_t compared_operations = 0;  // rows
    int64_t unwatched_steps = 0;      // larger than max_watched_bytes
    // Of deterministic sequences: positions whose operations were compared, and those that only their logits speak for.
    int64_t watched_positions = 0;
    int64_t unwatched_positions = 0;
    int64_t ordinary_positions = 0;  // in an arithmetic that the secondary does not have
    int64_t ordinary_logits = 0;     // values drawn from, likewise
    int64_t uncompared_states = 0;   // heads that the secondary does not hold
    LockstepCounts& operator+=(const LockstepCounts& other);
    friend bool operator==(const LockstepCounts&, const LockstepCounts&) = default;
};

class LockstepExecutor final : public Executor {
public:
    // Both are borrowed, are of one model and fresh. REQUIRES: their observers are not used by anybody else.
    LockstepExecutor(NumericExecutor& primary, NumericExecutor& secondary, LockstepOptions options = {});
    ~LockstepExecutor() override { take_requests_from(nullptr); }
    // The book hears the engine that gives the plans. It is borrowed, and so is the store of its tokens. Null: both
    // sides read the plans. REQUIRES: before the first step, or null.
    void take_requests_from(RequestBook* book);

    Status execute(const StepPlan& plan, StepResult& result) override;
    // The primary's; the secondary's is compared with it where there is one.
    std::optional<Digest> head_digest(const HeadImage& image) override;
    [[nodiscard]] std::string numerics_id() const override { return primary_.numerics_id(); }
    [[nodiscard]] std::string ordinary_numerics_id() const override { return primary_.ordinary_numerics_id(); }

    [[nodiscard]] const LockstepCounts& counts() const { return counts_; }
    // Requests whose logits were compared; those that computed in an arithmetic that the secondary does not have.
    [[nodiscard]] const std::set<RequestId>& compared_requests() const { return compared_requests_; }
    [[nodiscard]] const std::set<RequestId>& ordinary_requests() const { return ordinary_requests_; }
    [[nodiscard]] const std::optional<Difference>& first_difference() const { return first_difference_; }
    [[nodiscard]] bool identical() const { return !first_difference_; }

private:
    // One operation of the primary's walk over a sequence's new positions.
    struct Written {
        WalkPoint point;
        int64_t first_position = 0;
        int64_t num_rows = 0;
        std::vector<float> values;  // [num_rows, width]
    };
    // A slot's share in the step in progress; slots are compared side by side.
    struct Watch {
        bool is_compared = true;
        std::vector<Written> written;
        size_t next = 0;  // in `written`: the operation that comes next
        int64_t num_rows = 0;
        std::optional<Difference> difference;
    };
    void watch(const StepPlan& plan);
    void keep(const Observation& observation);
    void compare(const Observation& observation);
    void compare_rows(Watch& watch, const Observation& observation, const Written& written);
    // A row that both drew from; kNoToken: there is a fault instead.
    static constexpr TokenId kNoToken = -1;
    struct Draw {
        const ScheduledSequence& sequence;
        int32_t row = 0;
        TokenId token = kNoToken;
        TokenId other_token = kNoToken;
        int32_t fault_layer = -1;
        int32_t other_fault_layer = -1;
    };
    [[nodiscard]] bool compare_draw(const Draw& draw);
    void compare_draws(const StepPlan& plan, const StepResult& mine, const StepResult& other);
    void compare_heads(const HeadImage& image);
    void report_missing_head(const HeadImage& image);
    void report(Difference difference);
    void count(const StepPlan& plan);
    [[nodiscard]] Status take_requested(const StepPlan& plan);
    [[nodiscard]] bool fits(const StepPlan& plan) const;
    [[nodiscard]] bool compares(const ScheduledSequence& sequence) const {
        return one_arithmetic_ || sequence.arithmetic == Arithmetic::kDeterministic;
    }

    NumericExecutor& primary_;
    NumericExecutor& secondary_;
    LockstepOptions options_;
    RequestBook* book_ = nullptr;
    std::optional<RequestedPlan> requested_;  // with a book
    bool one_arithmetic_ = true;              // of the primary
    bool parted_ = false;                     // L3
    LockstepCounts counts_;
    std::set<RequestId> compared_requests_;
    std::set<RequestId> ordinary_requests_;
    bool is_watched_ = false;  // the step in progress
    std::optional<Difference> first_difference_;
    std::vector<Watch> watches_;  // by slot
    StepResult secondary_result_;
    int64_t step_ = -1;
    int64_t row_bytes_ = 0;  // of one position's activations, all operations
};

}  // namespace verbatim::reference
