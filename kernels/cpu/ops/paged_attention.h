// kernels/cpu/ops/paged_attention.h: reference/ops/attention.h over a block table.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/cpu/paged_kv.h"
#include "reference/ops/rows.h"

namespace verbatim::cpu {

// Rows of one sequence: row r is at position first_position + r, its KV is in the table, up to its own position.
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

// The attention heads of one KV head, for some of the rows.
void paged_attention(const CpuOps& ops, const PagedAttentionArgs& args, int64_t kv_head, RowRange positions);

}  // namespace verbatim::cpu
