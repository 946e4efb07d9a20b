// kernels/cpu/ops/cpu_ops.h: owns the tables of inner loops, one per instruction set, selected at run time. All tables
// give the same bits: those of the contracts in reference/ops/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cpu/ops/fp8_rows.h"
#include "kernels/cpu/ops/int8_layout.h"
#include "kernels/cpu/ops/row_ops.h"
#include "kernels/cpu/ops/run_layout.h"
#include "kernels/packed_matrix.h"
#include "kernels/pair.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/profile.h"

namespace verbatim::cpu {

enum class Isa : uint8_t {
    kPortable,    // any processor
    kAvx2,        // AVX2 and FMA
    kAvx512,      // AVX-512 F, BW, DQ, VL
    kAvx512Bf16,  // and VDPBF16PS
};
std::string_view isa_name(Isa isa);
// Supported by this processor, kPortable first. kAvx512Bf16 is included if VDPBF16PS passes a test against
// reference/ops/matmul.h.
std::span<const Isa> supported_isas();
Isa best_isa();  // the set that wins matmul_choice's race for many rows

// Rows that enter a matmul, rounded to bf16 (NUMERICS N2), K padded with +0 to whole pairs. All forms contain the same
// values; a loop reads one form.
// Those of exact.fp8 and exact.int8 are not rounded to bf16, but quantised: in groups of 128, in blocks of 32 or 256,
// or each row as a whole.
enum class RowForm : uint8_t {
    kFloats,
    kPairs,
    kWideBands,
    kNarrowBands,
    kPairBands,
    kFp8OfGroups,
    kFp8OfRow,
    kFp8PairsOfGroups,  // the same numbers as pairs
    kFp8PairsOfRow,
    kInt8Of32,
    kInt8Of256,
    kInt8OfRow
};
constexpr std::optional<BandShape> bands_of(RowForm form) {
    if (form == RowForm::kWideBands) return kWideBands;
    if (form == RowForm::kNarrowBands) return kNarrowBands;
    if (form == RowForm::kPairBands) return kPairBands;
    return std::nullopt;
}
constexpr bool holds_fp8(RowForm form) { return form >= RowForm::kFp8OfGroups && form <= RowForm::kFp8PairsOfRow; }
constexpr bool holds_fp8_pairs(RowForm form) {
    return form == RowForm::kFp8PairsOfGroups || form == RowForm::kFp8PairsOfRow;
}
constexpr reference::Fp8Sharing fp8_sharing_of(RowForm form) {
    const bool by_row = form == RowForm::kFp8OfRow || form == RowForm::kFp8PairsOfRow;
    return by_row ? reference::Fp8Sharing::kRow : reference::Fp8Sharing::kGroups;
}
constexpr RowForm fp8_form(reference::Fp8Sharing sharing, bool in_pairs) {
    if (sharing == reference::Fp8Sharing::kRow) return in_pairs ? RowForm::kFp8PairsOfRow : RowForm::kFp8OfRow;
    return in_pairs ? RowForm::kFp8PairsOfGroups : RowForm::kFp8OfGroups;
}
constexpr bool holds_int8(RowForm form) { return form >= RowForm::kInt8Of32; }
constexpr RowForm int8_form(reference::Int8Sharing sharing) {
    switch (sharing) {
        case reference::Int8Sharing::kBlocksOf32: return RowForm::kInt8Of32;
        case reference::Int8Sharing::kBlocksOf256: return RowForm::kInt8Of256;
        case reference::Int8Sharing::kRow: break;
    }
    return RowForm::kInt8OfRow;
}
constexpr reference::Int8Sharing sharing_of(RowForm form) {
    if (form == RowForm::kInt8Of32) return reference::Int8Sharing::kBlocksOf32;
    return form == RowForm::kInt8Of256 ? reference::Int8Sharing::kBlocksOf256 : reference::Int8Sharing::kRow;
}
// Of a row in a form without bands that holds no pairs; one in int8 needs fewer.
constexpr int64_t row_floats(RowForm form, int64_t width) {
    return holds_fp8(form) ? Fp8RowPlaces{width}.stride() : 2 * num_pairs(width);
}
constexpr bool holds_pairs(RowForm form) { return form == RowForm::kPairs || form == RowForm::kPairBands; }

struct RoundedRows {
    const float* floats = nullptr;     // [num_rows, 2 · num_pairs]
    const Pair* pairs = nullptr;       // [num_rows, num_pairs]
    const float* bands = nullptr;      // one after another: [2 · num_pairs, the band's width]
    const Pair* pair_bands = nullptr;  // likewise: [num_pairs, the band's width]
    const float* fp8 = nullptr;        // [num_rows] of Fp8RowPlaces
    bool fp8_in_pairs = false;
    const std::byte* int8 = nullptr;  // [num_rows] of Int8RowPlaces
    int64_t num_rows = 0;
    int64_t num_pairs = 0;

