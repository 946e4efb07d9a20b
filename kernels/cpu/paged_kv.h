// kernels/cpu/paged_kv.h: owns the bytes of the KV blocks, bf16, laid out so that no dot product needs a horizontal
// sum.
//
// Of a block, per attention layer and KV head:
//   K page  [ceil(head_dim/2)][block_size]   pairs along head_dim: a vector holds one pair of 16 positions
//   V page  [ceil(block_size/2)][head_dim]   pairs along positions: a vector holds two positions of 16 dims
//   V1  a slot that nobody wrote is zero or stale: readers mask what lies beyond a row's last position
//   V2  slots of a V pair are written apart: one sequence writes a block, one thread writes a sequence's KV head
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_plan.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/pair.h"
#include "reference/model/model_config.h"

namespace verbatim::cpu {

class PagedKv {
public:
    // REQUIRES: block_size > 0, num_blocks >= 0.
    PagedKv(const reference::ModelConfig& config, int32_t block_size, int32_t num_blocks);

    [[nodiscard]] int32_t block_size() const { return block_size_; }
    [[nodiscard]] const Pair* k_page(int32_t layer, BlockId block, int64_t kv_head) const;
    [[nodiscard]] const Pair* v_page(int32_t layer, BlockId block, int64_t kv_head) const;

    // k and v of one position and KV head, binary32, rounded here (NUMERICS N2). [head_dim] each.
    void store(int32_t layer, BlockId block, int32_t offset, int64_t kv_head, const float* k, const float* v);
    // Slots [0, num_slots) of every layer.
    void copy(const BlockCopy& copy);
    // One position in logical order: [n_kv_heads, head_dim].
    void read_k(int32_t layer, BlockId block, int32_t offset, std::span<uint16_t> out) const;
    void read_v(int32_t layer, BlockId block, int32_t offset, std::span<uint16_t> out) const;

private:
    struct Layer {
        int64_t n_kv_heads = 0;
        int64_t head_dim = 0;
        int64_t k_page_pairs = 0;  // multiples of 16
        int64_t v_page_pairs = 0;
        int64_t block_pairs = 0;
        AlignedArray<Pair> pairs;  // [num_blocks][K pages by head, V pages by head]
    };
    [[nodiscard]] Pair* k_page_of(const Layer& layer, BlockId block, int64_t kv_head) const;
    [[nodiscard]] Pair* v_page_of(const Layer& layer, BlockId block, int64_t kv_head) const;

    int32_t block_size_;
    int32_t num_blocks_;
    std::vector<Layer> layers_;  // by the model's layer; one without attention is empty
};

}  // namespace verbatim::cpu
