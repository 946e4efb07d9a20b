// simulator/aligned_pages.h: the block of engines that have one page size for all groups of layers.
//
// Such an engine inflates the attention block until a page of one attention layer holds the state of one Mamba or delta
// layer, and pads the state to the page. A prefix is then found at multiples of that block only. The calculation is vLLM's
// (vllm/platforms/interface.py, _align_hybrid_block_size, read in 2026-11):
//   block = alignment * ceil(state bytes / (alignment * KV bytes of a token)),  page = block * KV bytes of a token
// where bytes are those of one layer, the alignment is that of the attention kernel's blocks, and the conv window is
// kept in the activations' dtype.
#pragma once

#include <cstdint>
#include <optional>

#include "simulator/model_shape.h"

namespace verbatim {

struct AlignedPages {
    int32_t block_tokens = 0;      // U
    int64_t kv_page_bytes = 0;     // of all attention layers together
    int64_t state_page_bytes = 0;  // of all layers with a state together, padded
    friend bool operator==(const AlignedPages&, const AlignedPages&) = default;
};

struct AlignedPagesConfig {
    int32_t alignment = 16;         // tokens
    int64_t state_value_bytes = 4;  // of what is carried on, not of the conv window: 2 or 4
};

// Without states the block is the alignment. Empty for a model without attention: nothing is inflated there.
[[nodiscard]] std::optional<AlignedPages> aligned_pages(const ModelShape& model, const AlignedPagesConfig& config);

}  // namespace verbatim
