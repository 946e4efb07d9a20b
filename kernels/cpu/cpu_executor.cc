#include "kernels/cpu/cpu_executor.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::cpu {

using reference::HeadPart;
using reference::HeadReader;
using reference::ModelConfig;

namespace {

SlotTablesConfig tables_config(const ModelConfig& config, const CpuExecutorConfig& cpu) {
    const reference::ModelGeometry geometry = reference::geometry(config);
    return {.vocab_size = config.vocab_size,
            .block_size = cpu.block_size,
            .num_blocks = geometry.num_attention_layers > 0 ? cpu.num_blocks : 0,
            .num_state_rows = geometry.num_mamba_layers > 0 ? cpu.num_state_rows : 0};
}

}  // namespace

CpuExecutor::CpuExecutor(const ModelConfig& config, const reference::ModelWeights& weights, CpuExecutorConfig cpu)
    : NumericExecutor(config, tables_config(config, cpu)),
      profile_(cpu.profile),
      format_(cpu.weights),
      choice_(matmul_choice(cpu.isa, cpu.profile)),
      model_(config, weights),
      kv_(config, cpu.block_size, tables().config().num_blocks),
      states_(config, tables().config().num_state_rows),
      pool_(cpu.num_threads),
      weights_(config, weights, pool_, cpu.weights),
      backend_(model_, weights_, choice_, kv_, states_, pool_) {
    CHECK(profile_ == Profile::kFast || format_ == WeightFormat::kBf16, "the exact profile has bf16 weights");
}

std::string CpuExecutor::numerics_id() const {
    if (profile_ == Profile::kExact) return NumericExecutor::numerics_id();
    return format_ == WeightFormat::kInt8 ? "fast/1 int8" : "fast/1";
}

void CpuExecutor::compute(const StepPlan& plan) {
    slots_.resize(tables().num_slots());
    for (const SequenceStart& start : plan.starts) slots_[index(start.slot)] = {};
    for (const BlockCopy& copy : plan.copies) kv_.copy(copy);
    tokens_.clear();
    walk_sequences_.clear();
    sequences_.clear();
    logit_rows_.clear();
    for (Slot& slot : slots_) slot.logit_row = -1;
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
    }
    if (plan.sequences.empty()) return;
    backend_.set_sequences(sequences_, &observer());
    reference::walk(config(), {tokens_, walk_sequences_, logit_rows_}, backend_);
    for (size_t i = 0; i < sequences_.size(); ++i) {
        slots_[index(sequences_[i].slot)].fault_layer = backend_.fault_layer(static_cast<int64_t>(i));
    }
}

std::span<const float> CpuExecutor::logits(SequenceSlot slot) const {
    CHECK(tables().is_live(slot) && slots_[index(slot)].logit_row >= 0, "slot {} did not draw in the last step",
          index(slot));
    return backend_.logits(slots_[index(slot)].logit_row);
}

std::optional<int32_t> CpuExecutor::fault_layer(SequenceSlot slot) const { return slots_[index(slot)].fault_layer; }

TokenId CpuExecutor::draw_token(const reference::SamplingArgs& args) const {
    return sample(args, *choice_.many->rows, sampling_);
}

bool CpuExecutor::read_head(const HeadImage& image, const HeadReader& reader) {
    int64_t num_slots = 0;
    for (const BlockRun& run : image.blocks) num_slots += int64_t{run.count} * kv_.block_size();
    const SlotTablesConfig& pools = tables().config();
    if (pools.num_blocks > 0 && num_slots < image.length) return false;
    for (size_t i = 0; i < config().layers.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        if (config().layers[i].mamba) {
            for (const HeadPart part : {HeadPart::kSsm, HeadPart::kConv}) {
                reader({.layer = layer, .part = part, .floats = states_.tensor(image.state, layer, part), .bf16 = {}});
            }
        }
        if (config().layers[i].attention) read_kv(layer, image, reader);
    }
    return true;
}

void CpuExecutor::read_kv(int32_t layer, const HeadImage& image, const HeadReader& reader) const {
    std::vector<uint16_t> row(static_cast<size_t>(config().layers[layer].attention->kv_rows()));
    for (const HeadPart part : {HeadPart::kK, HeadPart::kV}) {
        int64_t left = image.length;
        for (const BlockRun& run : image.blocks) {
            for (int64_t i = 0; i < int64_t{run.count} * kv_.block_size() && left > 0; ++i, --left) {
                const BlockId block{static_cast<int32_t>(index(run.first) + i / kv_.block_size())};
                const auto offset = static_cast<int32_t>(i % kv_.block_size());
                if (part == HeadPart::kK) kv_.read_k(layer, block, offset, row);
                if (part == HeadPart::kV) kv_.read_v(layer, block, offset, row);
                reader({.layer = layer, .part = part, .floats = {}, .bf16 = row});
            }
        }
    }
}

}  // namespace verbatim::cpu
