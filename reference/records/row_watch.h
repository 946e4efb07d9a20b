// reference/records/row_watch.h: the rows that an executor, and the uncached reference, wrote at some positions of one
// request: the sum of every row, and the values and inputs of one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/base/check.h"
#include "engine/executor.h"
#include "engine/step_plan.h"
#include "reference/numeric_executor.h"
#include "reference/numerics/element_sum.h"
#include "reference/records/run_again.h"
#include "reference/records/walk_points.h"
#include "reference/reference_model.h"

namespace verbatim::records {

// The sums of the last write at each of the positions [begin, end).
class RowSums {
public:
    RowSums() = default;
    RowSums(size_t num_ops, int64_t begin, int64_t end)
        : begin_(begin), num_rows_(static_cast<size_t>(end - begin)), rows_(num_ops * num_rows_) {}
    [[nodiscard]] bool covers(int64_t position) const {
        return position >= begin_ && position < begin_ + static_cast<int64_t>(num_rows_);
    }
    void set(size_t op, int64_t position, const reference::ElementSum& sum) { at(op, position) = sum; }
    // Empty: nothing was written there. REQUIRES: covers(position).
    [[nodiscard]] const std::optional<reference::ElementSum>& get(size_t op, int64_t position) const {
        CHECK(covers(position), "position {} of [{}, {})", position, begin_, begin_ + static_cast<int64_t>(num_rows_));
        return rows_[op * num_rows_ + static_cast<size_t>(position - begin_)];
    }

private:
    std::optional<reference::ElementSum>& at(size_t op, int64_t position) {
        return rows_[op * num_rows_ + static_cast<size_t>(position - begin_)];
    }
    int64_t begin_ = 0;
    size_t num_rows_ = 0;
    std::vector<std::optional<reference::ElementSum>> rows_;
};

// One row of one operation.
struct RowPlace {
    size_t op = 0;
    int64_t position = 0;
    friend bool operator==(const RowPlace&, const RowPlace&) = default;
};

// A state or KV tensor of a sequence, in logical order.
struct CarriedTensor {
    size_t place = 0;  // in the model's list
    std::vector<std::byte> bytes;
};

struct WatchTarget {
    RequestId request{-1};
    int64_t first_step = 0;
    int64_t last_step = 0;
    int64_t begin = 0;  // positions
    int64_t end = 0;
    bool ordinary = false;            // the request is ordinary; the draft path of a deterministic request is not
                                      // observed
    std::optional<RowPlace> row;      // the row whose values and inputs are kept
    std::optional<int64_t> state_at;  // length of the state whose tensors are kept, committed after the last step
};

class RowWatch final : public StepWatch {
public:
    // Borrows the points.
    RowWatch(const WalkPoints& points, const WatchTarget& target);

    void before(const StepPlan& plan, reference::NumericExecutor& executor) override;
    void observe(const reference::Observation& observation) override;
    void after(const StepPlan& plan, reference::NumericExecutor& executor) override;
    void head(const HeadImage& image, reference::NumericExecutor& executor) override;
    [[nodiscard]] bool is_done() const override { return done_; }
    [[nodiscard]] bool wants_operations(const StepPlan& plan) const override;

    [[nodiscard]] const RowSums& sums() const { return sums_; }
    [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }  // computed at that time, up to the target's end
    [[nodiscard]] const std::vector<float>& row() const { return row_; }
    // The tensors of the row's layer: states before the step (after `length` tokens), KV after it.
    [[nodiscard]] const std::vector<CarriedTensor>& states() const { return states_; }
    [[nodiscard]] int64_t state_length() const { return state_length_; }
    [[nodiscard]] const std::vector<CarriedTensor>& kv() const { return kv_; }
    // All tensors of the committed state.
    [[nodiscard]] const std::vector<CarriedTensor>& committed() const { return committed_; }

private:
    [[nodiscard]] const ScheduledSequence* target_in(const StepPlan& plan) const;
    void read(const HeadImage& image, reference::NumericExecutor& executor, reference::StatePer per,
              std::optional<int32_t> layer, std::vector<CarriedTensor>& into) const;

    const WalkPoints& points_;
    WatchTarget target_;
    std::map<SequenceSlot, RequestId> request_of_;
    int64_t step_ = -1;            // in progress, or the last one
    SequenceSlot slot_ = kNoSlot;  // of the target, in that step
    size_t next_op_ = 0;
    RowSums sums_;
    int64_t num_tokens_ = 0;
    std::vector<float> row_;
    std::vector<CarriedTensor> states_;
    std::vector<CarriedTensor> kv_;
    std::vector<CarriedTensor> committed_;
    int64_t state_length_ = -1;  // -1: the row's state was not read
    bool done_ = false;
};

// The reference's rows at [begin, end) of a sequence of these tokens, and the values of one operation.
struct ReferenceRows {
    RowSums sums;
    std::vector<std::vector<float>> rows;  // by position from `begin`: of the selected operation
    std::vector<uint64_t> logits;          // by position from `begin`: as SequenceRecord::logits
};
[[nodiscard]] ReferenceRows reference_rows(reference::ReferenceModel& model, const WalkPoints& points,
                                           std::span<const TokenId> tokens, int64_t begin,
                                           std::optional<size_t> wanted_op);

}  // namespace verbatim::records
