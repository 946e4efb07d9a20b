// reference/walk.h: a forward pass, operation by operation, the same for every executor.
//
// walk() runs a batch (new rows of any number of sequences, flattened) through the model: for every call of
// forward_pass() (reference/forward_pass.h) it calls one method of a backend. The backend owns every byte: activations,
// weights in whatever packing, paged or contiguous KV, state rows. The walk knows the config alone: reference, CPU and
// CUDA cannot differ in the order of operations, only in how one operation is computed, and a contract in
// reference/ops/ binds each operation.
//
//   W1  operations come in the order of forward_pass(); each has read and written whole buffers before the next one
//       starts
//   W2  a row's values depend on the rows of its sequence only; rows of a sequence are in ascending position
//   W3  multipliers reach the backend as binary32, rounded once from the config
//   W4  observe() follows each operation that wrote a buffer
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/ids.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// Activations between operations, binary32, row-major. `width_of` gives the width that a model needs.
enum class Buffer : uint8_t {
    kResidual,    // [num_rows, hidden]
    kNormed,      // [num_rows, hidden]
    kProjected,   // [num_rows, in_rows]     in_proj's output: z, x, B, C, dt; of a delta net q, k, v
    kConv,        // [num_rows, conv_dim]    x, B, C after conv and silu; of a delta net q, k, v
    kQ,           // [num_rows, n_heads · head_dim]
    kK,           // [num_rows, n_kv_heads · head_dim]
    kV,           // [num_rows, n_kv_heads · head_dim]
    kMixed,       // [num_rows, d_inner or n_heads · head_dim]   the scan's or attention's output
    kGate,        // [num_rows, d_ff]
    kUp,          // [num_rows, d_ff]
    kBranch,      // [num_rows, hidden]
    kHead,        // [num_logit_rows, hidden]     final norm of the rows whose logits are requested
    kLogits,      // [num_logit_rows, vocab]
    kRouter,      // [num_rows, n_experts]        router logits
    kChosen,      // [num_rows, 2 · n_chosen]     ids ascending, as binary32, then their weights
    kLatent,      // [num_rows, d_latent]
    kLatentSum,   // [num_rows, d_latent]         the experts' sum
    kRouted,      // [num_rows, hidden]           of the experts, where a shared one is added
    kSharedGate,  // [num_rows, 1]
    kZ,           // [num_rows, n_value_heads · value_dim]   a delta net's gate
    kB,           // [num_rows, n_value_heads]    before and after the gates' functions: beta
    kA,           // [num_rows, n_value_heads]    likewise: decay
    kQGate,       // [num_rows, n_heads, 2, head_dim]        q and the output gate of each head
};
inline constexpr int kNumBuffers = 23;
std::string_view buffer_name(Buffer buffer);
// The widest row that any layer writes to the buffer; 0 if no layer does. A layer with narrower rows leaves the rest
// unused.
int64_t width_of(const ModelConfig& config, Buffer buffer);

enum class Matrix : uint8_t {
    kInProj,
    kOutProj,
    kQ,
    kK,
    kV,
    kO,
    kGate,
    kUp,
    kDown,
    kLmHead,
    kExpertGate,
    kExpertUp,
    kExpertDown,
    kLatentIn,
    kLatentOut,
    kSharedGate,
    kZ,
    kB,
    kA,
    kInputEmbedding,
    kInputHidden,
};
inline constexpr int kNumMatrices = 21;
std::string_view matrix_name(Matrix matrix);

// One matmul's weights. kLmHead: layer = number of layers.
struct MatrixId {
    int32_t layer = 0;
    Matrix matrix = Matrix::kInProj;
    int32_t expert = 0;  // of kExpertGate, kExpertUp, kExpertDown
    friend bool operator==(const MatrixId&, const MatrixId&) = default;
};
struct Linear {
    MatrixView weight;  // [N, K]
    VectorView bias;    // [N] or empty
};
Linear linear_of(const ModelWeights& weights, MatrixId id);
enum class Norm : uint8_t { kMixer, kMlp, kFinal, kInputEmbedding, kInputHidden };
// kFinal: layer = number of layers. Of the input: layer 0.
VectorView norm_of(const ModelWeights& weights, int32_t layer, Norm norm);

// A part of kProjected's columns.
struct Columns {
    int64_t first = 0;
    int64_t count = 0;
    friend bool operator==(const Columns&, const Columns&) = default;
};
struct ProjectedColumns {
    Columns z, x, b, c, dt;
    Columns conv;  // x, b and c together
};
ProjectedColumns projected_columns(const MambaConfig& mamba);

// A part of kConv's columns.
struct DeltaColumns {
    Columns q, k, v;
};
DeltaColumns delta_columns(const DeltaConfig& delta);

// Rows [first_row, first_row + num_rows) are the sequence's positions [first_position, first_position + num_rows).
struct WalkSequence {
    int32_t first_row = 0;
    int32_t num_rows = 0;
    int64_t first_position = 0;
    friend bool operator==(const WalkSequence&, const WalkSequence&) = default;
};

// Borrowed for the duration of the walk.
struct WalkBatch {
    std::span<const TokenId> tokens;          // [num_rows]
    std::span<const WalkSequence> sequences;  // cover the rows without gap or overlap, in order
    std::span<const int32_t> logit_rows;      // ascending rows whose logits are requested

