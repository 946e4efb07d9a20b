#include "reference/records/locate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "engine/base/check.h"
#include "reference/records/asked_tokens.h"
#include "reference/records/lone_element.h"
#include "reference/records/row_watch.h"
#include "reference/records/step_digests.h"
#include "reference/reference_model.h"

namespace verbatim::records {
namespace {

using namespace reference;

// As digests have it: zeros of two signs are two values.
bool same(double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// The executor erred once.
constexpr const char* kNotRepeated =
    "the record agrees with the reference, and so does the repeated run: it is not the same every time";
constexpr const char* kNotThereAgain = "the run did not come there again: it is not the same every time";
constexpr const char* kRightAgain = "the run was right there when it was repeated: it is not the same every time";

class Search {
public:
    Search(const LocateArgs& args, RecordDifference& difference)
        : args_(args),
          found_(difference),
          reference_(args.model.config, args.model.weights, args.profile),
          recorded_request_(args.recorded.find(difference.request)),
          computed_request_(args.computed.find(difference.computed_request)),
          asked_(asked_tokens(args.computed.record(), difference.computed_request)) {}

    Status run() {
        if (recorded_request_ == nullptr || computed_request_ == nullptr) return {};
        if (!computed_request_->deterministic && !args_.recorded.record().run.policy.empty()) {
            found_.remark = "an ordinary request's: of its arithmetic there is no reference";
            return {};
        }
        if (!choose_target()) return {};
        ASSIGN_OR_RETURN(const RowWatch rows, watch(target_));
        const bool has_all = rows.num_tokens() == target_.end && target_.end <= std::ssize(asked_);
        if (!has_all || (target_.state_at && rows.committed().empty())) {
            found_.remark = kNotThereAgain;
            return {};
        }
        const ReferenceRows reference = reference_rows(reference_, args_.points, tokens(), target_.begin, {});
        if (const auto row = first_difference(rows.sums(), reference.sums)) return blame_computed(*row, reference);
        if (found_.kind == DifferenceKind::kState) {
            compare_committed(rows);
            return {};
        }
        if (original_ranged_ && record_is_reference(reference) == true) {
            found_.remark = kNotRepeated;
            return {};
        }
        if (found_.kind == DifferenceKind::kToken) return {};
        found_.remark = "what is computed here agrees with the reference; what was recorded does not";
        if (found_.kind == DifferenceKind::kOperation) find_in_recorded_sum();
        return {};
    }

private:
    [[nodiscard]] bool has_range() const {
        return found_.kind == DifferenceKind::kOperation || found_.kind == DifferenceKind::kLayer;
    }

    // Positions that the computed run computed, and the steps in which it did.
    bool choose_target() {
        target_.request = found_.computed_request;
        target_.ordinary = !computed_request_->deterministic;
        target_.begin = found_.begin;
        target_.end = found_.end;
        if (found_.kind == DifferenceKind::kState) {
            target_.end = found_.begin;
            target_.state_at = found_.begin;
        }
        if (!has_range()) target_.begin = std::max<int64_t>(0, target_.end - args_.most_positions);
        int64_t reached = 0;  // nothing yet
        for (const Share& share : computed_request_->shares) {
            const SequenceRecord& sequence = share.sequence();
            const bool too_early = has_range() && share.step->step < found_.computed_step;
            if (too_early || sequence.end <= target_.begin || sequence.begin >= target_.end) continue;
            if (reached == 0) target_.first_step = share.step->step;
            target_.last_step = share.step->step;
            reached = sequence.end;
            if (reached >= target_.end) break;
        }
        target_.end = std::min(target_.end, reached);
        target_.last_step = std::max(target_.last_step, found_.computed_step);  // rows may be computed twice
        return target_.begin < target_.end;
    }

    // What the reference computes: the request's tokens, whatever the run's plans said.
    [[nodiscard]] std::span<const TokenId> tokens() const {
        return std::span(asked_).first(static_cast<size_t>(target_.end));
    }

    Result<RowWatch> watch(const WatchTarget& target) {
        RowWatch rows(args_.points, target);
        RunAgainOptions again = args_.again;
        again.watch = &rows;
        again.digests = DigestLevel::kNone;
        again.max_steps = target.last_step + 4;  // nothing is watched behind; a run may be long
        RETURN_IF_ERROR(run_again(args_.record, again));
        return rows;
    }

    // In the order of steps; in a step by operation, then by position.
    [[nodiscard]] std::optional<RowPlace> first_difference(const RowSums& mine, const RowSums& right) const {
        for (const Share& share : computed_request_->shares) {
            if (share.step->step < target_.first_step || share.step->step > target_.last_step) continue;
            const int64_t begin = std::max(share.sequence().begin, target_.begin);
            const int64_t end = std::min(share.sequence().end, target_.end);
            for (size_t op = 0; op < args_.points.size(); ++op) {
                for (int64_t position = begin; position < end; ++position) {
                    const auto& a = mine.get(op, position);
                    const auto& b = right.get(op, position);
                    if (a && b && *a != *b) return RowPlace{op, position};
                }
            }
        }
        return std::nullopt;
    }

    // The executor left the reference in that row: which element, and was what it read right?
    Status blame_computed(const RowPlace& row, const ReferenceRows& sums) {
        WatchTarget target = target_;
        target.row = row;
        ASSIGN_OR_RETURN(const RowWatch rows, watch(target));
        name(row);
        found_.recorded.reset();
        found_.computed.reset();
        const auto at = static_cast<size_t>(row.position - target.begin);
        const std::vector<float> right =
            reference_rows(reference_, args_.points, tokens(), target.begin, row.op).rows[at];
        if (rows.row().size() != right.size()) {
            found_.remark = kNotThereAgain;
            return {};
        }
        const auto [mine, other] = std::ranges::mismatch(rows.row(), right, same);
        if (other == right.end()) {
            found_.remark = kRightAgain;
            return {};
        }
        found_.element = args_.points[row.op].columns.first + (other - right.begin());
        found_.computed = *mine;
        const std::optional<bool> is_right = record_is_reference(sums);
        if (is_right == true) {
            found_.recorded = *other;
            found_.ulps = ulps_between(*other, *mine);
        } else {
            const std::optional<bool> is_known = is_right ? is_right : recorded_state_is_reference();
            const char* recorded = !is_known   ? "no digest of it was recorded"
                                   : *is_known ? "the state that was recorded is the reference's"
                                               : "what was recorded agrees with neither";
            found_.remark = fmt::format("the reference has {:.9g}; {}", *other, recorded);
        }
        found_.inputs_equal = inputs_equal(row, rows);
        return {};
    }

    void name(const RowPlace& row) {
        const WalkPoint& point = args_.points[row.op];
        found_.kind = DifferenceKind::kOperation;
        found_.op = fmt::format("{} {}", walk_op_name(point.op), buffer_name(point.buffer));
        found_.op_index = static_cast<int64_t>(row.op);
        found_.layer = point.layer;
        found_.position = row.position;
        for (const Share& share : computed_request_->shares) {
            const bool holds = share.sequence().begin <= row.position && row.position < share.sequence().end;
            if (holds && share.step->step >= target_.first_step && share.step->step <= target_.last_step) {
                found_.computed_step = share.step->step;
            }
        }
        for (const Share& share : recorded_request_->shares) {
            const bool holds = share.sequence().begin <= row.position && row.position < share.sequence().end;
            const bool fits =
                original_ranged_ ? share.step->step >= original_step_ : share.step->step <= original_step_;
            if (!holds || !fits) continue;
            found_.step = share.step->step;
            if (original_ranged_) break;
        }
    }

    // Of the positions that the difference was seen at, what was recorded is what the reference gives. Empty: no
    // digest of them alone was recorded.
    [[nodiscard]] std::optional<bool> record_is_reference(const ReferenceRows& right) const {
        const size_t head = args_.points.first_of_head();
        bool any = false;
        for (const Share& share : recorded_request_->shares) {
            const SequenceRecord& sequence = share.sequence();
            const bool inside = sequence.begin >= target_.begin && sequence.end <= target_.end;
            if (!inside || (original_ranged_ && share.step->step < original_step_)) continue;
            const int64_t first_draw = sequence.end - static_cast<int64_t>(sequence.logits.size());
            for (size_t i = 0; i < sequence.logits.size(); ++i) {
                const auto place = static_cast<size_t>(first_draw + static_cast<int64_t>(i) - target_.begin);
                if (sequence.logits[i] != right.logits[place]) return false;
                any = true;
            }
            const auto sum_at = [&](size_t op) {
                ElementSum sum;
                for (int64_t p = op < head ? sequence.begin : first_draw; p < sequence.end; ++p) {
                    if (const auto& row = right.sums.get(op, p)) sum.add(*row);
                }
                return sum;
            };
            if (sequence.ops.size() == args_.points.size()) {
                for (size_t op = 0; op < sequence.ops.size(); ++op) {
                    const ElementSum sum = sum_at(op);
                    if (sequence.ops[op] != Digest{sum.high, sum.low}) return false;
                }
                any = true;
            }
            if (sequence.layer_tags.empty()) continue;
            uint64_t layers = 0;
            for (const size_t op : args_.points.layers()) layers += sum_at(op).low;
            if (layers != sequence.layers) return false;
            any = true;
        }
        return any ? std::optional(true) : std::nullopt;
    }

    // Nothing: the difference is in no state. The state's digest confirms no row.
    [[nodiscard]] std::optional<bool> recorded_state_is_reference() {
        if (!target_.state_at) return std::nullopt;
        ReferenceSequence sequence(reference_);
        sequence.append(tokens(), LogitRows::kNone);
        return sequence.digest() == recorded_request_->states.at(*target_.state_at).digest;
    }

    // Activations are: they are what earlier operations wrote. KV and states?
    [[nodiscard]] std::optional<bool> inputs_equal(const RowPlace& row, const RowWatch& rows) {
        const WalkPoint& point = args_.points[row.op];
        const bool reads_state =
            point.op == WalkOp::kConv || point.op == WalkOp::kScan || point.op == WalkOp::kDeltaUpdate;
        if (!reads_state && point.op != WalkOp::kAttention) return true;
        if (reads_state && rows.state_length() < 0) return std::nullopt;
        if (!reads_state && rows.kv().empty()) return std::nullopt;
        const int64_t length = reads_state ? rows.state_length() : row.position + 1;
        ReferenceSequence sequence(reference_);
        sequence.append(tokens().first(static_cast<size_t>(length)), LogitRows::kNone);
        const StateKind kind = point.op == WalkOp::kConv   ? StateKind::kConv
                               : point.op == WalkOp::kScan ? StateKind::kSsm
                                                           : StateKind::kDelta;
        for (const CarriedTensor& carried : reads_state ? rows.states() : rows.kv()) {
            if (reads_state && reference_.tensors()[carried.place].kind != kind) continue;
            const auto right = sequence.tensor(carried.place);
            if (carried.bytes.size() < right.size() || !std::equal(right.begin(), right.end(), carried.bytes.begin()))
                return false;
        }
        return true;
    }

    // Every operation is as the reference has it, and the committed state is not: which element?
    void compare_committed(const RowWatch& rows) {
        ReferenceSequence sequence(reference_);
        sequence.append(tokens(), LogitRows::kNone);
        const StateAt& recorded = recorded_request_->states.at(*target_.state_at);
        const bool record_is_right = sequence.digest() == recorded.digest;
        for (const CarriedTensor& carried : rows.committed()) {
            const StateTensor& tensor = reference_.tensors()[carried.place];
            const auto right = sequence.tensor(carried.place);
            for (int64_t i = 0; i < static_cast<int64_t>(right.size()) / element_bytes(tensor.dtype); ++i) {
                const double mine = element(tensor.dtype, carried.bytes, i);
                const double other = element(tensor.dtype, right, i);
                if (same(mine, other)) continue;
                found_.layer = tensor.layer;
                found_.op = fmt::format("state {}", tensor.kind.name);
                found_.element = i;
                found_.computed = mine;
                if (record_is_right) found_.recorded = other;
                found_.inputs_equal = true;
                return;
            }
        }
        found_.remark = record_is_right ? kNotRepeated
                                        : "the committed state agrees with the reference; what was recorded does not";
    }

    // The computed run agrees with the reference: the record does not. Where a single element is the difference, the
    // record's digest says which and what it was.
    void find_in_recorded_sum() {
        const auto op = static_cast<size_t>(found_.op_index);
        const Share* share = recorded_share();
        if (share == nullptr) return;
        const SequenceRecord& sequence = share->sequence();
        const int64_t first = op < args_.points.first_of_head()
                                  ? sequence.begin
                                  : sequence.end - static_cast<int64_t>(sequence.logits.size());
        const ReferenceRows right = reference_rows(reference_, args_.points, tokens(), target_.begin, op);
        ElementSum all;
        for (int64_t p = first; p < sequence.end; ++p) all.add(right.sums.get(op, p).value_or(ElementSum{}));
        for (int64_t position = first; position < sequence.end; ++position) {
            const auto& row = right.rows[static_cast<size_t>(position - target_.begin)];
            const auto lone = lone_element(row, args_.points.place(op, position), sequence.ops[op], all);
            if (!lone) continue;
            const float computed = row[static_cast<size_t>(lone->element)];
            found_.position = position;
            found_.element = args_.points[op].columns.first + lone->element;
            found_.recorded = lone->value;
            found_.computed = computed;
            found_.ulps = ulps_between(lone->value, computed);
            return;
        }
    }
    // That the difference was seen in; null: several together.
    [[nodiscard]] const Share* recorded_share() const {
        for (const Share& share : recorded_request_->shares) {
            if (share.step->step == found_.step && share.sequence().begin == target_.begin &&
                share.sequence().end == target_.end) {
                return &share;
            }
        }
        return nullptr;
    }

    const LocateArgs& args_;
    RecordDifference& found_;
    ReferenceModel reference_;
    const RequestIndex* recorded_request_;
    const RequestIndex* computed_request_;
    const std::vector<TokenId> asked_;  // of the computed request
    const bool original_ranged_ = has_range();
    const int64_t original_step_ = found_.step;
    WatchTarget target_;
};

}  // namespace

std::optional<int64_t> ulps_between(float a, float b) {
    if (std::isnan(a) || std::isnan(b)) return std::nullopt;
    const auto ordered = [](float value) {
        const auto bits = std::bit_cast<int32_t>(value);
        return bits < 0 ? int64_t{std::numeric_limits<int32_t>::min()} - bits : int64_t{bits};
    };
    return std::abs(ordered(a) - ordered(b));
}

Status locate(const LocateArgs& args, RecordDifference& difference) {
    if (difference.kind == DifferenceKind::kPrompt || difference.kind == DifferenceKind::kRequest) return {};
    return Search(args, difference).run();
}

}  // namespace verbatim::records
