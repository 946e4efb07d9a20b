#include "reference/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/check.h"

namespace verbatim::reference {

namespace {

constexpr std::array<std::string_view, kNumBuffers> kBufferNames = {
    "residual",   "normed", "projected",   "conv", "q",      "k",      "v",      "mixed",
    "gate",       "up",     "branch",      "head", "logits", "router", "chosen", "latent",
    "latent_sum", "routed", "shared_gate", "z",    "b",      "a",      "q_gate"};
constexpr std::array<std::string_view, kNumMatrices> kMatrixNames = {
    "in_proj",    "out_proj",    "q",       "k",           "v",         "o",           "gate",
    "up",         "down",        "lm_head", "expert_gate", "expert_up", "expert_down", "latent_in",
    "latent_out", "shared_gate", "z",       "b",           "a"};
constexpr std::array<std::string_view, 23> kWalkOpNames = {
    "embed",     "norm",       "matmul",      "scale",   "conv",         "scan",      "gated_norm", "rope",
    "attention", "activation", "add_branch",  "layer",   "final_norm",   "logits",    "route",      "choose",
    "experts",   "add_routed", "delta_gates", "l2_norm", "delta_update", "head_norm", "output_gate"};

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

// One pass over the model: calls the backend and reports what each call wrote.
class Walker {
public:
    Walker(const ModelConfig& config, WalkBackend& backend)
        : config_(config), backend_(backend), norm_eps_(static_cast<float>(config.norm_eps)) {}

    void run(const WalkBatch& batch) {
        backend_.begin(batch);
        backend_.embed(static_cast<float>(config_.embedding_multiplier));
        report(-1, WalkOp::kEmbed, Buffer::kResidual, config_.hidden_size);
        for (size_t i = 0; i < config_.layers.size(); ++i) layer(static_cast<int32_t>(i), config_.layers[i]);
        if (batch.num_logit_rows() > 0) head();
    }

private:
    void layer(int32_t i, const LayerConfig& layer) {
        if (layer.has_mixer()) norm(i, Norm::kMixer);
        if (layer.mamba) mamba(i, *layer.mamba);
        if (layer.delta) delta(i, *layer.delta);
        if (layer.attention) attention(i, *layer.attention);
        if (layer.has_feed_forward()) {
            norm(i, Norm::kMlp);
            if (layer.moe) moe(i, *layer.moe, layer.mlp ? Buffer::kRouted : Buffer::kBranch);
            if (layer.mlp) mlp(i, *layer.mlp);
            if (layer.moe && layer.mlp) add_routed(i, *layer.moe);
            add_branch(i, layer.mlp ? layer.mlp->out_multiplier : 1.0);
        }
        report(i, WalkOp::kLayer, Buffer::kResidual, config_.hidden_size);
    }

    void mamba(int32_t i, const MambaConfig& mamba) {
        matmul({i, Matrix::kInProj}, Buffer::kNormed, mamba.in_multiplier, Buffer::kProjected, mamba.in_rows());
        const ProjectedColumns columns = projected_columns(mamba);
        scale(i, Buffer::kProjected, columns.z, mamba.multipliers.z);
        scale(i, Buffer::kProjected, columns.x, mamba.multipliers.x);
        scale(i, Buffer::kProjected, columns.b, mamba.multipliers.b);
        scale(i, Buffer::kProjected, columns.c, mamba.multipliers.c);
        scale(i, Buffer::kProjected, columns.dt, mamba.multipliers.dt);
        backend_.conv(i, mamba);
        report(i, WalkOp::kConv, Buffer::kConv, mamba.conv_dim());
        backend_.scan(i, mamba);
        report(i, WalkOp::kScan, Buffer::kMixed, mamba.d_inner());
        backend_.check_state(i);
        backend_.gated_norm(i, mamba, norm_eps_);
        report(i, WalkOp::kGatedNorm, Buffer::kMixed, mamba.d_inner());
        matmul({i, Matrix::kOutProj}, Buffer::kMixed, 1.0, Buffer::kBranch, config_.hidden_size);
        add_branch(i, mamba.out_multiplier);
    }

