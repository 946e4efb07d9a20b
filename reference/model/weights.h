// reference/model/weights.h: a model's weights as read-only views, and the storage behind them.
//
//   W1  matrices are bf16 bits or, of a quantised model, blocks; row-major [rows, cols], one row per output:
//       y[r] = sum over c of W[r, c] · x[c]
//   W2  no element of a bf16 matrix is subnormal, −0, or of magnitude below 2^-56 other than +0 (NUMERICS N2); NaN is
//       0x7FC0
//   W3  vectors (norms, biases, A_log, D, dt_bias), conv weights and routers are binary32 as stored in the checkpoint,
//       without what a config adds to them (norm_plus_one)
//   W4  shapes agree with the ModelConfig they were made for; a bias that the config switches off is an empty view
//   W5  views live as long as the ModelWeights they came from, wherever it is moved
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/digest.h"
#include "reference/model/model_config.h"
#include "reference/model/quantised_blocks.h"
#include "reference/numerics/fp8.h"

namespace verbatim::reference {

// bf16 bits (the upper half of a binary32), or blocks of a format. Row-major and dense.
struct MatrixView {
    const uint16_t* data = nullptr;  // null: in blocks
    int64_t rows = 0;
    int64_t cols = 0;
    const BlockFormat* format = nullptr;  // null: bf16
    const std::byte* blocks = nullptr;    // [rows, format->row_bytes(cols)]
    // What the recipe of FP8 weights says of activations; a row's blocks under one of their scales have one scale, too.
    Fp8Sharing activations = Fp8Sharing::kNone;
    float activation_scale = 0.0F;  // of kRow: the static scale of all rows; 0: dynamic

    [[nodiscard]] bool is_quantised() const { return format != nullptr; }
    // REQUIRES: bf16.
    [[nodiscard]] std::span<const uint16_t> row(int64_t r) const {
        return {data + r * cols, static_cast<size_t>(cols)};
    }
    [[nodiscard]] MatrixView slice_rows(int64_t first, int64_t count) const {
        if (is_quantised())
            return {nullptr, count, cols, format, blocks + first * row_bytes(), activations, activation_scale};
        return {data + first * cols, count, cols};
    }
    [[nodiscard]] bool empty() const { return data == nullptr && blocks == nullptr; }
    [[nodiscard]] int64_t row_bytes() const {
        return is_quantised() ? format->row_bytes(cols) : cols * int64_t{sizeof(uint16_t)};
    }
    // As stored: all rows.
    [[nodiscard]] std::span<const std::byte> bytes() const;
    // The values of row r in binary32. REQUIRES: values.size() == cols.
    void read_row(int64_t r, std::span<float> values) const;
};

using VectorView = std::span<const float>;

struct AttentionWeights {
    MatrixView q;  // [n_heads · head_dim, hidden]; with output_gate [n_heads, 2, head_dim, hidden]: q, then the gate
    MatrixView k;  // [n_kv_heads · head_dim, hidden]
    MatrixView v;  // [n_kv_heads · head_dim, hidden]
    MatrixView o;  // [hidden, n_heads · head_dim]
    VectorView q_bias, k_bias, v_bias, o_bias;
    VectorView q_norm, k_norm;  // [head_dim]; empty without qk_norm
};

struct MambaWeights {
    MatrixView in_proj;      // [in_rows, hidden], rows z, x, B, C, dt
    VectorView in_bias;      // [in_rows]
    VectorView conv_weight;  // [conv_dim, d_conv], oldest tap first
    VectorView conv_bias;    // [conv_dim]
    VectorView a_log;        // [n_heads]; A = −exp(a_log)
    VectorView d;            // [n_heads]
    VectorView dt_bias;      // [n_heads]
    VectorView norm;         // [d_inner]; empty for MambaGate::kGateOnly
    MatrixView out_proj;     // [hidden, d_inner]
    VectorView out_bias;     // [hidden]
};

struct DeltaWeights {
    MatrixView in_proj;      // [conv_dim, hidden], rows q, k, v
    MatrixView z;            // [n_value_heads · value_dim, hidden]
    MatrixView b;            // [n_value_heads, hidden]
    MatrixView a;            // [n_value_heads, hidden]
    VectorView conv_weight;  // [conv_dim, d_conv], oldest tap first
    VectorView a_log;        // [n_value_heads]
    VectorView dt_bias;      // [n_value_heads]
    VectorView norm;         // [value_dim], of every head; never with a 1 added
    MatrixView out_proj;     // [hidden, n_value_heads · value_dim]
};

struct MlpWeights {
    MatrixView gate;  // [d_ff, hidden]; empty for MlpKind::kReluSquared
    MatrixView up;    // [d_ff, hidden]
    MatrixView down;  // [hidden, d_ff]
    VectorView gate_bias, up_bias, down_bias;
};

struct MoeWeights {
    VectorView router;                // [n_experts, hidden]
    VectorView choice_bias;           // [n_experts] of RouterKind::kSigmoidBias
    std::vector<MlpWeights> experts;  // by id: gate and up [d_ff, row_width], down [row_width, d_ff], no biases
    MatrixView latent_in;             // [d_latent, hidden]
    MatrixView latent_out;            // [hidden, d_latent]
    VectorView latent_in_bias, latent_out_bias;
    MatrixView shared_gate;  // [1, hidden]
};

// A part that LayerConfig lacks has empty views.
struct LayerWeights {
    VectorView mixer_norm;  // [hidden]; empty for a layer without a mixer
    MambaWeights mamba;
    AttentionWeights attention;
    VectorView mlp_norm;  // [hidden]; empty for a layer without a feed-forward part
    MlpWeights mlp;
    MoeWeights moe;
    DeltaWeights delta;
};

// Of ModelConfig::reads_hidden: the two halves of one matrix of the checkpoint, [hidden, 2 · hidden].
struct InputWeights {
    MatrixView embedding;                    // [hidden, hidden]
    MatrixView hidden;                       // [hidden, hidden]
    VectorView embedding_norm, hidden_norm;  // [hidden]
};

class WeightStorage;  // mapped files and owned buffers (reference/model/weight_storage.h)

struct ModelWeights {
    ModelWeights();
    ModelWeights(ModelWeights&&) noexcept;
    ModelWeights& operator=(ModelWeights&&) noexcept;
    ~ModelWeights();

