#include "kernels/pooled_executor.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {

using reference::Buffer;
using reference::ConstFloatRows;
using reference::HeadPart;
using reference::HeadReader;
using reference::WalkSequence;

// --- the backend

void PooledBackend::set_sequences(std::span<const PooledSequence> sequences, const reference::StepObserver* observer) {
    sequences_ = sequences;
    observer_ = observer;
}

void PooledBackend::begin(const reference::WalkBatch& batch) {
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

int64_t PooledBackend::num_rows(Buffer buffer) const {
    return buffer == Buffer::kHead || buffer == Buffer::kLogits ? batch_.num_logit_rows() : batch_.num_rows();
}

void PooledBackend::observe(const reference::WalkPoint& point) {
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

SlotTablesConfig tables_config(const reference::ModelConfig& config, const PoolSizes& pools) {
    const reference::ModelGeometry geometry = reference::geometry(config);
    return {.vocab_size = config.vocab_size,
            .block_size = pools.block_size,
            .num_blocks = geometry.num_attention_layers > 0 ? pools.num_blocks : 0,
            .num_state_rows = geometry.num_mamba_layers > 0 ? pools.num_state_rows : 0};
}

}  // namespace

PooledExecutor::PooledExecutor(const reference::ModelConfig& config, const PoolSizes& pools, reference::Profile profile)
    : NumericExecutor(config, tables_config(config, pools), profile) {}

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

std::span<const float> PooledExecutor::logits(SequenceSlot slot) const {
    CHECK(tables().is_live(slot) && slots_[index(slot)].logit_row >= 0, "slot {} did not draw in the last step",
          index(slot));
    return backend().logits(slots_[index(slot)].logit_row);
}

std::optional<int32_t> PooledExecutor::fault_layer(SequenceSlot slot) const { return slots_[index(slot)].fault_layer; }

std::optional<TokenId> PooledExecutor::drawn_token(SequenceSlot slot) const {
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
    for (size_t i = 0; i < config().layers.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        if (config().layers[i].mamba) {
            for (const HeadPart part : {HeadPart::kSsm, HeadPart::kConv}) {
                const auto state = backend().read_state(layer, part, image.state);
                reader({.layer = layer, .part = part, .floats = state, .bf16 = {}});
            }
        }
        if (!config().layers[i].attention) continue;
        for (const HeadPart part : {HeadPart::kK, HeadPart::kV}) read_kv(layer, part, image, reader);
    }
    return true;
}

// A block at a time.
void PooledExecutor::read_kv(int32_t layer, HeadPart part, const HeadImage& image, const HeadReader& reader) {
    const int64_t width = config().layers[layer].attention->kv_rows();
    const int64_t block_size = tables().config().block_size;
    std::vector<uint16_t> rows(static_cast<size_t>(block_size * width));
    int64_t left = image.length;
    for (const BlockRun& run : image.blocks) {
        for (int32_t i = 0; i < run.count && left > 0; ++i) {
            const auto count = static_cast<int32_t>(std::min(left, block_size));
            const std::span<uint16_t> piece = std::span(rows).first(static_cast<size_t>(count * width));
            backend().read_kv(layer, part, BlockId{index(run.first) + i}, count, piece);
            reader({.layer = layer, .part = part, .floats = {}, .bf16 = piece});
            left -= count;
        }
    }
}

}  // namespace verbatim
