#include "kernels/pooled_executor.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {

using reference::Buffer;
using reference::ConstFloatRows;
using reference::HeadReader;
using reference::StatePer;
using reference::StateTensor;
using reference::StateTensors;
using reference::WalkSequence;

// --- the backend

void PooledWalk::set_sequences(std::span<const PooledSequence> sequences, const reference::StepObserver* observer) {
    sequences_ = sequences;
    observer_ = observer;
}

void PooledWalk::begin(const reference::WalkBatch& batch) {
    CHECK_EQ(batch.sequences.size(), sequences_.size());
    batch_ = batch;
    positions_.resize(batch.tokens.size());
    sequence_of_row_.resize(batch.tokens.size());
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const WalkSequence& part = batch.sequences[i];
        for (int32_t r = 0; r < part.num_rows; ++r) {
            positions_[part.first_row + r] = part.first_position + r;
            sequence_of_row_[part.first_row + r] = i;
        }
    }
}

int64_t PooledWalk::num_rows(Buffer buffer) const {
    return buffer == Buffer::kHead || buffer == Buffer::kLogits ? batch_.num_logit_rows() : batch_.num_rows();
}

void PooledWalk::observe(const reference::WalkPoint& point) {
    if (observer_ == nullptr || !*observer_) return;
    const ConstFloatRows all = host_rows(point.buffer).columns(point.columns.first, point.columns.count);
    if (point.buffer == Buffer::kHead || point.buffer == Buffer::kLogits) {
        for (int64_t i = 0; i < batch_.num_logit_rows(); ++i) {
            const int32_t row = batch_.logit_rows[i];
            (*observer_)({sequences_[sequence_of_row_[row]].slot, positions_[row], point, all.rows(i, 1)});
        }
        return;
    }
    for (size_t i = 0; i < sequences_.size(); ++i) {
        const WalkSequence& part = batch_.sequences[i];
        (*observer_)({sequences_[i].slot, part.first_position, point, all.rows(part.first_row, part.num_rows)});
    }
}

// --- the executor

namespace {

SlotTablesConfig tables_config(int32_t vocab_size, const StateTensors& tensors, const PoolSizes& pools) {
    return {.vocab_size = vocab_size,
            .block_size = pools.block_size,
            .num_blocks = tensors.has_any(StatePer::kToken) ? pools.num_blocks : 0,
            .num_state_rows = tensors.has_any(StatePer::kSequence) ? pools.num_state_rows : 0};
}

}  // namespace

PooledExecutor::PooledExecutor(const reference::ModelConfig& config, StateTensors tensors, const PoolSizes& pools,
                               reference::Profile profile)
    : NumericExecutor(config, tensors, tables_config(config.vocab_size, tensors, pools), profile) {}

void PooledExecutor::compute(const StepPlan& plan) {
    slots_.resize(tables().num_slots());
    for (const SequenceStart& start : plan.starts) slots_[index(start.slot)] = {};
    for (Slot& slot : slots_) slot.logit_row = -1;
    list_sequences(plan);
    backend().run({{tokens_, walk_sequences_, logit_rows_}, sequences_, plan.copies, draws_, &observer()});
    for (size_t i = 0; i < sequences_.size(); ++i) {
        slots_[index(sequences_[i].slot)].fault_layer = backend().fault_layer(static_cast<int64_t>(i));
    }
}

void PooledExecutor::list_sequences(const StepPlan& plan) {
    tokens_.clear();
    walk_sequences_.clear();
    sequences_.clear();
    logit_rows_.clear();
    draws_.clear();
    for (const ScheduledSequence& scheduled : plan.sequences) {
        const SlotTable& table = tables().at(scheduled.slot);
        const auto first_row = static_cast<int32_t>(tokens_.size());
        const auto first = table.tokens.begin() + scheduled.num_computed_tokens;
        tokens_.insert(tokens_.end(), first, first + scheduled.num_new_tokens);
        walk_sequences_.push_back({first_row, scheduled.num_new_tokens, scheduled.num_computed_tokens});
        sequences_.push_back(
            {scheduled.slot, table.blocks, scheduled.state_src, scheduled.state_dst, plan.writes_of(scheduled)});
        if (!scheduled.samples) continue;
        slots_[index(scheduled.slot)].logit_row = static_cast<int64_t>(logit_rows_.size());
        logit_rows_.push_back(first_row + scheduled.num_new_tokens - 1);
        draws_.push_back(draw_args(scheduled));
    }
}

std::span<const float> PooledExecutor::logits(SequenceSlot slot) {
    CHECK(tables().is_live(slot) && slots_[index(slot)].logit_row >= 0, "slot {} did not draw in the last step",
          index(slot));
    return backend().logits(slots_[index(slot)].logit_row);
}

std::optional<int32_t> PooledExecutor::fault_layer(SequenceSlot slot) { return slots_[index(slot)].fault_layer; }

std::optional<TokenId> PooledExecutor::drawn_token(SequenceSlot slot) {
    return backend().drawn(slots_[index(slot)].logit_row);
}

bool PooledExecutor::holds(const HeadImage& image) const {
    const SlotTablesConfig& pools = tables().config();
    int64_t num_slots = 0;
    for (const BlockRun& run : image.blocks) num_slots += int64_t{run.count} * pools.block_size;
    return pools.num_blocks == 0 || num_slots >= image.length;
}

bool PooledExecutor::sum_head(const HeadImage& image, reference::HeadDigester& digester) {
    if (!backend().sums_heads()) return NumericExecutor::sum_head(image, digester);
    return holds(image) && backend().sum_head(image, digester);
}

bool PooledExecutor::read_head(const HeadImage& image, const HeadReader& reader) {
    if (!holds(image)) return false;
    for (const StateTensor& tensor : tensors()) {
        if (tensor.per == StatePer::kToken)
            read_blocks(tensor, image, reader);
        else
            reader({tensor, backend().read_row(tensor, image.state)});
    }
    return true;
}

// A block at a time.
void PooledExecutor::read_blocks(const StateTensor& tensor, const HeadImage& image, const HeadReader& reader) {
    const int64_t block_size = tables().config().block_size;
    const int64_t num_bytes = tensor.num_bytes();
    std::vector<std::byte> slots(static_cast<size_t>(block_size * num_bytes));
    int64_t left = image.length;
    for (const BlockRun& run : image.blocks) {
        for (int32_t i = 0; i < run.count && left > 0; ++i) {
            const auto count = static_cast<int32_t>(std::min(left, block_size));
            const std::span<std::byte> piece = std::span(slots).first(static_cast<size_t>(count * num_bytes));
            backend().read_block(tensor, BlockId{index(run.first) + i}, count, piece);
            reader({tensor, piece});
            left -= count;
        }
    }
}

}  // namespace verbatim