    void delta(int32_t i, const DeltaConfig& delta) {
        matmul({i, Matrix::kInProj}, Buffer::kNormed, 1.0, Buffer::kProjected, delta.conv_dim());
        matmul({i, Matrix::kZ}, Buffer::kNormed, 1.0, Buffer::kZ, delta.value_rows());
        matmul({i, Matrix::kB}, Buffer::kNormed, 1.0, Buffer::kB, delta.n_value_heads);
        matmul({i, Matrix::kA}, Buffer::kNormed, 1.0, Buffer::kA, delta.n_value_heads);
        backend_.delta_conv(i, delta);
        report(i, WalkOp::kConv, Buffer::kConv, delta.conv_dim());
        backend_.delta_gates(i, delta);
        report(i, WalkOp::kDeltaGates, Buffer::kB, delta.n_value_heads);
        report(i, WalkOp::kDeltaGates, Buffer::kA, delta.n_value_heads);
        backend_.l2_norm(i, delta);
        backend_.observe({i, WalkOp::kL2Norm, Buffer::kConv, {0, 2 * delta.key_rows()}});
        backend_.delta_update(i, delta);
        report(i, WalkOp::kDeltaUpdate, Buffer::kMixed, delta.value_rows());
        backend_.check_state(i);
        backend_.delta_norm(i, delta, norm_eps_);
        report(i, WalkOp::kGatedNorm, Buffer::kMixed, delta.value_rows());
        matmul({i, Matrix::kOutProj}, Buffer::kMixed, 1.0, Buffer::kBranch, config_.hidden_size);
        add_branch(i, 1.0);
    }

    void attention(int32_t i, const AttentionConfig& attention) {
        const Buffer q = attention.output_gate ? Buffer::kQGate : Buffer::kQ;
        matmul({i, Matrix::kQ}, Buffer::kNormed, attention.in_multiplier, q, attention.q_proj_rows());
        matmul({i, Matrix::kK}, Buffer::kNormed, attention.in_multiplier, Buffer::kK, attention.kv_rows());
        matmul({i, Matrix::kV}, Buffer::kNormed, attention.in_multiplier, Buffer::kV, attention.kv_rows());
        scale(i, Buffer::kK, {0, attention.kv_rows()}, attention.key_multiplier);
        if (attention.qk_norm) {
            backend_.head_norm(i, attention, norm_eps_);
            report(i, WalkOp::kHeadNorm, Buffer::kQ, attention.q_rows());
            report(i, WalkOp::kHeadNorm, Buffer::kK, attention.kv_rows());
        }
        if (attention.rope.kind != RopeKind::kNone) {
            backend_.rope(i, attention);
            report(i, WalkOp::kRope, Buffer::kQ, attention.q_rows());
            report(i, WalkOp::kRope, Buffer::kK, attention.kv_rows());
        }
        backend_.store_kv(i, attention);
        backend_.attention(i, attention, static_cast<float>(attention.scale));
        report(i, WalkOp::kAttention, Buffer::kMixed, attention.q_rows());
        if (attention.output_gate) {
            backend_.output_gate(i, attention);
            report(i, WalkOp::kOutputGate, Buffer::kMixed, attention.q_rows());
        }
        matmul({i, Matrix::kO}, Buffer::kMixed, 1.0, Buffer::kBranch, config_.hidden_size);
        add_branch(i, attention.out_multiplier);
    }

    void mlp(int32_t i, const MlpConfig& mlp) {
        if (mlp.kind == MlpKind::kGatedSilu) matmul({i, Matrix::kGate}, Buffer::kNormed, 1.0, Buffer::kGate, mlp.d_ff);
        matmul({i, Matrix::kUp}, Buffer::kNormed, 1.0, Buffer::kUp, mlp.d_ff);
        backend_.activation(i, mlp);
        report(i, WalkOp::kActivation, Buffer::kUp, mlp.d_ff);
        matmul({i, Matrix::kDown}, Buffer::kUp, 1.0, Buffer::kBranch, config_.hidden_size);
    }

    void moe(int32_t i, const MoeConfig& moe, Buffer out) {
        backend_.route(i, moe);
        report(i, WalkOp::kRoute, Buffer::kRouter, moe.n_experts);
        backend_.choose(i, moe);
        report(i, WalkOp::kChoose, Buffer::kChosen, 2 * int64_t{moe.n_chosen});
        const bool latent = moe.d_latent > 0;
        if (latent) matmul({i, Matrix::kLatentIn}, Buffer::kNormed, 1.0, Buffer::kLatent, moe.d_latent);
        const Buffer sum = latent ? Buffer::kLatentSum : out;
        backend_.experts(i, moe, latent ? Buffer::kLatent : Buffer::kNormed, sum);
        report(i, WalkOp::kExperts, sum, moe.row_width(config_.hidden_size));
        if (latent) matmul({i, Matrix::kLatentOut}, Buffer::kLatentSum, 1.0, out, config_.hidden_size);
    }

