#include "kernels/cpu/paged_kv.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "reference/numerics/bf16.h"

namespace verbatim::cpu {

using reference::StateKind;
using reference::StatePer;
using reference::StateTensor;
using reference::StateTensors;

namespace {

constexpr int64_t kVectorPairs = kArenaAlignment / static_cast<int64_t>(sizeof(Pair));

int64_t round_up(int64_t count) { return (count + kVectorPairs - 1) / kVectorPairs * kVectorPairs; }

void set_half(Pair& pair, bool odd, uint16_t bits) {
    pair = odd ? make_pair_of(even_bits(pair), bits) : make_pair_of(bits, odd_bits(pair));
}

// Element i of an array that may be unaligned.
uint16_t bf16_at(std::span<const std::byte> values, int64_t i) {
    uint16_t bits = 0;
    std::memcpy(&bits, &values[static_cast<size_t>(i) * sizeof(bits)], sizeof(bits));
    return bits;
}

}  // namespace

PagedKv::PagedKv(const StateTensors& tensors, int32_t block_size, int32_t num_blocks) : block_size_(block_size) {
    CHECK(block_size > 0 && num_blocks >= 0, "{} blocks of {}", num_blocks, block_size);
    lay_out(tensors);
    blocks_ = {own_.ensure(num_blocks * block_bytes_), block_bytes_, num_blocks};
}

PagedKv::PagedKv(const StateTensors& tensors, int32_t block_size, const ArenaUnits& blocks)
    : block_size_(block_size), blocks_(blocks) {
    lay_out(tensors);
    CHECK(blocks.count == 0 || (blocks.stride >= block_bytes_ && blocks.stride % kArenaAlignment == 0),
          "blocks of {} bytes, {} apart", block_bytes_, blocks.stride);
}

int64_t PagedKv::block_bytes(const StateTensors& tensors, int32_t block_size) {
    return PagedKv(tensors, block_size, ArenaUnits{}).block_bytes_;
}

void PagedKv::lay_out(const StateTensors& tensors) {
    for (const StateTensor& tensor : tensors) {
        if (tensor.per != StatePer::kToken) continue;
        if (tensor.kind == StateKind::kK || tensor.kind == StateKind::kV) {
            const StateTensor& keys = tensors[tensors.place(tensor.layer, StateKind::kK)];
            CHECK(tensor.shape == keys.shape, "layer {}: K and V of two shapes", tensor.layer);
            if (tensor.kind == StateKind::kK) add_pages(keys);  // V's pages follow K's
            continue;
        }
        others_.push_back({tensor.layer, tensor.kind, tensor.num_bytes(), block_bytes_});
        block_bytes_ += (block_size_ * tensor.num_bytes() + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
    }
}

void PagedKv::add_pages(const StateTensor& keys) {
    CHECK_GE(keys.layer, std::ssize(layers_));  // tensors come by layer
    layers_.resize(static_cast<size_t>(keys.layer) + 1);
    Layer& layer = layers_.back();
    layer.n_kv_heads = keys.shape.at(0);
    layer.head_dim = keys.shape.at(1);
    layer.k_page_pairs = round_up(num_pairs(layer.head_dim) * block_size_);
    layer.v_page_pairs = round_up(num_pairs(block_size_) * layer.head_dim);
    layer.first_byte = block_bytes_;
    const int64_t num_pairs_of_block = layer.n_kv_heads * (layer.k_page_pairs + layer.v_page_pairs);
    block_bytes_ += num_pairs_of_block * static_cast<int64_t>(sizeof(Pair));
}

std::byte* PagedKv::block_of(BlockId block) const { return blocks_.at(index(block)); }

Pair* PagedKv::k_page_of(const Layer& layer, BlockId block, int64_t kv_head) const {
    return reinterpret_cast<Pair*>(block_of(block) + layer.first_byte) + kv_head * layer.k_page_pairs;
}

Pair* PagedKv::v_page_of(const Layer& layer, BlockId block, int64_t kv_head) const {
    return k_page_of(layer, block, layer.n_kv_heads) + kv_head * layer.v_page_pairs;
}

const Pair* PagedKv::k_page(int32_t layer, BlockId block, int64_t kv_head) const {
    return k_page_of(layers_[layer], block, kv_head);
}

const Pair* PagedKv::v_page(int32_t layer, BlockId block, int64_t kv_head) const {
    return v_page_of(layers_[layer], block, kv_head);
}

void PagedKv::store(int32_t layer, BlockId block, int32_t offset, int64_t kv_head, const float* k, const float* v) {
    using reference::round_to_bf16;
    const int64_t d = layers_[layer].head_dim;
    Pair* k_pairs = k_page_of(layers_[layer], block, kv_head) + offset;
    for (int64_t i = 0; i < d; i += 2) {
        const uint16_t odd = i + 1 < d ? round_to_bf16(k[i + 1]) : uint16_t{0};
        k_pairs[i / 2 * block_size_] = make_pair_of(round_to_bf16(k[i]), odd);
    }
    Pair* v_pairs = v_page_of(layers_[layer], block, kv_head) + offset / 2 * d;
    for (int64_t i = 0; i < d; ++i) set_half(v_pairs[i], offset % 2 == 1, round_to_bf16(v[i]));
}

std::span<std::byte> PagedKv::slot(int32_t layer, StateKind kind, BlockId block, int32_t offset) const {
    CHECK(offset >= 0 && offset < block_size_, "slot {} of block {}: there are {}", offset, index(block), block_size_);
    const auto of = [&](const Slots& slots) { return slots.layer == layer && slots.kind == kind; };
    const auto found = std::ranges::find_if(others_, of);
    CHECK(found != others_.end(), "layer {} has no {} in slots", layer, kind.name);
    return {block_of(block) + found->first_byte + offset * found->slot_bytes, static_cast<size_t>(found->slot_bytes)};
}

void PagedKv::copy(const BlockCopy& copy) {
    CHECK(copy.num_slots <= block_size_ && copy.src != copy.dst, "{} slots of block {} into {}", copy.num_slots,
          index(copy.src), index(copy.dst));
    for (const Slots& slots : others_) {
        const auto src = slot(slots.layer, slots.kind, copy.src, 0);
        std::copy_n(src.data(), copy.num_slots * slots.slot_bytes, slot(slots.layer, slots.kind, copy.dst, 0).data());
    }
    for (const Layer& layer : layers_) {
        for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
            const Pair* k_src = k_page_of(layer, copy.src, head);
            Pair* k_dst = k_page_of(layer, copy.dst, head);
            for (int64_t i = 0; i < num_pairs(layer.head_dim); ++i) {
                std::copy_n(k_src + i * block_size_, copy.num_slots, k_dst + i * block_size_);
            }
            const Pair* v_src = v_page_of(layer, copy.src, head);
            Pair* v_dst = v_page_of(layer, copy.dst, head);
            const int64_t whole = copy.num_slots / 2 * layer.head_dim;
            std::copy_n(v_src, whole, v_dst);
            if (copy.num_slots % 2 == 0) continue;
            for (int64_t i = whole; i < whole + layer.head_dim; ++i) set_half(v_dst[i], false, even_bits(v_src[i]));
        }
    }
}

void PagedKv::read(const StateTensor& tensor, BlockId block, int32_t offset, std::span<std::byte> out) const {
    CHECK_EQ(static_cast<int64_t>(out.size()), tensor.num_bytes());
    const bool is_k = tensor.kind == StateKind::kK;
    if (!is_k && tensor.kind != StateKind::kV) {
        std::ranges::copy(slot(tensor.layer, tensor.kind, block, offset), out.begin());
        return;
    }
    const std::span<uint16_t> row(reinterpret_cast<uint16_t*>(out.data()), out.size() / sizeof(uint16_t));
    is_k ? read_k(layers_[tensor.layer], block, offset, row) : read_v(layers_[tensor.layer], block, offset, row);
}

void PagedKv::read_k(const Layer& layer, BlockId block, int32_t offset, std::span<uint16_t> out) const {
    const int64_t d = layer.head_dim;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
        const Pair* pairs = k_page_of(layer, block, head) + offset;
        for (int64_t i = 0; i < d; ++i) {
            const Pair pair = pairs[i / 2 * block_size_];
            out[head * d + i] = i % 2 == 0 ? even_bits(pair) : odd_bits(pair);
        }
    }
}

