#include "kernels/cpu/ops/paged_attention.h"

#include <algorithm>
#include <vector>

#include "engine/base/planted.h"
#include "reference/numerics/bf16.h"

namespace verbatim::cpu {

using reference::kKvTile;
using reference::kRunTiles;

namespace {

// Finds a tile's K and V: in the pages where the block size allows it, else gathered into memory of its own.
class TileReader {
public:
    TileReader(const PagedAttentionArgs& args, int64_t kv_head)
        : args_(args),
          kv_head_(kv_head),
          block_size_(args.kv->block_size()),
          k_direct_(block_size_ % kGroup == 0 && !planted(Planted::kTilesFromAttach)),
          v_direct_(block_size_ % 2 == 0 && !planted(Planted::kTilesFromAttach)) {
        if (!k_direct_) k_.resize(kTileGroups * num_pairs(args.head_dim) * kGroup);
        if (!v_direct_) v_.resize(kTilePairs * args.head_dim);
    }

    // Positions first ... first + num_visible - 1.
    const KvTileRefs& read(int64_t first, int64_t num_visible) {
        refs_.num_visible = num_visible;
        refs_.k_stride = k_direct_ ? block_size_ : kGroup;
        for (int64_t group = 0; group * kGroup < num_visible; ++group) {
            const int64_t position = first + group * kGroup;
            const int64_t count = std::min(kGroup, num_visible - group * kGroup);
            refs_.k[group] = k_direct_ ? k_page(position) + position % block_size_ : gather_k(group, position, count);
        }
        for (int64_t pair = 0; 2 * pair < num_visible; ++pair) {
            const int64_t position = first + 2 * pair;
            refs_.v[pair] = v_direct_ ? v_row(position) : gather_v(pair, position, 2 * pair + 1 < num_visible);
        }
        return refs_;
    }

private:
    [[nodiscard]] BlockId block(int64_t position) const { return args_.blocks[position / block_size_]; }
    [[nodiscard]] const Pair* k_page(int64_t position) const {
        return args_.kv->k_page(args_.layer, block(position), kv_head_);
    }
    [[nodiscard]] const Pair* v_row(int64_t position) const {
        const int64_t pair = position % block_size_ / 2;
        return args_.kv->v_page(args_.layer, block(position), kv_head_) + pair * args_.head_dim;
    }

    const Pair* gather_k(int64_t group, int64_t position, int64_t count) {
        Pair* out = k_.data() + group * num_pairs(args_.head_dim) * kGroup;
        for (int64_t lane = 0; lane < count; ++lane) {
            const Pair* page = k_page(position + lane) + (position + lane) % block_size_;
            for (int64_t i = 0; i < num_pairs(args_.head_dim); ++i) out[i * kGroup + lane] = page[i * block_size_];
        }
        return out;
    }

    uint16_t v_bits(int64_t position, int64_t i) const {
        const Pair pair = v_row(position)[i];
        return position % block_size_ % 2 == 0 ? even_bits(pair) : odd_bits(pair);
    }
    const Pair* gather_v(int64_t pair, int64_t position, bool has_odd) {
        Pair* out = v_.data() + pair * args_.head_dim;
        for (int64_t i = 0; i < args_.head_dim; ++i) {
            out[i] = make_pair_of(v_bits(position, i), has_odd ? v_bits(position + 1, i) : uint16_t{0});
        }
        return out;
    }

    const PagedAttentionArgs& args_;
    int64_t kv_head_;
    int64_t block_size_;
    bool k_direct_;
    bool v_direct_;
    std::vector<Pair> k_;  // [kTileGroups][num_pairs(head_dim)][kGroup]
    std::vector<Pair> v_;  // [kTilePairs][head_dim]
    KvTileRefs refs_;
};

// One query row of the heads that share a KV head.
class RowAttention {
public:
    RowAttention(const CpuOps& ops, const PagedAttentionArgs& args, int64_t kv_head)
        : ops_(ops),
          args_(args),
          num_heads_(args.n_heads / args.n_kv_heads),
          first_head_(kv_head * num_heads_),
          tiles_(args, kv_head) {
        const int64_t pairs = num_pairs(args.head_dim);
        q_.resize(num_heads_ * 2 * pairs);
        q_pairs_.resize(num_heads_ * pairs);
        pv_.resize(args.head_dim);
        o_.resize(2 * num_heads_ * args.head_dim);
        runs_.resize(num_heads_);
        totals_.resize(num_heads_);
    }

