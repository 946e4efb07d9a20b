#include "reference/records/locate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "engine/base/check.h"
#include "reference/records/asked_tokens.h"
#include "reference/records/row_watch.h"
#include "reference/records/step_digests.h"
#include "reference/reference_model.h"

namespace verbatim::records {
namespace {

using namespace reference;

constexpr int64_t kMostPositions = 4096;  // looked at where no digest says which

// As digests have it: zeros of two signs are two values.
bool same(double a, double b) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

// --- one element that a sum gives away

constexpr uint64_t kStepOne = 0xFF51'AFD7'ED55'8CCDU;
constexpr uint64_t kStepTwo = 0xC4CE'B9FE'1A85'EC53U;

constexpr uint64_t inverse(uint64_t odd) {
    uint64_t x = odd;  // right in the lowest 3 bits; each round doubles them
    for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
    return x;
}

uint64_t unshift(uint64_t mixed) { return mixed ^ mixed >> 33; }

// The bits of element `index` whose number in ElementSum::low this is; empty: of no bits.
std::optional<uint32_t> bits_of_number(int64_t index, uint64_t number) {
    const auto place = static_cast<uint64_t>(index);
    uint64_t mixed = unshift(number);
    mixed = unshift(mixed * inverse(kStepTwo));
    mixed = unshift(mixed * inverse(kStepOne));
    mixed -= (1 + (place >> 32)) * 0x9E37'79B9'7F4A'7C15U;
    if (mixed >> 32 != (place & 0xFFFF'FFFF)) return std::nullopt;
    return static_cast<uint32_t>(mixed);
}

ElementSum sum_of(int64_t index, float value) { return sum_of_row({&value, 1}, index); }

struct LoneElement {
    int64_t element = 0;
    float recorded = 0;
};
// The one element of a row that turns the sum of all rows into the wanted one, if one alone does.
std::optional<LoneElement> lone_element(std::span<const float> row, int64_t place, const Digest& wanted,
                                        const ElementSum& all) {
    for (size_t i = 0; i < row.size(); ++i) {
        const int64_t index = place + static_cast<int64_t>(i);
        const ElementSum mine = sum_of(index, row[i]);
        const auto bits = bits_of_number(index, wanted.low - all.low + mine.low);
        if (!bits) continue;
        const float value = std::bit_cast<float>(*bits);
        const ElementSum other = sum_of(index, value);
        if (other.low - mine.low + all.low != wanted.low || other.high - mine.high + all.high != wanted.high) continue;
        return LoneElement{static_cast<int64_t>(i), value};
    }
    return std::nullopt;
}

// --- the search

// The executor erred once.
constexpr const char* kNotRepeated =
    "the record agrees with the reference, and so does the repeated run: it is not the same every time";

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
        if (rows.num_tokens() <= target_.begin || rows.num_tokens() > std::ssize(asked_)) {
            found_.remark = "the run did not come there again: it is not the same every time";
            return {};
        }
        const ReferenceRows reference = reference_rows(reference_, args_.points, tokens_of(rows), target_.begin, {});
        if (const auto row = first_difference(rows.sums(), reference.sums)) return blame_computed(*row, reference);
        if (found_.kind == DifferenceKind::kState) return compare_committed();
        if (original_ranged_ && record_is_reference(reference) == true) {
            found_.remark = kNotRepeated;
            return {};
        }
        if (found_.kind == DifferenceKind::kOperation) return blame_recorded();
        if (found_.kind != DifferenceKind::kToken)
            found_.remark = "what is computed here agrees with the reference; what was recorded does not";
        return {};
    }

private:
    [[nodiscard]] bool has_range() const {
        return found_.kind == DifferenceKind::kOperation || found_.kind == DifferenceKind::kLayer;
    }

    // Positions and steps of the computed run in which it must be.
    bool choose_target() {
        target_.request = found_.computed_request;
        target_.ordinary = !computed_request_->deterministic;
        target_.begin = found_.begin;
        target_.end = found_.end;
        if (found_.kind == DifferenceKind::kState) {
            target_.end = found_.begin;
            target_.state_at = found_.begin;
        }
        if (!has_range()) target_.begin = std::max<int64_t>(0, target_.end - kMostPositions);
        target_.first_step = -1;
        for (const Share& share : computed_request_->shares) {
            const SequenceRecord& sequence = share.sequence();
            const bool too_early = has_range() && share.step->step < found_.computed_step;
            if (too_early || sequence.end <= target_.begin || sequence.begin >= target_.end) continue;
            if (target_.first_step < 0) target_.first_step = share.step->step;
            target_.last_step = share.step->step;
            if (sequence.end >= target_.end) break;
        }
        return target_.first_step >= 0 && target_.begin < target_.end;
    }

    // What the reference computes: the request's own tokens, whatever the run's plans said.
    [[nodiscard]] std::span<const TokenId> tokens_of(const RowWatch& rows) const {
        return std::span(asked_).first(static_cast<size_t>(std::min(rows.num_tokens(), std::ssize(asked_))));
    }

    Result<RowWatch> watch(const WatchTarget& target) {
        RowWatch rows(args_.points, target);
        RunAgainOptions again = args_.again;
        again.watch = &rows;
        again.digests = DigestLevel::kNone;
        // Heads are not asked for behind the last step that is watched.
        again.max_steps = target.last_step + 4;
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
        target.state_at.reset();
        ASSIGN_OR_RETURN(const RowWatch rows, watch(target));
        const auto tokens = tokens_of(rows);
        name(row);
        std::vector<float> right;
        if (!tokens.empty()) {
            right = reference_rows(reference_, args_.points, tokens, target.begin, row.op)
                        .rows[static_cast<size_t>(row.position - target.begin)];
        }
        if (rows.row().size() != right.size() || rows.row().empty()) {
            found_.remark = "the run did not come there again: it is not the same every time";
            return {};
        }
        for (size_t i = 0; i < right.size(); ++i) {
            if (same(rows.row()[i], right[i])) continue;
            found_.element = args_.points[row.op].columns.first + static_cast<int64_t>(i);
            found_.computed = rows.row()[i];
            found_.recorded.reset();
            found_.ulps.reset();
            const std::optional<bool> is_right = record_is_reference(sums);
            if (is_right == true) {
                found_.recorded = right[i];
                found_.ulps = ulps_between(right[i], rows.row()[i]);
            } else {
                found_.remark =
                    fmt::format("the reference has {:.9g}; {}", right[i],
                                is_right ? "what was recorded agrees with neither" : "no digest of it was recorded");
            }
            break;
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
            if (!holds || share.step->step < (original_ranged_ ? original_step_ : 0)) continue;
            found_.step = share.step->step;
            break;
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
            for (size_t op = 0; op < sequence.ops.size() && op < args_.points.size(); ++op) {
                const ElementSum sum = sum_at(op);
                if (sequence.ops[op] != Digest{sum.high, sum.low}) return false;
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
        sequence.append(tokens_of(rows).first(static_cast<size_t>(length)), LogitRows::kNone);
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
    Status compare_committed() {
        target_.begin = target_.end - 1;
        target_.last_step += 2;  // it may be committed a little later
        ASSIGN_OR_RETURN(const RowWatch rows, watch(target_));
        if (rows.committed().empty()) return {};
        ReferenceSequence sequence(reference_);
        sequence.append(tokens_of(rows), LogitRows::kNone);
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
                return {};
            }
        }
        found_.remark = record_is_right ? kNotRepeated
                                        : "the committed state agrees with the reference; what was recorded does not";
        return {};
    }

    // The computed run agrees with the reference: the record does not. Where a single element is the difference, its
    // digest says which and what it was.
    Status blame_recorded() {
        found_.remark = "what is computed here agrees with the reference; what was recorded does not";
        const auto op = static_cast<size_t>(found_.op_index);
        const Share* share = recorded_share();
        if (share == nullptr || share->sequence().ops.size() != args_.points.size()) return {};
        const SequenceRecord& sequence = share->sequence();
        ASSIGN_OR_RETURN(const RowWatch rows, watch(target_));
        const int64_t first = op < args_.points.first_of_head()
                                  ? sequence.begin
                                  : sequence.end - static_cast<int64_t>(sequence.logits.size());
        const ReferenceRows right = reference_rows(reference_, args_.points, tokens_of(rows), target_.begin, op);
        ElementSum all;
        for (int64_t p = first; p < sequence.end; ++p) all.add(right.sums.get(op, p).value_or(ElementSum{}));
        for (int64_t position = first; position < sequence.end; ++position) {
            const auto& row = right.rows[static_cast<size_t>(position - target_.begin)];
            const auto lone = lone_element(row, args_.points.place(op, position), sequence.ops[op], all);
            if (!lone) continue;
            const float computed = row[static_cast<size_t>(lone->element)];
            found_.position = position;
            found_.element = args_.points[op].columns.first + lone->element;
            found_.recorded = lone->recorded;
            found_.computed = computed;
            found_.ulps = ulps_between(lone->recorded, computed);
            return {};
        }
        return {};
    }
    // That the difference was seen in; null: several together.
    [[nodiscard]] const Share* recorded_share() const {
        for (const Share& share : recorded_request_->shares) {
            if (share.step->step == found_.step && share.sequence().begin == found_.begin &&
                share.sequence().end == found_.end) {
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
