#include "kernels/cpu/ops/paged_attention.h"

#include <algorithm>

namespace verbatim::cpu {

using reference::kKvTile;
using reference::kRunTiles;

namespace {

// Finds a tile's K and V: in the pages if the block size allows it, otherwise gathered into a buffer.
class TileReader {
public:
    TileReader(const PagedAttentionArgs& args, int64_t kv_head, AttentionScratch& scratch)
        : args_(args),
          kv_head_(kv_head),
          block_size_(args.kv->block_size()),
          k_direct_(block_size_ % kGroup == 0),
          v_direct_(block_size_ % 2 == 0),
          k_(scratch.k.data()),
          v_(scratch.v.data()) {}

    // Positions first ... first + num_visible - 1.
    const KvTileRefs& read(int64_t first, int64_t num_visible) {
        KvTileRefs& refs = refs_[0];
        refs.num_visible = num_visible;
        refs.k_stride = k_direct_ ? block_size_ : kGroup;
        k_direct_ ? find_k(first, num_visible, refs) : gather_k(first, num_visible, refs);
        v_direct_ ? find_v(first, num_visible, refs) : gather_v(first, num_visible, refs);
        return refs;
    }
    // The refs of a complete later tile, for prefetch; null if there is none or it needs gathering.
    const KvTileRefs* find(int64_t first, int64_t num_visible) {
        if (!k_direct_ || !v_direct_ || num_visible < kKvTile) return nullptr;
        find_k(first, num_visible, refs_[1]);
        find_v(first, num_visible, refs_[1]);
        return &refs_[1];
    }

private:
    [[nodiscard]] BlockId block(int64_t position) const { return args_.blocks[position / block_size_]; }
    [[nodiscard]] const Pair* k_page(int64_t position) const {
        return args_.kv->k_page(args_.layer, block(position), kv_head_);
    }
    [[nodiscard]] const Pair* v_page(int64_t position) const {
        return args_.kv->v_page(args_.layer, block(position), kv_head_);
    }

    void find_k(int64_t first, int64_t num_visible, KvTileRefs& refs) {
        for (int64_t done = 0; done < num_visible;) {
            const int64_t offset = (first + done) % block_size_;
            const Pair* page = k_page(first + done);
            for (int64_t i = offset; i < block_size_ && done < num_visible; i += kGroup, done += kGroup) {
                refs.k[done / kGroup] = page + i;
            }
        }
    }
    void find_v(int64_t first, int64_t num_visible, KvTileRefs& refs) {
        for (int64_t done = 0; done < num_visible;) {
            const int64_t offset = (first + done) % block_size_;
            const Pair* page = v_page(first + done);
            for (int64_t i = offset; i < block_size_ && done < num_visible; i += 2, done += 2) {
                refs.v[done / 2] = page + i / 2 * args_.head_dim;
            }
        }
    }

    void gather_k(int64_t first, int64_t num_visible, KvTileRefs& refs) {
        const int64_t pairs = num_pairs(args_.head_dim);
        for (int64_t j = 0; j < num_visible; ++j) {
            const Pair* page = k_page(first + j) + (first + j) % block_size_;
            Pair* out = k_ + j / kGroup * pairs * kGroup + j % kGroup;
            for (int64_t i = 0; i < pairs; ++i) out[i * kGroup] = page[i * block_size_];
            refs.k[j / kGroup] = k_ + j / kGroup * pairs * kGroup;
        }
    }
    [[nodiscard]] uint16_t v_bits(int64_t position, int64_t i) const {
        const int64_t offset = position % block_size_;
        const Pair pair = v_page(position)[offset / 2 * args_.head_dim + i];
        return offset % 2 == 0 ? even_bits(pair) : odd_bits(pair);
    }
    void gather_v(int64_t first, int64_t num_visible, KvTileRefs& refs) {
        for (int64_t j = 0; j < num_visible; j += 2) {
            Pair* out = v_ + j / 2 * args_.head_dim;
            for (int64_t i = 0; i < args_.head_dim; ++i) {
                const uint16_t odd = j + 1 < num_visible ? v_bits(first + j + 1, i) : uint16_t{0};
                out[i] = make_pair_of(v_bits(first + j, i), odd);
            }
            refs.v[j / 2] = out;
        }
    }

    const PagedAttentionArgs& args_;
    int64_t kv_head_;
    int64_t block_size_;
    bool k_direct_;
    bool v_direct_;
    Pair* k_;
    Pair* v_;
    KvTileRefs refs_[2];  // the current tile, and the next one
};

// The query rows of some positions for the attention heads that share a KV head, ordered by position, so that all rows
// share each loaded word of a tile.
class BlockAttention {
public:
    BlockAttention(const CpuOps& ops, const PagedAttentionArgs& args, int64_t kv_head, RowRange positions,
                   AttentionScratch& scratch)
        : ops_(ops),
          args_(args),
          positions_(positions),
          group_(args.n_heads / args.n_kv_heads),
          first_head_(kv_head * group_),
          num_rows_((positions.end - positions.begin) * group_),
          scratch_(scratch),
          tiles_(args, kv_head, scratch) {}

