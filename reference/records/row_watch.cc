#include "reference/records/row_watch.h"

#include <algorithm>

#include "engine/base/check.h"
#include "reference/records/step_digests.h"

namespace verbatim::records {
namespace {

using namespace reference;

constexpr int64_t kPieceTokens = 256;

std::vector<BlockRun> runs_of(const std::vector<BlockId>& blocks) {
    std::vector<BlockRun> runs;
    for (const BlockId block : blocks) runs.push_back({block, 1});
    return runs;
}

}  // namespace

RowWatch::RowWatch(const WalkPoints& points, const WatchTarget& target)
    : points_(points), target_(target), sums_(points.size(), target.begin, target.end) {}

const ScheduledSequence* RowWatch::target_in(const StepPlan& plan) const {
    for (const ScheduledSequence& sequence : plan.sequences) {
        const auto started = std::ranges::find(plan.new_sequences, sequence.slot, &SequenceStart::slot);
        const auto known = request_of_.find(sequence.slot);
        const RequestId request = started != plan.new_sequences.end() ? started->request
                                  : known != request_of_.end()        ? known->second
                                                                      : RequestId{-1};
        if ((sequence.arithmetic == Arithmetic::kOrdinary) != target_.ordinary) continue;
        const bool reaches = sequence.end() > target_.begin && sequence.num_computed_tokens < target_.end;
        if (request == target_.request && reaches && sequence.num_new_tokens > 0) return &sequence;
    }
    return nullptr;
}

bool RowWatch::wants_operations(const StepPlan& plan) const {
    return plan.step >= target_.first_step && plan.step <= target_.last_step && target_in(plan) != nullptr;
}

void RowWatch::before(const StepPlan& plan, NumericExecutor& executor) {
    for (const SequenceStart& start : plan.new_sequences) request_of_[start.slot] = start.request;
    step_ = plan.step;
    slot_ = kNoSlot;
    if (!wants_operations(plan)) return;
    const ScheduledSequence& sequence = *target_in(plan);
    slot_ = sequence.slot;
    const bool has_row =
        target_.row && target_.row->position >= sequence.num_computed_tokens && target_.row->position < sequence.end();
    if (!has_row) return;
    CHECK_LT(target_.row->op, points_.size());
    states_.clear();
    kv_.clear();
    state_length_ = -1;
    if (sequence.num_state_tokens == 0) {
        state_length_ = 0;  // the zero state
    } else if (sequence.state_src != kNoState || executor.tables().is_live(slot_)) {
        const HeadImage image{.writer = executor.tables().is_live(slot_) ? slot_ : kNoSlot,
                              .length = executor.tables().config().check_memory ? 0 : sequence.num_state_tokens,
                              .blocks = {},
                              .state = sequence.state_src};
        read(image, executor, StatePer::kSequence, points_[target_.row->op].layer, states_);
        if (!states_.empty()) state_length_ = sequence.num_state_tokens;
    }
}

void RowWatch::observe(const Observation& observation) {
    if (observation.slot != slot_) return;
    if (observation.point.op == WalkOp::kEmbed) next_op_ = 0;
    const size_t op = next_op_++;
    CHECK(op < points_.size() && points_[op] == observation.point, "a walk goes to {}", to_string(observation.point));
    CHECK_GE(observation.first_position, 0);
    const auto width = static_cast<size_t>(observation.rows.width);
    for (int64_t r = 0; r < observation.rows.num_rows; ++r) {
        const int64_t position = observation.first_position + r;
        if (!sums_.covers(position)) continue;
        const std::span<const float> row(observation.rows.row(r), width);
        sums_.set(op, position, sum_of_row(row, points_.place(op, position)));
        if (target_.row == RowPlace{op, position}) row_.assign(row.begin(), row.end());
    }
}

void RowWatch::after(const StepPlan& plan, NumericExecutor& executor) {
    if (slot_ != kNoSlot) {
        const SlotTable& table = executor.tables().at(slot_);
        num_tokens_ = std::min(table.length, target_.end);
        if (target_.row && table.length > target_.row->position && kv_.empty()) {
            const std::vector<BlockRun> blocks = runs_of(table.blocks);
            const bool readable = table.source != kNoState || !executor.tensors().has_any(StatePer::kSequence) ||
                                  !executor.tables().config().check_memory;
            if (readable) {
                read({.writer = slot_, .length = table.length, .blocks = blocks, .state = table.source}, executor,
                     StatePer::kToken, points_[target_.row->op].layer, kv_);
            }
        }
    }
    done_ = done_ || (plan.step >= target_.last_step && !target_.state_at) || plan.step > target_.last_step + 2;
}

void RowWatch::head(const HeadImage& image, NumericExecutor& executor) {
    if (target_.state_at != image.length || image.writer == kNoSlot || !committed_.empty()) return;
    if (step_ < target_.last_step) return;  // a state that is computed again
    if (!executor.tables().is_live(image.writer)) return;
    const SlotTable& table = executor.tables().at(image.writer);
    if (table.request != target_.request) return;
    read(image, executor, StatePer::kSequence, {}, committed_);
    read(image, executor, StatePer::kToken, {}, committed_);
    num_tokens_ = image.length;
    done_ = true;
}

void RowWatch::read(const HeadImage& image, NumericExecutor& executor, StatePer per, std::optional<int32_t> layer,
                    std::vector<CarriedTensor>& into) const {
    executor.read_head(image, [&](const HeadPiece& piece) {
        if (piece.tensor.per != per || (layer && piece.tensor.layer != *layer)) return;
        const size_t place = executor.tensors().place(piece.tensor.layer, piece.tensor.kind);
        if (into.empty() || into.back().place != place) into.push_back({place, {}});
        into.back().bytes.insert(into.back().bytes.end(), piece.bytes.begin(), piece.bytes.end());
    });
}

ReferenceRows reference_rows(ReferenceModel& model, const WalkPoints& points, std::span<const TokenId> tokens,
                             int64_t begin, std::optional<size_t> wanted_op) {
    const auto end = static_cast<int64_t>(tokens.size());
    const auto num_rows = static_cast<size_t>(end - begin);
    ReferenceRows found{RowSums(points.size(), begin, end), std::vector<std::vector<float>>(num_rows),
                        std::vector<uint64_t>(num_rows)};
    ReferenceSequence sequence(model);
    const auto append = [&](int64_t until, bool observed) {
        while (sequence.length() < until) {
            const int64_t first = sequence.length();
            const int64_t count = std::min(kPieceTokens, until - first);
            size_t next = 0;
            const auto look = [&](const WalkPoint& point, ConstFloatRows rows) {
                const size_t op = next++;
                for (int64_t r = 0; r < rows.num_rows; ++r) {
                    const int64_t position = first + count - rows.num_rows + r;
                    const std::span<const float> row(rows.row(r), static_cast<size_t>(rows.width));
                    found.sums.set(op, position, sum_of_row(row, points.place(op, position)));
                    const auto at = static_cast<size_t>(position - begin);
                    if (wanted_op == op) found.rows[at].assign(row.begin(), row.end());
                    if (point.op == WalkOp::kLogits) found.logits[at] = logits_sum(row, position);
                }
            };
            const auto piece = tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
            if (observed) {
                sequence.append(piece, LogitRows::kAll, look);
            } else {
                sequence.append(piece, LogitRows::kNone);
            }
        }
    };
    append(begin, false);
    append(end, true);
    return found;
}

}  // namespace verbatim::records
