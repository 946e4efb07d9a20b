#include "reference/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/check.h"
#include "reference/forward_pass.h"

namespace verbatim::reference {

namespace {

constexpr std::array<std::string_view, kNumBuffers> kBufferNames = {
    "residual",   "normed", "projected",   "conv", "q",      "k",      "v",      "mixed",
    "gate",       "up",     "branch",      "head", "logits", "router", "chosen", "latent",
    "latent_sum", "routed", "shared_gate", "z",    "b",      "a",      "q_gate"};
constexpr std::array<std::string_view, kNumMatrices> kMatrixNames = {
    "in_proj", "out_proj",        "q",           "k",           "v",         "o",          "gate",        "up", "down",
    "lm_head", "expert_gate",     "expert_up",   "expert_down", "latent_in", "latent_out", "shared_gate", "z",  "b",
    "a",       "input_embedding", "input_hidden"};
constexpr std::array<std::string_view, kNumWalkOps + 3> kWalkOpNames = {
    "embed",     "norm",        "matmul",     "scale",      "conv",        "scan",        "gated_norm",
    "rope",      "attention",   "activation", "add_branch", "layer",       "final_norm",  "logits",
    "route",     "choose",      "experts",    "add_routed", "delta_gates", "l2_norm",     "delta_update",
    "head_norm", "output_gate", "hidden",     "store_kv",   "check_state", "check_logits"};
// A missing name leaves the last one empty.
static_assert(!kBufferNames.back().empty() && !kMatrixNames.back().empty() && !kWalkOpNames.back().empty());

int64_t mamba_width(const MambaConfig& mamba, Buffer buffer) {
    switch (buffer) {
        case Buffer::kProjected: return mamba.in_rows();
        case Buffer::kConv: return mamba.conv_dim();
        case Buffer::kMixed: return mamba.d_inner();
        default: return 0;
    }
}

int64_t attention_width(const AttentionConfig& attention, Buffer buffer) {
    switch (buffer) {
        case Buffer::kQ:
        case Buffer::kMixed: return attention.q_rows();
        case Buffer::kK:
        case Buffer::kV: return attention.kv_rows();
        case Buffer::kQGate: return attention.output_gate ? attention.q_proj_rows() : 0;
        default: return 0;
    }
}

int64_t delta_width(const DeltaConfig& delta, Buffer buffer) {
    switch (buffer) {
        case Buffer::kProjected:
        case Buffer::kConv: return delta.conv_dim();
        case Buffer::kZ:
        case Buffer::kMixed: return delta.value_rows();
        case Buffer::kB:
        case Buffer::kA: return delta.n_value_heads;
        default: return 0;
    }
}

int64_t mlp_width(const MlpConfig& mlp, Buffer buffer) {
    if (buffer == Buffer::kGate) return mlp.kind == MlpKind::kGatedSilu ? mlp.d_ff : 0;
    return buffer == Buffer::kUp ? mlp.d_ff : 0;
}

int64_t moe_width(const LayerConfig& layer, int32_t hidden_size, Buffer buffer) {
    const MoeConfig& moe = *layer.moe;
    switch (buffer) {
        case Buffer::kRouter: return moe.n_experts;
        case Buffer::kChosen: return 2 * int64_t{moe.n_chosen};
        case Buffer::kLatent:
        case Buffer::kLatentSum: return moe.d_latent;
        case Buffer::kRouted: return layer.mlp ? hidden_size : 0;
        case Buffer::kSharedGate: return moe.shared_gate ? 1 : 0;
        default: return 0;
    }
}

void check_batch(const ModelConfig& config, const WalkBatch& batch) {
    int64_t next_row = 0;
    for (const WalkSequence& sequence : batch.sequences) {
        CHECK_EQ(sequence.first_row, next_row);
        CHECK_GT(sequence.num_rows, 0);
        CHECK_GE(sequence.first_position, 0);
        CHECK_LE(sequence.first_position + sequence.num_rows, config.max_position_embeddings);
        next_row += sequence.num_rows;
    }
    CHECK_EQ(next_row, batch.num_rows());
    for (const TokenId token : batch.tokens)
        CHECK(token >= 0 && token < config.vocab_size, "token {} of {}", token, config.vocab_size);
    int32_t previous = -1;
    for (const int32_t row : batch.logit_rows) {
        CHECK(row > previous && row < batch.num_rows(), "logits of row {} after row {}, of {}", row, previous,
              batch.num_rows());
        previous = row;
    }
}

[[noreturn]] void not_there(std::string_view operation, int32_t layer) {
    CHECK(false, "layer {} asks for {}, which this backend lacks", layer, operation);
}

}  // namespace

void WalkBackend::delta_conv(int32_t layer, const DeltaConfig&) { not_there("delta_conv", layer); }
void WalkBackend::delta_gates(int32_t layer, const DeltaConfig&) { not_there("delta_gates", layer); }
void WalkBackend::l2_norm(int32_t layer, const DeltaConfig&) { not_there("l2_norm", layer); }
void WalkBackend::delta_update(int32_t layer, const DeltaConfig&) { not_there("delta_update", layer); }
void WalkBackend::delta_norm(int32_t layer, const DeltaConfig&, float) { not_there("delta_norm", layer); }
void WalkBackend::head_norm(int32_t layer, const AttentionConfig&, float) { not_there("head_norm", layer); }
void WalkBackend::output_gate(int32_t layer, const AttentionConfig&) { not_there("output_gate", layer); }
void WalkBackend::hidden() { not_there("hidden rows", 0); }

std::string_view buffer_name(Buffer buffer) { return kBufferNames[static_cast<size_t>(buffer)]; }
std::string_view matrix_name(Matrix matrix) { return kMatrixNames[static_cast<size_t>(matrix)]; }
std::string_view walk_op_name(WalkOp op) { return kWalkOpNames[static_cast<size_t>(op)]; }

std::string to_string(const WalkPoint& point) {
    return fmt::format("layer {} {} {}", point.layer, walk_op_name(point.op), buffer_name(point.buffer));
}

int64_t width_of(const ModelConfig& config, Buffer buffer) {
    switch (buffer) {
        case Buffer::kResidual:
        case Buffer::kNormed:
        case Buffer::kBranch:
        case Buffer::kHead: return config.hidden_size;
        case Buffer::kLogits: return config.vocab_size;
        default: break;
    }
    int64_t width = 0;
    for (const LayerConfig& layer : config.layers) {
        if (layer.mamba) width = std::max(width, mamba_width(*layer.mamba, buffer));
        if (layer.attention) width = std::max(width, attention_width(*layer.attention, buffer));
        if (layer.mlp) width = std::max(width, mlp_width(*layer.mlp, buffer));
        if (layer.moe) width = std::max(width, moe_width(layer, config.hidden_size, buffer));
        if (layer.delta) width = std::max(width, delta_width(*layer.delta, buffer));
    }
    return width;
}

Linear linear_of(const ModelWeights& weights, MatrixId id) {
    if (id.matrix == Matrix::kLmHead) return {weights.lm_head, {}};
    const LayerWeights& layer = weights.layers.at(static_cast<size_t>(id.layer));
    switch (id.matrix) {
        case Matrix::kInProj:
            return layer.delta.in_proj.empty() ? Linear{layer.mamba.in_proj, layer.mamba.in_bias}
                                               : Linear{layer.delta.in_proj, {}};
        case Matrix::kOutProj:
            return layer.delta.out_proj.empty() ? Linear{layer.mamba.out_proj, layer.mamba.out_bias}
                                                : Linear{layer.delta.out_proj, {}};
        case Matrix::kInputEmbedding: return {weights.input.embedding, {}};
        case Matrix::kInputHidden: return {weights.input.hidden, {}};
        case Matrix::kZ: return {layer.delta.z, {}};
        case Matrix::kB: return {layer.delta.b, {}};
        case Matrix::kA: return {layer.delta.a, {}};
        case Matrix::kQ: return {layer.attention.q, layer.attention.q_bias};
        case Matrix::kK: return {layer.attention.k, layer.attention.k_bias};
        case Matrix::kV: return {layer.attention.v, layer.attention.v_bias};
        case Matrix::kO: return {layer.attention.o, layer.attention.o_bias};
        case Matrix::kGate: return {layer.mlp.gate, layer.mlp.gate_bias};
        case Matrix::kUp: return {layer.mlp.up, layer.mlp.up_bias};
        case Matrix::kDown: return {layer.mlp.down, layer.mlp.down_bias};
        case Matrix::kExpertGate: return {layer.moe.experts.at(static_cast<size_t>(id.expert)).gate, {}};
        case Matrix::kExpertUp: return {layer.moe.experts.at(static_cast<size_t>(id.expert)).up, {}};
        case Matrix::kExpertDown: return {layer.moe.experts.at(static_cast<size_t>(id.expert)).down, {}};
        case Matrix::kLatentIn: return {layer.moe.latent_in, layer.moe.latent_in_bias};
        case Matrix::kLatentOut: return {layer.moe.latent_out, layer.moe.latent_out_bias};
        case Matrix::kSharedGate: return {layer.moe.shared_gate, {}};
        case Matrix::kLmHead: break;
    }
    return {};
}

VectorView norm_of(const ModelWeights& weights, int32_t layer, Norm norm) {
    if (norm == Norm::kFinal) return weights.final_norm;
    if (norm == Norm::kInputEmbedding) return weights.input.embedding_norm;
    if (norm == Norm::kInputHidden) return weights.input.hidden_norm;
    const LayerWeights& of = weights.layers.at(static_cast<size_t>(layer));
    return norm == Norm::kMixer ? of.mixer_norm : of.mlp_norm;
}

ProjectedColumns projected_columns(const MambaConfig& mamba) {
    ProjectedColumns columns;
    int64_t next = 0;
    const auto take = [&next](int64_t count) {
        const Columns taken{next, count};
        next += count;
        return taken;
    };
    columns.z = take(mamba.d_inner());
    columns.x = take(mamba.d_inner());
    columns.b = take(mamba.bc_rows());
    columns.c = take(mamba.bc_rows());
    columns.dt = take(mamba.n_heads);
    columns.conv = {columns.x.first, mamba.conv_dim()};
    return columns;
}

DeltaColumns delta_columns(const DeltaConfig& delta) {
    const int64_t keys = delta.key_rows();
    return {{0, keys}, {keys, keys}, {2 * keys, delta.value_rows()}};
}

void WalkBackend::route(int32_t layer, const MoeConfig&) { CHECK(false, "layer {}: no router here", layer); }
void WalkBackend::choose(int32_t layer, const MoeConfig&) { CHECK(false, "layer {}: no router here", layer); }
void WalkBackend::experts(int32_t layer, const MoeConfig&, Buffer, Buffer) {
    CHECK(false, "layer {}: no experts here", layer);
}
void WalkBackend::add_routed(bool) { CHECK(false, "no experts here"); }

void walk(const ModelConfig& config, std::span<const OpCall> pass, const WalkBatch& batch, WalkBackend& backend) {
    check_batch(config, batch);
    if (batch.num_rows() == 0) return;
    backend.begin(batch);
    for (const OpCall& op : pass) {
        if (op.is_of_head(config) && batch.num_logit_rows() == 0) break;
        call(config, op, backend);
        for (const WalkPoint& point : op.written()) backend.observe(point);
    }
}

}  // namespace verbatim::reference