    void add_routed(int32_t i, const MoeConfig& moe) {
        if (moe.shared_gate) matmul({i, Matrix::kSharedGate}, Buffer::kNormed, 1.0, Buffer::kSharedGate, 1);
        backend_.add_routed(moe.shared_gate);
        report(i, WalkOp::kAddRouted, Buffer::kBranch, config_.hidden_size);
    }

    void head() {
        const auto last = static_cast<int32_t>(config_.layers.size());
        backend_.norm(last, Norm::kFinal, norm_eps_);
        report(last, WalkOp::kFinalNorm, Buffer::kHead, config_.hidden_size);
        matmul({last, Matrix::kLmHead}, Buffer::kHead, 1.0, Buffer::kLogits, config_.vocab_size);
        if (config_.logits_multiplier != 1.0 || config_.logits_divisor != 1.0) {
            backend_.scale_logits(static_cast<float>(config_.logits_multiplier),
                                  static_cast<float>(config_.logits_divisor));
        }
        report(last, WalkOp::kLogits, Buffer::kLogits, config_.vocab_size);
        backend_.check_logits();
    }

    void norm(int32_t i, Norm norm) {
        backend_.norm(i, norm, norm_eps_);
        report(i, WalkOp::kNorm, Buffer::kNormed, config_.hidden_size);
    }

    void matmul(MatrixId id, Buffer in, double in_multiplier, Buffer out, int64_t width) {
        backend_.matmul(id, in, static_cast<float>(in_multiplier), out);
        report(id.layer, WalkOp::kMatmul, out, width);
    }

    void scale(int32_t i, Buffer buffer, Columns columns, double multiplier) {
        if (multiplier == 1.0) return;
        backend_.scale(buffer, columns, static_cast<float>(multiplier));
        backend_.observe({i, WalkOp::kScale, buffer, columns});
    }

    void add_branch(int32_t i, double branch_multiplier) {
        backend_.add_branch(static_cast<float>(branch_multiplier), static_cast<float>(config_.residual_multiplier));
        report(i, WalkOp::kAddBranch, Buffer::kResidual, config_.hidden_size);
    }

    void report(int32_t i, WalkOp op, Buffer buffer, int64_t width) { backend_.observe({i, op, buffer, {0, width}}); }

    const ModelConfig& config_;
    WalkBackend& backend_;
    float norm_eps_;
};

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

std::vector<MatrixId> matrices_of(const ModelConfig& config) {
    std::vector<MatrixId> ids;
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const LayerConfig& layer = config.layers[i];
        const auto add = [&](std::initializer_list<Matrix> matrices) {
            for (const Matrix matrix : matrices) ids.push_back({static_cast<int32_t>(i), matrix});
        };
        if (layer.mamba) add({Matrix::kInProj, Matrix::kOutProj});
        if (layer.delta) add({Matrix::kInProj, Matrix::kZ, Matrix::kB, Matrix::kA, Matrix::kOutProj});
        if (layer.attention) add({Matrix::kQ, Matrix::kK, Matrix::kV, Matrix::kO});
        if (layer.moe && layer.moe->d_latent > 0) add({Matrix::kLatentIn});
        for (int32_t e = 0; layer.moe && e < layer.moe->n_experts; ++e) {
            const auto of_layer = static_cast<int32_t>(i);
            if (layer.moe->kind == MlpKind::kGatedSilu) ids.push_back({of_layer, Matrix::kExpertGate, e});
            ids.push_back({of_layer, Matrix::kExpertUp, e});
            ids.push_back({of_layer, Matrix::kExpertDown, e});
        }
        if (layer.moe && layer.moe->d_latent > 0) add({Matrix::kLatentOut});
        if (layer.mlp && layer.mlp->kind == MlpKind::kGatedSilu) add({Matrix::kGate});
        if (layer.mlp) add({Matrix::kUp, Matrix::kDown});
        if (layer.moe && layer.moe->shared_gate) add({Matrix::kSharedGate});
    }
    ids.push_back({static_cast<int32_t>(config.layers.size()), Matrix::kLmHead});
    return ids;
}

VectorView norm_of(const ModelWeights& weights, int32_t layer, Norm norm) {
    if (norm == Norm::kFinal) return weights.final_norm;
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

void walk(const ModelConfig& config, const WalkBatch& batch, WalkBackend& backend) {
    check_batch(config, batch);
    if (batch.num_rows() > 0) Walker(config, backend).run(batch);
}

}  // namespace verbatim::reference