    [[nodiscard]] int64_t num_rows() const { return static_cast<int64_t>(tokens.size()); }
    [[nodiscard]] int64_t num_logit_rows() const { return static_cast<int64_t>(logit_rows.size()); }
};

// An operation of the walk.
enum class WalkOp : uint8_t {
    kEmbed,
    kNorm,
    kMatmul,
    kScale,
    kConv,
    kScan,
    kGatedNorm,
    kRope,
    kAttention,
    kActivation,
    kAddBranch,
    kLayer,  // the layer is complete: kResidual holds its hidden rows
    kFinalNorm,
    kLogits,
    kRoute,
    kChoose,
    kExperts,
    kAddRouted,
    kDeltaGates,
    kL2Norm,
    kDeltaUpdate,
    kHeadNorm,
    kOutputGate,
    kHidden,
    // These write no buffer.
    kStoreKv,
    kCheckState,
    kCheckLogits,
};
// Operations that write a buffer.
inline constexpr int kNumWalkOps = static_cast<int>(WalkOp::kHidden) + 1;
std::string_view walk_op_name(WalkOp op);

struct WalkPoint {
    int32_t layer = -1;  // -1: the embedding; number of layers: final norm and head
    WalkOp op = WalkOp::kEmbed;
    Buffer buffer = Buffer::kResidual;
    Columns columns;  // the written ones
    friend bool operator==(const WalkPoint&, const WalkPoint&) = default;
};
std::string to_string(const WalkPoint& point);  // "layer 3 scan mixed"

// One method per operation; contracts are in reference/ops/. The batch of begin() holds for all calls that follow.
class WalkBackend {
public:
    virtual ~WalkBackend() = default;

    virtual void begin(const WalkBatch& batch) = 0;
    virtual void embed(float multiplier) = 0;                    // -> kResidual
    virtual void norm(int32_t layer, Norm norm, float eps) = 0;  // kResidual -> kNormed; kFinal: -> kHead
    virtual void matmul(MatrixId id, Buffer in, float in_multiplier, Buffer out) = 0;
    virtual void scale(Buffer buffer, Columns columns, float multiplier) = 0;  // in place
    virtual void conv(int32_t layer, const MambaConfig& mamba) = 0;            // kProjected -> kConv, window
    virtual void scan(int32_t layer, const MambaConfig& mamba) = 0;            // kConv, kProjected -> kMixed, state
    virtual void check_state(int32_t layer) = 0;                               // N8: remember faulty sequences
    virtual void gated_norm(int32_t layer, const MambaConfig& mamba, float eps) = 0;  // kProjected, kMixed -> kMixed
    virtual void rope(int32_t layer, const AttentionConfig& attention) = 0;           // kQ, kK in place
    virtual void store_kv(int32_t layer, const AttentionConfig& attention) = 0;       // kK, kV -> KV
    virtual void attention(int32_t layer, const AttentionConfig& attention, float scale) = 0;  // kQ, KV -> kMixed
    virtual void activation(int32_t layer, const MlpConfig& mlp) = 0;                          // kGate, kUp -> kUp
    virtual void add_branch(float branch_multiplier, float residual_multiplier) = 0;           // kBranch -> kResidual
    virtual void hidden();  // rows that are handed in -> kResidual; for ModelConfig::reads_hidden alone
    virtual void scale_logits(float multiplier, float divisor) = 0;  // kLogits in place
    virtual void check_logits() = 0;                                 // N8

    // A backend without these refuses models with experts beforehand.
    virtual void route(int32_t layer, const MoeConfig& moe);   // kNormed -> kRouter
    virtual void choose(int32_t layer, const MoeConfig& moe);  // kRouter -> kChosen
    // `in` [num_rows, moe.row_width(hidden)], kChosen -> `out`, as wide
    virtual void experts(int32_t layer, const MoeConfig& moe, Buffer in, Buffer out);
    virtual void add_routed(bool gated);  // kRouted, kSharedGate if gated -> kBranch

    // For delta nets and for attention with norms or gates per head. A backend without these never runs such a layer:
    // its constructor refuses the config.
    virtual void delta_conv(int32_t layer, const DeltaConfig& delta);             // kProjected -> kConv, window
    virtual void delta_gates(int32_t layer, const DeltaConfig& delta);            // kB, kA in place
    virtual void l2_norm(int32_t layer, const DeltaConfig& delta);                // kConv's q and k in place
    virtual void delta_update(int32_t layer, const DeltaConfig& delta);           // kConv, kB, kA -> kMixed, state
    virtual void delta_norm(int32_t layer, const DeltaConfig& delta, float eps);  // kZ, kMixed -> kMixed
    virtual void head_norm(int32_t layer, const AttentionConfig& attention, float eps);  // kQ or kQGate -> kQ; kK
    virtual void output_gate(int32_t layer, const AttentionConfig& attention);           // kQGate, kMixed -> kMixed

    // Called after each operation; the buffer holds its result until a later operation writes it.
    virtual void observe(const WalkPoint& /*point*/) {}
};

struct OpCall;  // reference/forward_pass.h

// `pass` is forward_pass(config). REQUIRES: validate(config) is empty; the batch is as WalkBatch says, its tokens lie
// in the vocabulary, its positions in the model's.
void walk(const ModelConfig& config, std::span<const OpCall> pass, const WalkBatch& batch, WalkBackend& backend);

}  // namespace verbatim::reference