    // Rows [first, first + count). REQUIRES: with bands, whole blocks of kMatmulRows; the last one may be shorter.
    [[nodiscard]] RoundedRows rows(int64_t first, int64_t count) const {
        return {.floats = floats != nullptr ? floats + first * 2 * num_pairs : nullptr,
                .pairs = pairs != nullptr ? pairs + first * num_pairs : nullptr,
                .bands = bands != nullptr ? bands + first * 2 * num_pairs : nullptr,
                .pair_bands = pair_bands != nullptr ? pair_bands + first * num_pairs : nullptr,
                .fp8 = fp8 != nullptr ? fp8 + first * Fp8RowPlaces{2 * num_pairs}.stride() : nullptr,
                .fp8_in_pairs = fp8_in_pairs,
                .int8 = int8 != nullptr ? int8 + first * Int8RowPlaces{2 * num_pairs}.stride() : nullptr,
                .num_rows = count,
                .num_pairs = num_pairs};
    }
};

// out[r][lane] = dot_n3(rows[r], the panel's output `lane`) + bias[lane]              reference/ops/matmul.h
struct PanelArgs {
    RoundedRows rows;
    const Pair* panel = nullptr;           // [num_pairs, 64]
    const Int8Pair* int8_panel = nullptr;  // for panel_int8, replaces `panel`
    const float* bias = nullptr;           // [64] or null: nothing is added
    float* out = nullptr;                  // [num_rows, 64]
    int64_t out_stride = kPanelOutputs;
    bool reads_ahead = false;  // for few rows: software prefetch of the weights ahead
};

// A chunk of N3 over dequantised weights: out[r][lane] = out[r][lane] + the chunk's sum. In binary32 the weights are
// [num_pairs] groups of lanes: CpuOps::float_lanes evens, then as many odds; as pairs they are [num_pairs, 64].
template <typename Element>
struct ChunkRowsArgs {
    const Element* x = nullptr;  // `num_pairs` pairs of rows that are `stride` elements apart, rounded
    int64_t stride = 0;
    int64_t num_rows = 0;
    const Element* weights = nullptr;
    int64_t num_pairs = 0;
    float* out = nullptr;  // [num_rows, 64]
};
using FloatChunkArgs = ChunkRowsArgs<float>;
using PairChunkArgs = ChunkRowsArgs<Pair>;

// A few rows times a panel in runs: out[r][lane] = dot_n3 over all of K.
struct RunPanelArgs {
    const float* x = nullptr;  // [num_rows, num_k] of rows that are `stride` floats apart, rounded
    int64_t stride = 0;
    int64_t num_rows = 0;
    RunLayout layout;
    const std::byte* panel = nullptr;
    int64_t num_k = 0;     // whole runs
    float* out = nullptr;  // [num_rows, 64]
};

// The weights of a part of a panel, in the layout of FloatChunkArgs::weights or, of RunKind::kBareFloats, in that of
// PairChunkArgs::weights.
template <typename Element>
struct RunsToTileArgs {
    RunLayout layout;
    const std::byte* runs = nullptr;
    int64_t num_k = 0;        // whole runs
    Element* tile = nullptr;  // of `num_k` columns and 64 outputs
};
using RunTileArgs = RunsToTileArgs<float>;
using PairTileArgs = RunsToTileArgs<Pair>;

inline constexpr int64_t kGroup = 16;  // KV positions whose K is interleaved
inline constexpr int64_t kTileGroups = reference::kKvTile / kGroup;
inline constexpr int64_t kTilePairs = reference::kKvTile / 2;

// A tile of 64 KV positions of one KV head. Groups and pairs without a visible position are null.
struct KvTileRefs {
    const Pair* k[kTileGroups] = {};  // pair i of the group's position `lane` at [i · k_stride + lane]
    int64_t k_stride = 0;
    const Pair* v[kTilePairs] = {};  // [head_dim]; an invisible odd half may hold any value
    int64_t num_visible = 0;         // 1 ... 64, from the tile's first position on, for the last row
};

// A query row's softmax state over some tiles (reference/ops/attention.h).
struct SoftmaxRow {
    float m = 0.0F;
    float l = 0.0F;
    float* o = nullptr;  // [head_dim]
};

// Adds a tile to the runs of query rows that share a KV head: `rows_per_position` rows (the attention heads) for each
// of some positions in ascending order, each of which sees part of the tile.
struct AttendTileArgs {
    RoundedRows q;  // both forms; [num_rows, head_dim]
    int64_t head_dim = 0;
    float scale = 1.0F;
    const KvTileRefs* tile = nullptr;
    const KvTileRefs* next = nullptr;  // a tile to prefetch meanwhile, with the same stride; null: none
    int64_t rows_per_position = 1;
    int64_t first_visible = 0;            // positions that the first position's rows see; one more per later position
    int64_t length = reference::kKvTile;  // of the tile, including invisible positions
    bool first_of_run = false;            // m, l and o are initialised, not updated
    float* m = nullptr;                   // [num_rows]
    float* l = nullptr;                   // [num_rows]
    float* o = nullptr;                   // [num_rows, head_dim]
    float* s = nullptr;                   // [num_rows, 64], scratch