    MatrixView embedding;   // [vocab, hidden]
    MatrixView lm_head;     // [vocab, hidden]; the embedding itself when tied
    VectorView final_norm;  // [hidden]
    std::vector<LayerWeights> layers;
    InputWeights input;                // empty views without reads_hidden
    bool quantised = false;            // some matrix is in blocks
    bool has_fp8_activations = false;  // some matrix's MatrixView::activations is not kNone
    std::string fp8_problem;           // why the profile exact.fp8 does not compute the weights; empty: it does
    std::unique_ptr<WeightStorage> storage;
};

// What loading changed on the way to W2, summed over all matrices.
struct LoadReport {
    int64_t num_files = 0;
    int64_t num_tensors = 0;
    int64_t num_skipped = 0;      // tensors of parts that are not computed: multi-token prediction, other modalities
    int64_t num_skipped_mtp = 0;  // of these: multi-token prediction
    int64_t num_parameters = 0;
    int64_t num_quantised = 0;         // matrix elements in blocks, which are used as they are
    int64_t quantised_bytes = 0;       // of these
    int64_t num_static_scales = 0;     // of activations in FP8
    int64_t num_float16 = 0;           // matrix elements that were fp16
    int64_t num_float32 = 0;           // matrix elements that were fp32
    int64_t num_rounded = 0;           // elements that rounding to bf16 changed (flushed ones are separate)
    int64_t num_flushed = 0;           // nonzero elements below 2^-56 that became +0
    int64_t num_overflowed = 0;        // finite elements that became infinite
    int64_t num_not_finite = 0;        // elements that were NaN or infinite in the file
    double max_relative_change = 0.0;  // over the rounded elements
    friend bool operator==(const LoadReport&, const LoadReport&) = default;
};

struct Model {
    ModelConfig config;
    ModelWeights weights;
    LoadReport report;
    // Of a checkpoint: config.json and the state of its weight files (files/regular_file.h). Empty: not
    // loaded from files.
    std::optional<Digest> source;
    bool canonical = false;  // every matrix in its file satisfies W2
    // The checkpoint's multi-token prediction layer as a model that reads hidden rows (LoadOptions::mtp); null: none.
    // Its embedding and head are this model's.
    std::unique_ptr<Model> mtp = {};
};

}  // namespace verbatim::reference
