// kernels/cpu/paged_kv.h: owns the bytes of the KV blocks: the per-token tensors of the model's list
// (reference/model/state_tensors.h). The layout of K and V lets dot products run without horizontal sums.
//
// A block has the pages of all layers one after another. In it, per layer with K and V, and KV head:
//   K page  [ceil(head_dim/2)][block_size]   pairs along head_dim: a vector holds one pair of 16 positions
//   V page  [ceil(block_size/2)][head_dim]   pairs along positions: a vector holds two positions of 16 dims
// For any other tensor: [block_size] slots, each in logical order.
//   V1  an unwritten slot is zero or stale: readers mask positions beyond a row's last
//   V2  the two slots of a V pair are written separately: one sequence writes a block, and one thread a sequence's KV
//       head
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_plan.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/arena_units.h"
#include "kernels/pair.h"
#include "reference/model/state_tensors.h"

namespace verbatim::cpu {

class PagedKv {
public:
    // Owns the memory. REQUIRES: block_size > 0, num_blocks >= 0.
    PagedKv(const reference::StateTensors& tensors, int32_t block_size, int32_t num_blocks);
    // Borrows the memory: block b is at the first byte + b · stride. REQUIRES: all of it is zero, or held
    // blocks of these tensors; stride >= block_bytes(tensors, block_size), a multiple of 64.
    PagedKv(const reference::StateTensors& tensors, int32_t block_size, const ArenaUnits& blocks);
    [[nodiscard]] static int64_t block_bytes(const reference::StateTensors& tensors, int32_t block_size);

    [[nodiscard]] int32_t block_size() const { return block_size_; }
    [[nodiscard]] const Pair* k_page(int32_t layer, BlockId block, int64_t kv_head) const;
    [[nodiscard]] const Pair* v_page(int32_t layer, BlockId block, int64_t kv_head) const;

    // Stores k and v of one position and KV head, binary32, rounded here (NUMERICS N2). [head_dim] each.
    void store(int32_t layer, BlockId block, int32_t offset, int64_t kv_head, const float* k, const float* v);
    // One position of a tensor other than K and V, for reading and writing.
    [[nodiscard]] std::span<std::byte> slot(int32_t layer, reference::StateKind kind, BlockId block,
                                            int32_t offset) const;
    // Copies slots [0, num_slots) of every tensor.
    void copy(const BlockCopy& copy);
    // One position of any tensor, in logical order.
    void read(const reference::StateTensor& tensor, BlockId block, int32_t offset, std::span<std::byte> out) const;
    void write(const reference::StateTensor& tensor, BlockId block, int32_t offset, std::span<const std::byte> values);

private:
    struct Layer {
        int64_t n_kv_heads = 0;
        int64_t head_dim = 0;
        int64_t k_page_pairs = 0;  // a multiple of 16
        int64_t v_page_pairs = 0;
        int64_t first_byte = 0;  // in a block: K pages by head, V pages by head
    };
    // A tensor other than K and V.
    struct Slots {
        int32_t layer = 0;
        reference::StateKind kind;
        int64_t slot_bytes = 0;
        int64_t first_byte = 0;  // in a block: [block_size, slot_bytes]
    };
    void lay_out(const reference::StateTensors& tensors);
    void add_pages(const reference::StateTensor& keys);
    [[nodiscard]] std::byte* block_of(BlockId block) const;
    // One position: [n_kv_heads, head_dim].
    void read_k(const Layer& layer, BlockId block, int32_t offset, std::span<uint16_t> out) const;
    void read_v(const Layer& layer, BlockId block, int32_t offset, std::span<uint16_t> out) const;
    void write_k(const Layer& layer, BlockId block, int32_t offset, std::span<const std::byte> values);
    void write_v(const Layer& layer, BlockId block, int32_t offset, std::span<const std::byte> values);
    [[nodiscard]] Pair* k_page_of(const Layer& layer, BlockId block, int64_t kv_head) const;
    [[nodiscard]] Pair* v_page_of(const Layer& layer, BlockId block, int64_t kv_head) const;

    int32_t block_size_;
    std::vector<Layer> layers_;  // by layer of the model; empty for a layer without K and V
    std::vector<Slots> others_;
    int64_t block_bytes_ = 0;
    AlignedArray<std::byte> own_;
    ArenaUnits blocks_;
};

}  // namespace verbatim::cpu