    [[nodiscard]] int64_t visible(int64_t row) const {
        return std::min(length, first_visible + row / rows_per_position);
    }
};

// One head over some tokens in order: per token h = fma(h, decay, u · b[n]), y = fma(d, x, sums of c[n] · h);
// reference/ops/ssm_scan.h. Rows of x, y, b and c are `stride` floats apart.
struct ScanArgs {
    int64_t head_dim = 0;
    int64_t d_state = 0;
    int64_t num_tokens = 0;
    const float* dt = nullptr;        // [num_tokens], after softplus and limits
    const float* decay = nullptr;     // [num_tokens], exp(dt · A)
    int64_t dt_stride = 0;            // of dt and decay
    float d = 0.0F;                   // D
    const float* x = nullptr;         // [num_tokens, head_dim]
    const float* b = nullptr;         // [num_tokens, d_state]
    const float* c = nullptr;         // [num_tokens, d_state]
    int64_t stride = 0;               // of x, b and c
    const float* state_in = nullptr;  // [d_state, head_dim]; null: zeros
    float* state_out = nullptr;       // [d_state, head_dim]; may be state_in
    float* y = nullptr;               // [num_tokens, head_dim]; must not alias x
    int64_t y_stride = 0;
};

// One value head over some tokens in order, per column j of the state s [key_dim, value_dim]:
//   u = Σ (decay · s[i][j]) · k[i], d = beta · (v[j] − u), s[i][j] = fma(k[i], d, decay · s[i][j]),
//   y[j] = Σ s[i][j] · q[i], sums by fma in ascending i from +0; reference/ops/delta.h.
// No tokens: the state is copied.
struct DeltaArgs {
    int64_t key_dim = 0;
    int64_t value_dim = 0;
    int64_t num_tokens = 0;
    const float* q = nullptr;  // [num_tokens, key_dim]
    const float* k = nullptr;  // [num_tokens, key_dim]
    const float* v = nullptr;  // [num_tokens, value_dim]
    int64_t stride = 0;        // of q, k and v
    const float* beta = nullptr;
    const float* decay = nullptr;
    int64_t gate_stride = 0;          // of beta and decay
    const float* state_in = nullptr;  // [key_dim, value_dim]; null: zeros
    float* state_out = nullptr;       // [key_dim, value_dim]; may be state_in
    float* y = nullptr;               // [num_tokens, value_dim]; must not alias q, k and v
    int64_t y_stride = 0;
};

struct CpuOps {
    Isa isa = Isa::kPortable;
    bool takes_pairs = false;  // the form of RoundedRows that panel() reads
    bool single_pass = false;  // panel() reads few rows' weights once, sequentially, and can prefetch
    void (*panel)(const PanelArgs& args) = nullptr;
    void (*panel_of_bands)(const PanelArgs& args) = nullptr;  // for rows in bands; null where it is no faster
    RowForm band_form = RowForm::kWideBands;                  // the form that it reads
    void (*panel_int8)(const PanelArgs& args) = nullptr;      // fast profile, few rows; null if not supported
    void (*float_chunk)(const FloatChunkArgs& args) = nullptr;
    int64_t float_lanes = kPanelOutputs;  // the layout of FloatChunkArgs::weights
    void (*run_panel)(const RunPanelArgs& args) = nullptr;
    int64_t run_rows = 0;  // up to so many, run_panel is faster than run_tile and float_chunk (docs/models.md)
    void (*run_tile)(const RunTileArgs& args) = nullptr;
    void (*pair_chunk)(const PairChunkArgs& args) = nullptr;  // of exact.fp8, with pair_tile; null: without pairs
    void (*pair_tile)(const PairTileArgs& args) = nullptr;
    void (*int8_panel)(const Int8PanelArgs& args) = nullptr;  // of exact.int8
    void (*attend_tile)(const AttendTileArgs& args) = nullptr;
    // Merges a run of tiles into the runs before it, left to right.
    void (*merge_run)(const SoftmaxRow& run, int64_t head_dim, SoftmaxRow& total) = nullptr;
    // Returns false when the new state holds a NaN or an infinity.
    bool (*scan)(const ScanArgs& args) = nullptr;
    bool (*delta)(const DeltaArgs& args) = nullptr;  // likewise
    const RowOps* rows = nullptr;
};
using reference::Profile;

// REQUIRES: supported. kPortable's exact table is also its fast one. In tensor.sm90 the matmuls are tensor_panel.h's on
// every processor, and everything else is exact.
const CpuOps& cpu_ops(Isa isa, Profile profile = Profile::kExact);

// One way to multiply rows by a panel.
struct MatmulLoop {
    const CpuOps* ops = nullptr;
    bool bands = false;  // use panel_of_bands
    bool reads_ahead = false;