void PagedKv::read_v(const Layer& layer, BlockId block, int32_t offset, std::span<uint16_t> out) const {
    const int64_t d = layer.head_dim;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
        const Pair* pairs = v_page_of(layer, block, head) + offset / 2 * d;
        for (int64_t i = 0; i < d; ++i) out[head * d + i] = offset % 2 == 0 ? even_bits(pairs[i]) : odd_bits(pairs[i]);
    }
}

void PagedKv::write(const StateTensor& tensor, BlockId block, int32_t offset, std::span<const std::byte> values) {
    CHECK_EQ(static_cast<int64_t>(values.size()), tensor.num_bytes());
    const bool is_k = tensor.kind == StateKind::kK;
    if (!is_k && tensor.kind != StateKind::kV) {
        std::ranges::copy(values, slot(tensor.layer, tensor.kind, block, offset).begin());
        return;
    }
    CHECK(offset >= 0 && offset < block_size_, "slot {} of block {}: there are {}", offset, index(block), block_size_);
    is_k ? write_k(layers_[tensor.layer], block, offset, values)
         : write_v(layers_[tensor.layer], block, offset, values);
}

void PagedKv::write_k(const Layer& layer, BlockId block, int32_t offset, std::span<const std::byte> values) {
    const int64_t d = layer.head_dim;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
        Pair* pairs = k_page_of(layer, block, head) + offset;
        for (int64_t i = 0; i < d; i += 2) {
            const uint16_t odd = i + 1 < d ? bf16_at(values, head * d + i + 1) : uint16_t{0};
            pairs[i / 2 * block_size_] = make_pair_of(bf16_at(values, head * d + i), odd);
        }
    }
}

void PagedKv::write_v(const Layer& layer, BlockId block, int32_t offset, std::span<const std::byte> values) {
    const int64_t d = layer.head_dim;
    for (int64_t head = 0; head < layer.n_kv_heads; ++head) {
        Pair* pairs = v_page_of(layer, block, head) + offset / 2 * d;
        for (int64_t i = 0; i < d; ++i) set_half(pairs[i], offset % 2 == 1, bf16_at(values, head * d + i));
    }
}

}  // namespace verbatim::cpu
