#include "reference/records/step_digests.h"

#include <bit>

#include "engine/base/check.h"

namespace verbatim::records {
namespace {

using namespace reference;

constexpr uint32_t kNan = 0x7FC0'0000;

uint32_t bits_of(float value) { return value == value ? std::bit_cast<uint32_t>(value) : kNan; }

Digest digest_of(const ElementSum& sum) { return {sum.high, sum.low}; }

}  // namespace

ElementSum sum_of_row(std::span<const float> row, int64_t place) {
    ElementSum sum;
    for (const float value : row) sum.add(place++, bits_of(value));
    return sum;
}

uint64_t low_sum_of_row(std::span<const float> row, int64_t place) { return sum_of_row(row, place).low; }

uint64_t logits_sum(std::span<const float> logits, int64_t position) {
    return low_sum_of_row(logits, position * static_cast<int64_t>(logits.size()));
}

DigestingExecutor::DigestingExecutor(Executor& inner, NumericExecutor& numeric, DigestLevel level)
    : WrappingExecutor(inner), numeric_(numeric), level_(level), points_(numeric.config()) {
    if (level >= DigestLevel::kLayers) {
        numeric.set_observer([this](const Observation& o) { observe(o); }, NumericExecutor::ObservedFor::kRecord);
    }
}

DigestingExecutor::~DigestingExecutor() { numeric_.set_observer({}, NumericExecutor::ObservedFor::kRecord); }

Status DigestingExecutor::execute(const StepPlan& plan, StepResult& result) {
    begin(plan);
    RETURN_IF_ERROR(inner().execute(plan, result));
    sequences_.clear();
    for_each_share(plan, result, [&](const ScheduledSequence& sequence, const SampledTokens* drawn) {
        sequences_.push_back(record_of(plan, sequence, drawn));
    });
    CHECK_LE(sequences_.size(), plan.sequences.size());
    return {};
}

void DigestingExecutor::begin(const StepPlan& plan) {
    if (level_ < DigestLevel::kLayers) return;
    for (const ScheduledSequence& sequence : plan.sequences) {
        const auto slot = static_cast<size_t>(index(sequence.slot));
        if (slot >= shares_.size()) shares_.resize(slot + 1);
        SlotSums& share = shares_[slot];
        share.known_end = sequence.known_end();
        share.num_ops = level_ == DigestLevel::kOps ? points_.size() : points_.layers().size();
        share.sums.assign(share.num_ops * static_cast<size_t>(1 + sequence.num_drafts()), {});
    }
}

// An executor may pass a sequence's rows in pieces, each a whole walk.
void DigestingExecutor::observe(const Observation& observation) {
    CHECK_LT(static_cast<size_t>(index(observation.slot)), shares_.size());  // begin() has seen the slot
    SlotSums& share = shares_[static_cast<size_t>(index(observation.slot))];
    if (level_ == DigestLevel::kOps) {
        add_op(share, observation);
    } else if (observation.point.op == WalkOp::kLayer) {
        add_layer(share, observation);
    }
}

namespace {

// Which of a share's sums a position belongs to: 0 is of those that are there to stay.
size_t bucket(int64_t position, int64_t known_end) {
    return position < known_end ? 0 : static_cast<size_t>(1 + position - known_end);
}

}  // namespace

void DigestingExecutor::add_layer(SlotSums& share, const Observation& observation) const {
    const auto layer = static_cast<size_t>(observation.point.layer);
    const auto width = static_cast<size_t>(observation.rows.width);
    for (int64_t r = 0; r < observation.rows.num_rows; ++r) {
        const int64_t position = observation.first_position + r;
        share.sums[bucket(position, share.known_end) * share.num_ops + layer].low +=
            low_sum_of_row({observation.rows.row(r), width}, points_.place(points_.layers()[layer], position));
    }
}

void DigestingExecutor::add_op(SlotSums& share, const Observation& observation) const {
    if (observation.point.op == WalkOp::kEmbed) share.next = 0;
    const size_t op = share.next++;
    CHECK(op < points_.size() && points_[op] == observation.point, "a walk goes to {}", to_string(observation.point));
    const auto width = static_cast<size_t>(observation.rows.width);
    for (int64_t r = 0; r < observation.rows.num_rows; ++r) {
        const int64_t position = observation.first_position + r;
        share.sums[bucket(position, share.known_end) * share.num_ops + op].add(
            sum_of_row({observation.rows.row(r), width}, points_.place(op, position)));
    }
}

SequenceRecord DigestingExecutor::record_of(const StepPlan& plan, const ScheduledSequence& sequence,
                                            const SampledTokens* drawn) {
    SequenceRecord record = plain_record_of(plan, sequence, numeric_.tables().at(sequence.slot).request, drawn);
    if (level_ >= DigestLevel::kHeads) {
        const auto num_drawn = static_cast<int32_t>(drawn != nullptr ? drawn->num_rows() : 0);
        for (int32_t row = -sequence.num_scored_positions; row < num_drawn; ++row) {
            record.logits.push_back(
                logits_sum(numeric_.logits(sequence.slot, row), sequence.end() - sequence.num_sampled_positions + row));
        }
    }
    if (level_ < DigestLevel::kLayers) return record;
    SlotSums& share = shares_[static_cast<size_t>(index(sequence.slot))];
    const size_t num_buckets = bucket(record.end - 1, share.known_end) + 1;
    CHECK_LE(num_buckets * share.num_ops, share.sums.size());
    for (size_t op = 0; op < share.num_ops; ++op) {
        ElementSum sum;
        for (size_t i = 0; i < num_buckets; ++i) sum.add(share.sums[i * share.num_ops + op]);
        if (level_ == DigestLevel::kOps) {
            record.ops.push_back(digest_of(sum));
            continue;
        }
        record.layers += sum.low;
        record.layer_tags += static_cast<char>(sum.low);
    }
    return record;
}

SequenceRecord plain_record_of(const StepPlan& plan, const ScheduledSequence& sequence, RequestId request,
                               const SampledTokens* drawn) {
    SequenceRecord record;
    record.request = request;
    record.ordinary = sequence.arithmetic == Arithmetic::kOrdinary;
    record.begin = sequence.num_computed_tokens;
    record.end = length_after(sequence, drawn);
    const auto drafts = plan.drafts(sequence);
    record.drafts.assign(drafts.begin(), drafts.end());
    return record;
}

}  // namespace verbatim::records
