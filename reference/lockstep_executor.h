// reference/lockstep_executor.h: two executors run every plan, and their results are compared bit by bit.
//
// Compared are each logit of every sequence that samples, sampled tokens and faults, and digests of heads that both
// hold. While operations are watched, all values that both executors wrote for the same positions are compared too, in
// the walk's order: a difference is reported at the operation that caused it. Where the primary computes ordinary
// requests in another arithmetic, only deterministic requests are compared. A NaN equals a NaN: payloads are not part
// of the numbers' ABI.
//
// With a RequestBook the secondary reads tokens, sampling parameters, seeds and arithmetic from the requests instead of
// the plan (reference/requested_plan.h). The plan is then compared with the requests too: a wrong field of a plan is a
// difference, and so is a reported token that was not sampled.
//   L1  results are the primary's: the engine cannot tell that a comparison runs
//   L2  first_difference() is set once and stays
//   L3  when the two sides accept different numbers of drafts of a window (a difference), the secondary's lengths no
//       longer fit the plans that follow, and it stops computing
//   L4  execute() fails on a plan that the requests or the rules of engine/slot_tables.h refuse
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
    int64_t position = -1;  // absolute position of the row; for a head its length
    int32_t layer = -1;     // -1: the embedding; number of layers: final norm, logits
    std::string op;        // "scan mixed", "logits", "token", "head ssm", "plan starts.sampling.seed", "reported token"
    int64_t element = -1;  // within the row or tensor
    double primary = 0;
    double secondary = 0;
    std::string detail;  // for a plan: the plan's value and the request's
    friend bool operator==(const Difference&, const Difference&) = default;
};
std::string to_string(const Difference& difference);

struct LockstepOptions {
    bool watch_operations = true;
    int64_t max_watched_bytes = 1 << 28;  // of one step's activations; of a larger step only the logits are compared
    bool stop_at_first = false;           // execute() returns the first difference as an error
};

struct LockstepCounts {
    int64_t compared_logits = 0;      // values
    int64_t compared_states = 0;      // heads whose digests both executors have
    int64_t compared_operations = 0;  // rows
    int64_t unwatched_steps = 0;      // larger than max_watched_bytes
    // Positions of deterministic sequences whose operations were compared, and those with compared logits alone.
    int64_t watched_positions = 0;
    int64_t unwatched_positions = 0;
    int64_t ordinary_positions = 0;  // in an arithmetic that the secondary does not have
    int64_t ordinary_logits = 0;     // logits sampled from at such positions
    int64_t uncompared_states = 0;   // heads that the secondary does not hold
    LockstepCounts& operator+=(const LockstepCounts& other);
    friend bool operator==(const LockstepCounts&, const LockstepCounts&) = default;
};

class LockstepExecutor final : public Executor {
public:
    // Borrows both; they have the same model and have run no step. REQUIRES: their comparison observers are free.
    LockstepExecutor(NumericExecutor& primary, NumericExecutor& secondary, LockstepOptions options = {});
    ~LockstepExecutor() override { take_requests_from(nullptr); }
    // Connects the book to the engine that makes the plans. Borrows the book and its token store. Null: both sides read
    // the plans. REQUIRES: null, or called before the first step.
    void take_requests_from(RequestBook* book);

    Status execute(const StepPlan& plan, StepResult& result) override;
    // The primary's digest; compared with the secondary's where the secondary holds the head.
    std::optional<Digest> head_digest(const HeadImage& image) override;
    // The primary's. Both get a head that was computed elsewhere.
    std::optional<std::vector<std::byte>> head_bytes(const HeadImage& image) override {
        return primary_.head_bytes(image);
    }
    [[nodiscard]] Status check_head(int64_t length, std::span<const std::byte> bytes,
                                    const Digest& digest) const override;
    Status write_head(const HeadImage& image, std::span<const std::byte> bytes) override;
    void take_freed(const FreedUnits& freed) override {
        primary_.take_freed(freed);
        secondary_.take_freed(freed);
    }
    [[nodiscard]] MemoryUse memory_use() const override { return primary_.memory_use(); }
    [[nodiscard]] std::string numerics_id() const override { return primary_.numerics_id(); }
    [[nodiscard]] std::string ordinary_numerics_id() const override { return primary_.ordinary_numerics_id(); }

    [[nodiscard]] const LockstepCounts& counts() const { return counts_; }
    // Requests whose logits were compared, and those in an arithmetic that the secondary does not have.
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
    // A slot's part of the step in progress; slots are compared in parallel.
    struct Watch {
        bool is_compared = true;
        std::vector<Written> written;
        size_t next = 0;  // index in `written` of the next operation
        int64_t num_rows = 0;
        std::optional<Difference> difference;
    };
    void watch(const StepPlan& plan);
    void keep(const Observation& observation);
    void compare(const Observation& observation);
    void compare_rows(Watch& watch, const Observation& observation, const Written& written);
    // A row that both executors sampled from, kNoToken: a fault instead of a token; or a scored one, without tokens.
    static constexpr TokenId kNoToken = -1;
    struct Draw {
        const ScheduledSequence& sequence;
        int32_t row = 0;
        TokenId token = kNoToken;
        TokenId other_token = kNoToken;
        int32_t fault_layer = -1;
        int32_t other_fault_layer = -1;
    };
    void compare_scored(const ScheduledSequence& sequence);
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
    bool one_arithmetic_ = true;              // the primary has one arithmetic for all requests
    bool lengths_differ_ = false;             // L3
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
