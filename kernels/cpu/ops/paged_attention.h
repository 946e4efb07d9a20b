// kernels/cpu/ops/paged_attention.h: owns reference/ops/attention.h over a block table.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/paged_kv.h"
#include "reference/ops/rows.h"

namespace verbatim::cpu {

// Rows of one sequence: row r is at position first_position + r; the table holds KV up to that position.
struct PagedAttentionArgs {
    int32_t layer = 0;
    int64_t first_position = 0;
    int64_t n_heads = 0;
    int64_t n_kv_heads = 0;
    int64_t head_dim = 0;
    float scale = 1.0F;
    const PagedKv* kv = nullptr;
    std::span<const BlockId> blocks;
    reference::ConstFloatRows q;  // [num_rows, n_heads · head_dim], binary32
    reference::FloatRows out;     // [num_rows, n_heads · head_dim]
};

struct RowRange {
    int64_t begin = 0;
    int64_t end = 0;
};

// One thread's buffers, kept from call to call.
struct AttentionScratch {
    // For calls with at most `num_positions` positions.
    void reserve(const PagedAttentionArgs& args, int64_t num_positions);

    AlignedArray<float> q;  // [num_rows, 2 · num_pairs(head_dim)], num_rows = positions · attention heads per KV head
    AlignedArray<Pair> q_pairs;  // [num_rows, num_pairs(head_dim)]
    AlignedArray<float> s;       // [num_rows, 64]
    AlignedArray<float> o;       // [2, num_rows, head_dim]: totals, then the current run
    AlignedArray<float> m, l;    // [2, num_rows]
    AlignedArray<Pair> k;        // [kTileGroups, num_pairs(head_dim), kGroup]
    AlignedArray<Pair> v;        // [kTilePairs, head_dim]
};

// The attention heads of one KV head for some of the rows. REQUIRES: scratch.reserve(args, number of positions or
// more).
void paged_attention(const CpuOps& ops, const PagedAttentionArgs& args, int64_t kv_head, RowRange positions,
                     AttentionScratch& scratch);

}  // namespace verbatim::cpu
