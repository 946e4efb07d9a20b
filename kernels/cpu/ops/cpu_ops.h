// kernels/cpu/ops/cpu_ops.h: the inner loops that pay, one table of them per instruction set, chosen at run time.
// All tables give the same bits: those of the contracts in reference/ops/.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/pair.h"
#include "reference/numerics/constants.h"

namespace verbatim::cpu {

enum class Isa : uint8_t {
    kPortable,    // any processor
    kAvx2,        // AVX2 and FMA
    kAvx512,      // AVX-512 F, BW, DQ, VL
    kAvx512Bf16,  // and VDPBF16PS
};
std::string_view isa_name(Isa isa);
std::span<const Isa> supported_isas();  // of this processor, kPortable first
Isa best_isa();                         // by a short race between their matmuls; the bits are the same

// Rows that enter a matmul, rounded to bf16 (NUMERICS N2), K padded with +0 to whole pairs. Both forms hold the same
// values.
struct RoundedRows {
    const float* floats = nullptr;  // [num_rows, 2 · num_pairs]
    const Pair* pairs = nullptr;    // [num_rows, num_pairs]
    int64_t num_rows = 0;
    int64_t num_pairs = 0;
};

// totals[r][lane] = dot_n3(rows[r], the panel's output `lane`)                       reference/ops/matmul.h
struct PanelArgs {
    RoundedRows rows;
    const Pair* panel = nullptr;  // [num_pairs, 64]
    float* totals = nullptr;      // [num_rows, 64]
};

inline constexpr int64_t kGroup = 16;  // KV positions whose K stands side by side
inline constexpr int64_t kTileGroups = reference::kKvTile / kGroup;
inline constexpr int64_t kTilePairs = reference::kKvTile / 2;

// A tile of 64 KV positions of one KV head. Groups and pairs without a visible position are null.
struct KvTileRefs {
    const Pair* k[kTileGroups] = {};  // pair i of the group's position lane at [i · k_stride + lane]
    int64_t k_stride = 0;
    const Pair* v[kTilePairs] = {};  // [head_dim]; an invisible odd half may hold anything
    int64_t num_visible = 0;         // 1 ... 64, from the tile's first position on
};

// What a query row has gathered over some tiles (reference/ops/attention.h).
struct SoftmaxState {
    float m = 0.0F;
    float l = 0.0F;
    float* o = nullptr;  // [head_dim]
    bool empty = true;
};

struct AttendTileArgs {
    const float* q = nullptr;       // [2 · num_pairs(head_dim)] bf16 values, padded with +0
    const Pair* q_pairs = nullptr;  // the same
    int64_t head_dim = 0;
    float scale = 1.0F;
    const KvTileRefs* tile = nullptr;
    float* pv = nullptr;  // [head_dim], scratch
};

// One head over some tokens in order: per token h = fma(h, decay, u · b[n]), y = fma(d, x, sums of c[n] · h);
// reference/ops/ssm_scan.h. Rows of x, y, b and c are `stride` floats apart.
struct ScanArgs {
    int64_t head_dim = 0;
    int64_t d_state = 0;
    int64_t num_tokens = 0;
    const float* dt = nullptr;     // [num_tokens], after softplus and limits
    const float* decay = nullptr;  // [num_tokens], exp(dt · A)
    float d = 0.0F;                // D
    const float* x = nullptr;      // [num_tokens, head_dim]
    const float* b = nullptr;      // [num_tokens, d_state]
    const float* c = nullptr;      // [num_tokens, d_state]
    int64_t stride = 0;            // of x, b and c
    float* state = nullptr;        // [d_state, head_dim]
    float* y = nullptr;            // [num_tokens, head_dim]; apart from x
    int64_t y_stride = 0;
    float* scratch = nullptr;  // [2 · head_dim]
};

struct CpuOps {
    bool takes_pairs = false;  // which form of RoundedRows panel() reads
    void (*panel)(const PanelArgs& args) = nullptr;
    void (*attend_tile)(const AttendTileArgs& args, SoftmaxState& run) = nullptr;
    void (*scan)(const ScanArgs& args) = nullptr;
};
// REQUIRES: supported.
const CpuOps& cpu_ops(Isa isa);

// A run of tiles joins those before it, left to right.
void merge_run(const SoftmaxState& run, int64_t head_dim, SoftmaxState& row);
// The tile's softmax: from s [64] to p [64], rounded to bf16 values; l and m of `run` move on. Returns exp(m - m'),
// which o has to be multiplied with unless the run was empty.
float softmax_tile(float* s, int64_t num_visible, SoftmaxState& run);

}  // namespace verbatim::cpu
