// kernels/cpu/ops/cpu_ops.h: the inner loops that pay, one table of them per instruction set, chosen at run time.
// All tables give the same bits: those of the contracts in reference/ops/.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/cpu/ops/row_ops.h"
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
// Of this processor, kPortable first. VDPBF16PS counts when it has passed a test against reference/ops/matmul.h.
std::span<const Isa> supported_isas();
Isa best_isa();  // whose matmul of many rows wins matmul_choice's race

// Rows that enter a matmul, rounded to bf16 (NUMERICS N2), K padded with +0 to whole pairs. All forms hold the same
// values; a loop reads one of them.
enum class RowForm : uint8_t { kFloats, kPairs, kWideBands, kNarrowBands, kPairBands };
constexpr std::optional<BandShape> bands_of(RowForm form) {
    if (form == RowForm::kWideBands) return kWideBands;
    if (form == RowForm::kNarrowBands) return kNarrowBands;
    if (form == RowForm::kPairBands) return kPairBands;
    return std::nullopt;
}
constexpr bool holds_pairs(RowForm form) { return form == RowForm::kPairs || form == RowForm::kPairBands; }

struct RoundedRows {
    const float* floats = nullptr;     // [num_rows, 2 · num_pairs]
    const Pair* pairs = nullptr;       // [num_rows, num_pairs]
    const float* bands = nullptr;      // one behind another: [2 · num_pairs, the band's width]
    const Pair* pair_bands = nullptr;  // likewise: [num_pairs, the band's width]
    int64_t num_rows = 0;
    int64_t num_pairs = 0;

    // Rows [first, first + count). REQUIRES: with bands, that they are whole blocks of kMatmulRows, or the last one.
    [[nodiscard]] RoundedRows rows(int64_t first, int64_t count) const {
        return {.floats = floats != nullptr ? floats + first * 2 * num_pairs : nullptr,
                .pairs = pairs != nullptr ? pairs + first * num_pairs : nullptr,
                .bands = bands != nullptr ? bands + first * 2 * num_pairs : nullptr,
                .pair_bands = pair_bands != nullptr ? pair_bands + first * num_pairs : nullptr,
                .num_rows = count,
                .num_pairs = num_pairs};
    }
};

// out[r][lane] = dot_n3(rows[r], the panel's output `lane`) + bias[lane]              reference/ops/matmul.h
struct PanelArgs {
    RoundedRows rows;
    const Pair* panel = nullptr;           // [num_pairs, 64]
    const Int8Pair* int8_panel = nullptr;  // instead, for panel_int8
    const float* bias = nullptr;           // [64] or null: nothing is added
    float* out = nullptr;                  // [num_rows, 64]
    int64_t out_stride = kPanelOutputs;
    bool reads_ahead = false;  // for few rows: what comes next is asked for by instruction
};

inline constexpr int64_t kGroup = 16;  // KV positions whose K stands side by side
inline constexpr int64_t kTileGroups = reference::kKvTile / kGroup;
inline constexpr int64_t kTilePairs = reference::kKvTile / 2;

// A tile of 64 KV positions of one KV head. Groups and pairs without a visible position are null.
struct KvTileRefs {
    const Pair* k[kTileGroups] = {};  // pair i of the group's position lane at [i · k_stride + lane]
    int64_t k_stride = 0;
    const Pair* v[kTilePairs] = {};  // [head_dim]; an invisible odd half may hold anything
    int64_t num_visible = 0;         // 1 ... 64, from the tile's first position on, for the last row
};

// What a query row has gathered over some tiles (reference/ops/attention.h).
struct SoftmaxRow {
    float m = 0.0F;
    float l = 0.0F;
    float* o = nullptr;  // [head_dim]
};

// A tile enters the runs of query rows that share a KV head: `rows_per_position` rows (the attention heads) for each of
// some positions in ascending order, all of which see something of the tile.
struct AttendTileArgs {
    RoundedRows q;  // both forms; [num_rows, head_dim]
    int64_t head_dim = 0;
    float scale = 1.0F;
    const KvTileRefs* tile = nullptr;
    const KvTileRefs* next = nullptr;  // what to ask memory for meanwhile, of the same stride; null: nothing
    int64_t rows_per_position = 1;
    int64_t first_visible = 0;  // positions of the tile that the first row sees; each later position sees one more
    int64_t length = reference::kKvTile;  // of the tile, visible or not
    bool first_of_run = false;            // m, l and o are written, not read
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
    float* y = nullptr;               // [num_tokens, head_dim]; apart from x
    int64_t y_stride = 0;
};