    void attend() {
        round_queries();
        const int64_t last = args_.first_position + positions_.end - 1;
        const int64_t num_tiles = last / kKvTile + 1;
        for (int64_t first = 0; first < num_tiles; first += kRunTiles) {
            const int64_t first_row = rows_before(first * kKvTile);
            for (int64_t tile = first; tile < std::min(first + kRunTiles, num_tiles); ++tile) {
                add_tile({.begin = tile * kKvTile,
                          .end = (tile + 1) * kKvTile,
                          .last = last,
                          .of_run = first > 0,
                          .first_of_run = tile == first});
            }
            if (first > 0) merge_runs(first_row);
        }
        write_out();
    }

private:
    struct Tile {
        int64_t begin = 0, end = 0;  // positions
        int64_t last = 0;            // the last visible position
        bool of_run = false;         // of a run after the first, which uses the totals' rows
        bool first_of_run = false;
    };

    // The number of rows with positions before `position`: they come first.
    [[nodiscard]] int64_t rows_before(int64_t position) const {
        return std::max<int64_t>(position - args_.first_position - positions_.begin, 0) * group_;
    }
    [[nodiscard]] SoftmaxRow row(bool of_run, int64_t i) const {
        const int64_t at = of_run ? num_rows_ + i : i;
        return {scratch_.m.data()[at], scratch_.l.data()[at], scratch_.o.data() + at * args_.head_dim};
    }

    void round_queries() {
        const int64_t pairs = num_pairs(args_.head_dim);
        float* floats = scratch_.q.data();
        Pair* words = scratch_.q_pairs.data();
        for (int64_t i = 0; i < num_rows_; ++i) {
            const float* q = args_.q.row(positions_.begin + i / group_) + (first_head_ + i % group_) * args_.head_dim;
            ops_.rows->round_to_floats(q, args_.head_dim, 1.0F, floats + i * 2 * pairs);
            ops_.rows->round_to_pairs(q, args_.head_dim, 1.0F, words + i * pairs);
        }
    }

    void add_tile(const Tile& tile) {
        const int64_t pairs = num_pairs(args_.head_dim);
        const int64_t skipped = rows_before(tile.begin);
        const int64_t at = tile.of_run ? num_rows_ + skipped : skipped;
        const KvTileRefs& refs = tiles_.read(tile.begin, std::min(tile.end, tile.last + 1) - tile.begin);
        const int64_t num_after = std::min(tile.end + kKvTile, tile.last + 1) - tile.end;
        const int64_t position = args_.first_position + positions_.begin + skipped / group_;
        ops_.attend_tile({.q = {.floats = scratch_.q.data() + skipped * 2 * pairs,
                                .pairs = scratch_.q_pairs.data() + skipped * pairs,
                                .num_rows = num_rows_ - skipped,
                                .num_pairs = pairs},
                          .head_dim = args_.head_dim,
                          .scale = args_.scale,
                          .tile = &refs,
                          .next = tiles_.find(tile.end, num_after),
                          .rows_per_position = group_,
                          .first_visible = position - tile.begin + 1,
                          .length = tile.end - tile.begin,
                          .first_of_run = tile.first_of_run,
                          .m = scratch_.m.data() + at,
                          .l = scratch_.l.data() + at,
                          .o = scratch_.o.data() + at * args_.head_dim,
                          .s = scratch_.s.data() + skipped * kKvTile});
    }

    void merge_runs(int64_t first_row) {
        for (int64_t i = first_row; i < num_rows_; ++i) {
            SoftmaxRow total = row(false, i);
            ops_.merge_run(row(true, i), args_.head_dim, total);
            scratch_.m.data()[i] = total.m;
            scratch_.l.data()[i] = total.l;
        }
    }

    void write_out() {
        for (int64_t i = 0; i < num_rows_; ++i) {
            const SoftmaxRow total = row(false, i);
            float* out = args_.out.row(positions_.begin + i / group_) + (first_head_ + i % group_) * args_.head_dim;
            for (int64_t d = 0; d < args_.head_dim; ++d) out[d] = total.o[d] / total.l;
        }
    }

    const CpuOps& ops_;
    const PagedAttentionArgs& args_;
    RowRange positions_;
    int64_t group_;  // attention heads per KV head
    int64_t first_head_;
    int64_t num_rows_;
    AttentionScratch& scratch_;
    TileReader tiles_;
};

}  // namespace

void AttentionScratch::reserve(const PagedAttentionArgs& args, int64_t num_positions) {
    const int64_t num_rows = num_positions * (args.n_heads / args.n_kv_heads);
    const int64_t pairs = num_pairs(args.head_dim);
    q.ensure(num_rows * 2 * pairs);
    q_pairs.ensure(num_rows * pairs);
    s.ensure(num_rows * kKvTile);
    o.ensure(2 * num_rows * args.head_dim);
    m.ensure(2 * num_rows);
    l.ensure(2 * num_rows);
    k.ensure(kTileGroups * pairs * kGroup);
    v.ensure(kTilePairs * args.head_dim);
}

void paged_attention(const CpuOps& ops, const PagedAttentionArgs& args, int64_t kv_head, RowRange positions,
                     AttentionScratch& scratch) {
    BlockAttention(ops, args, kv_head, positions, scratch).attend();
}

}  // namespace verbatim::cpu