    void attend(int64_t row) {
        round_query(row);
        for (int64_t h = 0; h < num_heads_; ++h) totals_[h] = {.o = o_.data() + h * args_.head_dim};
        const int64_t anchor =
            planted(Planted::kTilesFromAttach) ? (kKvTile - args_.first_position % kKvTile) % kKvTile : 0;
        const int64_t last = args_.first_position + row + anchor;
        const int64_t num_tiles = last / kKvTile + 1;
        for (int64_t first = 0; first < num_tiles; first += kRunTiles) {
            for (int64_t h = 0; h < num_heads_; ++h) runs_[h] = {.o = o_.data() + (num_heads_ + h) * args_.head_dim};
            for (int64_t tile = first; tile < std::min(first + kRunTiles, num_tiles); ++tile) {
                const int64_t begin = std::max<int64_t>(tile * kKvTile - anchor, 0);
                add_tile(tiles_.read(begin, std::min((tile + 1) * kKvTile, last + 1) - anchor - begin));
            }
            for (int64_t h = 0; h < num_heads_; ++h) merge_run(runs_[h], args_.head_dim, totals_[h]);
        }
        for (int64_t h = 0; h < num_heads_; ++h) {
            float* out = args_.out.row(row) + (first_head_ + h) * args_.head_dim;
            for (int64_t i = 0; i < args_.head_dim; ++i) out[i] = totals_[h].o[i] / totals_[h].l;
        }
    }

private:
    void round_query(int64_t row) {
        const int64_t pairs = num_pairs(args_.head_dim);
        for (int64_t h = 0; h < num_heads_; ++h) {
            const float* q = args_.q.row(row) + (first_head_ + h) * args_.head_dim;
            for (int64_t i = 0; i < args_.head_dim; ++i) q_[h * 2 * pairs + i] = reference::bf16_value(q[i]);
            for (int64_t i = 0; i < pairs; ++i) {
                const float* two = &q_[2 * (h * pairs + i)];
                q_pairs_[h * pairs + i] =
                    make_pair_of(reference::round_to_bf16(two[0]), reference::round_to_bf16(two[1]));
            }
        }
    }

    void add_tile(const KvTileRefs& tile) {
        const int64_t pairs = num_pairs(args_.head_dim);
        for (int64_t h = 0; h < num_heads_; ++h) {
            const AttendTileArgs args{.q = &q_[2 * h * pairs],
                                      .q_pairs = &q_pairs_[h * pairs],
                                      .head_dim = args_.head_dim,
                                      .scale = args_.scale,
                                      .tile = &tile,
                                      .pv = pv_.data()};
            ops_.attend_tile(args, runs_[h]);
        }
    }

    const CpuOps& ops_;
    const PagedAttentionArgs& args_;
    int64_t num_heads_;  // of the KV head
    int64_t first_head_;
    TileReader tiles_;
    std::vector<float> q_;  // [num_heads, 2 · pairs]; an odd head_dim's last is +0
    std::vector<Pair> q_pairs_;
    std::vector<float> pv_;  // [head_dim]
    std::vector<float> o_;   // [2, num_heads, head_dim]: totals, runs
    std::vector<SoftmaxState> runs_, totals_;
};

}  // namespace

void paged_attention(const CpuOps& ops, const PagedAttentionArgs& args, int64_t kv_head, int64_t begin, int64_t end) {
    RowAttention rows(ops, args, kv_head);
    for (int64_t row = begin; row < end; ++row) rows.attend(row);
}

}  // namespace verbatim::cpu