    [[nodiscard]] RowForm form() const {
        return bands ? ops->band_form : ops->takes_pairs ? RowForm::kPairs : RowForm::kFloats;
    }
    // `args.rows` must be in the loop's form.
    void run(PanelArgs args) const {
        args.reads_ahead = reads_ahead;
        bands ? ops->panel_of_bands(args) : ops->panel(args);
    }
    friend bool operator==(const MatmulLoop&, const MatmulLoop&) = default;
};
// All of a table's loops that may be the fastest for this number of rows.
std::vector<MatmulLoop> matmul_loops(const CpuOps& ops, int64_t num_rows);

// The loop for each number of rows: it affects the speed and not the bits.
struct MatmulChoice {
    MatmulLoop one;
    MatmulLoop few;   // at most kFewRows rows
    MatmulLoop many;  // its table also serves everything but matmuls

    static constexpr int64_t kFewRows = 6;  // rows of a register tile
    [[nodiscard]] const MatmulLoop& of_rows(int64_t num_rows) const {
        return num_rows == 1 ? one : num_rows <= kFewRows ? few : many;
    }
};
// Returns the fastest of some loops for a number of rows.
using MatmulRace = std::function<MatmulLoop(std::span<const MatmulLoop> loops, int64_t num_rows)>;
// Chooses by races with 1, a few and many rows between the loops of these instruction sets in this profile.
MatmulChoice raced_choice(std::span<const Isa> isas, Profile profile, const MatmulRace& race);
// For one instruction set; none: all that this processor supports. A short race decides: few rows with weights from
// memory, many rows with one panel. Exact and fast have separate choices.
MatmulChoice matmul_choice(std::optional<Isa> isa, Profile profile = Profile::kExact);

}  // namespace verbatim::cpu
