#include "kernels/cuda/cuda_executor.h"

#include "engine/base/check.h"

namespace verbatim::cuda {

using reference::HeadPart;
using reference::HeadReader;
using reference::ModelConfig;

namespace {

CudaPools used_pools(const ModelConfig& config, CudaPools pools) {
    const reference::ModelGeometry geometry = reference::geometry(config);
    if (geometry.num_attention_layers == 0) pools.num_blocks = 0;
    if (geometry.num_mamba_layers == 0) pools.num_state_rows = 0;
    return pools;
}

}  // namespace

CudaExecutor::CudaExecutor(const ModelConfig& config, const reference::ModelWeights& weights, Device& device,
                           const CudaPools& pools)
    : NumericExecutor(config, {.vocab_size = config.vocab_size,
                               .block_size = pools.block_size,
                               .num_blocks = used_pools(config, pools).num_blocks,
                               .num_state_rows = used_pools(config, pools).num_state_rows}),
      device_(device),
      pools_(used_pools(config, pools)),
      model_(config, weights),
      backend_(model_, device, pools_) {}

void CudaExecutor::compute(const StepPlan& plan) {
    slots_.resize(tables().num_slots());
    for (const SequenceStart& start : plan.starts) slots_[index(start.slot)] = {};
    for (Slot& slot : slots_) slot.logit_row = -1;
    backend_.copy_tails(plan.copies);
    std::vector<TokenId> tokens;
    std::vector<reference::WalkSequence> parts;
    std::vector<CudaSequence> sequences;
    std::vector<int32_t> logit_rows;
    for (const ScheduledSequence& scheduled : plan.sequences) {
        const SlotTable& table = tables().at(scheduled.slot);
        const auto first_row = static_cast<int32_t>(tokens.size());
        const auto first = table.tokens.begin() + scheduled.num_computed_tokens;
        tokens.insert(tokens.end(), first, first + scheduled.num_new_tokens);
        parts.push_back({first_row, scheduled.num_new_tokens, scheduled.num_computed_tokens});
        sequences.push_back(
            {scheduled.slot, table.blocks, scheduled.state_src, scheduled.state_dst, plan.writes_of(scheduled)});
        if (!scheduled.samples) continue;
        slots_[index(scheduled.slot)].logit_row = static_cast<int64_t>(logit_rows.size());
        logit_rows.push_back(first_row + scheduled.num_new_tokens - 1);
    }
    if (sequences.empty()) return;
    backend_.set_sequences(sequences, &observer());
    reference::walk(config(), {tokens, parts, logit_rows}, backend_);
    backend_.fetch_results();
    for (size_t i = 0; i < sequences.size(); ++i) {
        slots_[index(sequences[i].slot)].fault_layer = backend_.fault_layer(static_cast<int64_t>(i));
    }
}

std::span<const float> CudaExecutor::logits(SequenceSlot slot) const {
    CHECK(tables().is_live(slot) && slots_[index(slot)].logit_row >= 0, "slot {} did not draw in the last step",
          index(slot));
    return backend_.logits(slots_[index(slot)].logit_row);
}

std::optional<int32_t> CudaExecutor::fault_layer(SequenceSlot slot) const { return slots_[index(slot)].fault_layer; }

bool CudaExecutor::read_head(const HeadImage& image, const HeadReader& reader) {
    int64_t num_slots = 0;
    for (const BlockRun& run : image.blocks) num_slots += int64_t{run.count} * pools_.block_size;
    if (pools_.num_blocks > 0 && num_slots < image.length) return false;
    std::vector<float> state;
    for (size_t i = 0; i < config().layers.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        if (config().layers[i].mamba) {
            for (const HeadPart part : {HeadPart::kSsm, HeadPart::kConv}) {
                backend_.read_state(layer, image.state, part, state);
                reader({.layer = layer, .part = part, .floats = state, .bf16 = {}});
            }
        }
        if (config().layers[i].attention) read_kv(layer, image, reader);
    }
    return true;
}

// All of K, then all of V.
void CudaExecutor::read_kv(int32_t layer, const HeadImage& image, const HeadReader& reader) const {
    const auto width = static_cast<size_t>(config().layers[layer].attention->kv_rows());
    std::vector<uint16_t> k(width);
    std::vector<uint16_t> v(width);
    std::vector<uint16_t> all_v;
    int64_t left = image.length;
    for (const BlockRun& run : image.blocks) {
        for (int64_t i = 0; i < int64_t{run.count} * pools_.block_size && left > 0; ++i, --left) {
            const BlockId block{static_cast<int32_t>(index(run.first) + i / pools_.block_size)};
            backend_.read_kv(layer, block, static_cast<int32_t>(i % pools_.block_size), k, v);
            reader({.layer = layer, .part = HeadPart::kK, .floats = {}, .bf16 = k});
            all_v.insert(all_v.end(), v.begin(), v.end());
        }
    }
    reader({.layer = layer, .part = HeadPart::kV, .floats = {}, .bf16 = all_v});
}

}  // namespace verbatim::cuda