// One value head over some tokens in order, per column j of the state s [key_dim, value_dim]:
//   u = Σ (decay · s[i][j]) · k[i], d = beta · (v[j] − u), s[i][j] = fma(k[i], d, decay · s[i][j]),
//   y[j] = Σ s[i][j] · q[i], sums by fma in ascending i from +0; reference/ops/delta.h.
// No tokens: the state passes on.
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
    float* y = nullptr;               // [num_tokens, value_dim]; apart from q, k and v
    int64_t y_stride = 0;
};

struct CpuOps {
    Isa isa = Isa::kPortable;
    bool takes_pairs = false;  // which form of RoundedRows panel() reads
    bool single_pass = false;  // panel() reads the weights of few rows once, from first to last, and can ask ahead
    void (*panel)(const PanelArgs& args) = nullptr;
    void (*panel_of_bands)(const PanelArgs& args) = nullptr;  // of rows in bands; null where it would gain nothing
    RowForm band_form = RowForm::kWideBands;                  // which it reads
    void (*panel_int8)(const PanelArgs& args) = nullptr;  // of the fast profile, for a few rows; null where it has none
    void (*attend_tile)(const AttendTileArgs& args) = nullptr;
    // A run of tiles joins those before it, left to right.
    void (*merge_run)(const SoftmaxRow& run, int64_t head_dim, SoftmaxRow& total) = nullptr;
    // False when the state that it leaves holds a NaN or an infinity.
    bool (*scan)(const ScanArgs& args) = nullptr;
    bool (*delta)(const DeltaArgs& args) = nullptr;  // likewise
    const RowOps* rows = nullptr;
};
using reference::Profile;

// REQUIRES: supported. kPortable's exact table is its fast one; in tensor.sm90 the matmuls are tensor_panel.h's on
// every processor, and all else is exact.
const CpuOps& cpu_ops(Isa isa, Profile profile = Profile::kExact);

// One way to multiply rows by a panel.
struct MatmulLoop {
    const CpuOps* ops = nullptr;
    bool bands = false;  // by panel_of_bands
    bool reads_ahead = false;

    [[nodiscard]] RowForm form() const {
        return bands ? ops->band_form : ops->takes_pairs ? RowForm::kPairs : RowForm::kFloats;
    }
    // `args.rows` in that form.
    void run(PanelArgs args) const {
        args.reads_ahead = reads_ahead;
        bands ? ops->panel_of_bands(args) : ops->panel(args);
    }
    friend bool operator==(const MatmulLoop&, const MatmulLoop&) = default;
};
// All ways of a table that may be the fastest for so many rows.
std::vector<MatmulLoop> matmul_loops(const CpuOps& ops, int64_t num_rows);

// Which one multiplies how many rows: the bits are the same, the speed is not.
struct MatmulChoice {
    MatmulLoop one;
    MatmulLoop few;   // up to kFewRows
    MatmulLoop many;  // and its table everything but matmuls

    static constexpr int64_t kFewRows = 6;  // a tile in registers
    [[nodiscard]] const MatmulLoop& of_rows(int64_t num_rows) const {
        return num_rows == 1 ? one : num_rows <= kFewRows ? few : many;
    }
};
// The fastest of some loops for so many rows.
using MatmulRace = std::function<MatmulLoop(std::span<const MatmulLoop> loops, int64_t num_rows)>;
// By races of 1, of a few and of many rows between these instruction sets' loops in this profile.
MatmulChoice raced_choice(std::span<const Isa> isas, Profile profile, const MatmulRace& race);
// Of one instruction set; none: of all that this processor has. By a short race: of few rows over weights that come
// from memory, of many over one panel. Exact and fast each have their own.
MatmulChoice matmul_choice(std::optional<Isa> isa, Profile profile = Profile::kExact);

}  // namespace verbatim::cpu
