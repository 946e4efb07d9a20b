// simulator/aligned_pages.h: owns the block size of engines that use one page size for all groups of layers.
//
// Such an engine enlarges the attention block until a page of one attention layer holds the state of one Mamba or delta
// layer, and pads the state to the page. Prefix hits are then multiples of that block. The calculation is vLLM's
// (vllm/platforms/interface.py, _align_hybrid_block_size, read in 2026-11):
//   block = alignment * ceil(state bytes / (alignment * KV bytes per token)),  page = block * KV bytes per token
// Bytes are per layer, the alignment is that of the attention kernel's blocks, and the conv window has the activations'
// dtype.
#pragma once

#include <cstdint>
#include <optional>

#include "simulator/model_shape.h"

namespace verbatim {

struct AlignedPages {
    int32_t block_tokens = 0;      // U
    int64_t kv_page_bytes = 0;     // all attention layers together
    int64_t state_page_bytes = 0;  // all layers with a state together, padded
    friend bool operator==(const AlignedPages&, const AlignedPages&) = default;
};

struct AlignedPagesConfig {
    int32_t alignment = 16;         // tokens
    int64_t state_value_bytes = 4;  // of the recurrent state, not of the conv window: 2 or 4
};

// Without states the block equals the alignment. Empty for a model without attention, which needs no enlarged block.
[[nodiscard]] std::optional<AlignedPages> aligned_pages(const ModelShape& model, const AlignedPagesConfig& config);

}  // namespace verbatim
