#include "kernels/cpu/paged_kv.h"

#include <algorithm>

#include "engine/base/check.h"
#include "reference/numerics/bf16.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kVectorPairs = 16;  // of 64 bytes

int64_t round_up(int64_t count) { return (count + kVectorPairs - 1) / kVectorPairs * kVectorPairs; }

void set_half(Pair& pair, bool odd, uint16_t bits) {
    pair = odd ? make_pair_of(even_bits(pair), bits) : make_pair_of(bits, odd_bits(pair));
}

}  // namespace

PagedKv::PagedKv(const reference::ModelConfig& config, int32_t block_size, int32_t num_blocks)
    : block_size_(block_size), num_blocks_(num_blocks), layers_(config.layers.size()) {
    CHECK(block_size > 0 && num_blocks >= 0, "{} blocks of {}", num_blocks, block_size);
    for (size_t i = 0; i < layers_.size(); ++i) {
        const auto& attention = config.layers[i].attention;
        if (!attention) continue;
        Layer& layer = layers_[i];
        layer.n_kv_heads = attention->n_kv_heads;
        layer.head_dim = attention->head_dim;
        layer.k_page_pairs = round_up(num_pairs(layer.head_dim) * block_size);
        layer.v_page_pairs = round_up(num_pairs(block_size) * layer.head_dim);
        layer.block_pairs = layer.n_kv_heads * (layer.k_page_pairs + layer.v_page_pairs);
        layer.pairs.ensure(num_blocks * layer.block_pairs);
    }
}

Pair* PagedKv::k_page_of(const Layer& layer, BlockId block, int64_t kv_head) const {
    CHECK(index(block) >= 0 && index(block) < num_blocks_, "block {} of {}", index(block), num_blocks_);
    return layer.pairs.data() + index(block) * layer.block_pairs + kv_head * layer.k_page_pairs;
}

Pair* PagedKv::v_page_of(const Layer& layer, BlockId block, int64_t kv_head) const {
    CHECK(index(block) >= 0 && index(block) < num_blocks_, "block {} of {}", index(block), num_blocks_);
    return layer.pairs.data() + index(block) * layer.block_pairs + layer.n_kv_heads * layer.k_page_pairs +
           kv_head * layer.v_page_pairs;
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

void PagedKv::copy(const BlockCopy& copy) {
    for (Layer& layer : layers_) {
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

void PagedKv::read_k(int32_t layer, BlockId block, int32_t offset, std::span<uint16_t> out) const {
    const int64_t d = layers_[layer].head_dim;
    CHECK_EQ(static_cast<int64_t>(out.size()), layers_[layer].n_kv_heads * d);
    for (int64_t head = 0; head < layers_[layer].n_kv_heads; ++head) {
        const Pair* pairs = k_page(layer, block, head) + offset;
        for (int64_t i = 0; i < d; ++i) {
            const Pair pair = pairs[i / 2 * block_size_];
            out[head * d + i] = i % 2 == 0 ? even_bits(pair) : odd_bits(pair);
        }
    }
}

void PagedKv::read_v(int32_t layer, BlockId block, int32_t offset, std::span<uint16_t> out) const {
    const int64_t d = layers_[layer].head_dim;
    CHECK_EQ(static_cast<int64_t>(out.size()), layers_[layer].n_kv_heads * d);
    for (int64_t head = 0; head < layers_[layer].n_kv_heads; ++head) {
        const Pair* pairs = v_page(layer, block, head) + offset / 2 * d;
        for (int64_t i = 0; i < d; ++i) out[head * d + i] = offset % 2 == 0 ? even_bits(pairs[i]) : odd_bits(pairs[i]);
    }
}

}  // namespace verbatim::cpu
