#include "reference/forward_pass.h"

#include <utility>

#include "engine/base/check.h"

namespace verbatim::reference {
namespace {

// Lists the calls, layer by layer.
class PassBuilder {
public:
    explicit PassBuilder(const ModelConfig& config) : config_(config) {}

    std::vector<OpCall> build() {
        add({.op = WalkOp::kEmbed, .multiplier = static_cast<float>(config_.embedding_multiplier)}, Buffer::kResidual,
            config_.hidden_size);
        if (config_.reads_hidden) input();
        for (size_t i = 0; i < config_.layers.size(); ++i) layer(static_cast<int32_t>(i), config_.layers[i]);
        head();
        return std::move(calls_);
    }

private:
    void input() {
        norm(0, Norm::kInputEmbedding);
        project(0, Matrix::kInputEmbedding, 1.0, Buffer::kBranch, config_.hidden_size);
        add({WalkOp::kHidden, 0}, Buffer::kResidual, config_.hidden_size);
        norm(0, Norm::kInputHidden);
        project(0, Matrix::kInputHidden, 1.0, Buffer::kResidual, config_.hidden_size);
        add_branch(0, 1.0);
    }

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
        add({WalkOp::kLayer, i}, Buffer::kResidual, config_.hidden_size);
    }

    void mamba(int32_t i, const MambaConfig& mamba) {
        project(i, Matrix::kInProj, mamba.in_multiplier, Buffer::kProjected, mamba.in_rows());
        const ProjectedColumns columns = projected_columns(mamba);
        scale(i, Buffer::kProjected, columns.z, mamba.multipliers.z);
        scale(i, Buffer::kProjected, columns.x, mamba.multipliers.x);
        scale(i, Buffer::kProjected, columns.b, mamba.multipliers.b);
        scale(i, Buffer::kProjected, columns.c, mamba.multipliers.c);
        scale(i, Buffer::kProjected, columns.dt, mamba.multipliers.dt);
        add({WalkOp::kConv, i}, Buffer::kConv, mamba.conv_dim());
        add({WalkOp::kScan, i}, Buffer::kMixed, mamba.d_inner());
        calls_.push_back({.op = WalkOp::kCheckState, .layer = i});
        add({WalkOp::kGatedNorm, i}, Buffer::kMixed, mamba.d_inner());
        matmul({i, Matrix::kOutProj}, Buffer::kMixed, mamba.d_inner(), 1.0, Buffer::kBranch, config_.hidden_size);
        add_branch(i, mamba.out_multiplier);
    }

    void delta(int32_t i, const DeltaConfig& delta) {
        project(i, Matrix::kInProj, 1.0, Buffer::kProjected, delta.conv_dim());
        project(i, Matrix::kZ, 1.0, Buffer::kZ, delta.value_rows());
        project(i, Matrix::kB, 1.0, Buffer::kB, delta.n_value_heads);
        project(i, Matrix::kA, 1.0, Buffer::kA, delta.n_value_heads);
        add({WalkOp::kConv, i}, Buffer::kConv, delta.conv_dim());
        add({WalkOp::kDeltaGates, i}, Buffer::kB, delta.n_value_heads, Buffer::kA, delta.n_value_heads);
        add({WalkOp::kL2Norm, i}, Buffer::kConv, 2 * delta.key_rows());
        add({WalkOp::kDeltaUpdate, i}, Buffer::kMixed, delta.value_rows());
        calls_.push_back({.op = WalkOp::kCheckState, .layer = i});
        add({WalkOp::kGatedNorm, i}, Buffer::kMixed, delta.value_rows());
        matmul({i, Matrix::kOutProj}, Buffer::kMixed, delta.value_rows(), 1.0, Buffer::kBranch, config_.hidden_size);
        add_branch(i, 1.0);
    }

    void attention(int32_t i, const AttentionConfig& attention) {
        const Buffer q = attention.output_gate ? Buffer::kQGate : Buffer::kQ;
        project(i, Matrix::kQ, attention.in_multiplier, q, attention.q_proj_rows());
        project(i, Matrix::kK, attention.in_multiplier, Buffer::kK, attention.kv_rows());
        project(i, Matrix::kV, attention.in_multiplier, Buffer::kV, attention.kv_rows());
        scale(i, Buffer::kK, {0, attention.kv_rows()}, attention.key_multiplier);
        if (attention.qk_norm) {
            add({WalkOp::kHeadNorm, i}, Buffer::kQ, attention.q_rows(), Buffer::kK, attention.kv_rows());
        }
        if (attention.rope.kind != RopeKind::kNone) {
            add({WalkOp::kRope, i}, Buffer::kQ, attention.q_rows(), Buffer::kK, attention.kv_rows());
        }
        calls_.push_back({.op = WalkOp::kStoreKv, .layer = i});
        add({.op = WalkOp::kAttention, .layer = i, .multiplier = static_cast<float>(attention.scale)}, Buffer::kMixed,
            attention.q_rows());
        if (attention.output_gate) {
            add({WalkOp::kOutputGate, i}, Buffer::kMixed, attention.q_rows());
        }
        matmul({i, Matrix::kO}, Buffer::kMixed, attention.q_rows(), 1.0, Buffer::kBranch, config_.hidden_size);
        add_branch(i, attention.out_multiplier);
    }

    void mlp(int32_t i, const MlpConfig& mlp) {
        if (mlp.kind == MlpKind::kGatedSilu) project(i, Matrix::kGate, 1.0, Buffer::kGate, mlp.d_ff);
        project(i, Matrix::kUp, 1.0, Buffer::kUp, mlp.d_ff);
        add({WalkOp::kActivation, i}, Buffer::kUp, mlp.d_ff);
        matmul({i, Matrix::kDown}, Buffer::kUp, mlp.d_ff, 1.0, Buffer::kBranch, config_.hidden_size);
    }

    void moe(int32_t i, const MoeConfig& moe, Buffer out) {
        add({WalkOp::kRoute, i}, Buffer::kRouter, moe.n_experts);
        add({WalkOp::kChoose, i}, Buffer::kChosen, 2 * int64_t{moe.n_chosen});
        const bool latent = moe.d_latent > 0;
        if (latent) project(i, Matrix::kLatentIn, 1.0, Buffer::kLatent, moe.d_latent);
        const Buffer sum = latent ? Buffer::kLatentSum : out;
        const int64_t width = moe.row_width(config_.hidden_size);
        add({.op = WalkOp::kExperts,
             .layer = i,
             .in = latent ? Buffer::kLatent : Buffer::kNormed,
             .out = sum,
             .columns = {0, width}},
            sum, width);
        if (latent) matmul({i, Matrix::kLatentOut}, Buffer::kLatentSum, moe.d_latent, 1.0, out, config_.hidden_size);
    }

    void add_routed(int32_t i, const MoeConfig& moe) {
        if (moe.shared_gate) project(i, Matrix::kSharedGate, 1.0, Buffer::kSharedGate, 1);
        add({WalkOp::kAddRouted, i}, Buffer::kBranch, config_.hidden_size);
    }

    void head() {
        const auto last = static_cast<int32_t>(config_.layers.size());
        add({.op = WalkOp::kFinalNorm, .layer = last, .norm = Norm::kFinal}, Buffer::kHead, config_.hidden_size);
        matmul({last, Matrix::kLmHead}, Buffer::kHead, config_.hidden_size, 1.0, Buffer::kLogits, config_.vocab_size);
        add({.op = WalkOp::kLogits,
             .layer = last,
             .multiplier = static_cast<float>(config_.logits_multiplier),
             .second = static_cast<float>(config_.logits_divisor)},
            Buffer::kLogits, config_.vocab_size);
        calls_.push_back({.op = WalkOp::kCheckLogits, .layer = last});
    }

    void norm(int32_t i, Norm norm) {
        add({.op = WalkOp::kNorm, .layer = i, .norm = norm}, Buffer::kNormed, config_.hidden_size);
    }

    // Of the normed rows.
    void project(int32_t i, Matrix matrix, double in_multiplier, Buffer out, int64_t width) {
        matmul({i, matrix}, Buffer::kNormed, config_.hidden_size, in_multiplier, out, width);
    }
    // [width, k] times `in`, whose first k columns are read.
    void matmul(MatrixId id, Buffer in, int64_t k, double in_multiplier, Buffer out, int64_t width) {
        add({.op = WalkOp::kMatmul,
             .layer = id.layer,
             .in = in,
             .out = out,
             .columns = {0, k},
             .matrix = id.matrix,
             .multiplier = static_cast<float>(in_multiplier)},
            out, width);
    }

    void scale(int32_t i, Buffer buffer, Columns columns, double multiplier) {
        if (multiplier == 1.0) return;
        calls_.push_back({.op = WalkOp::kScale,
                          .layer = i,
                          .out = buffer,
                          .columns = columns,
                          .multiplier = static_cast<float>(multiplier),
                          .points = {WalkPoint{i, WalkOp::kScale, buffer, columns}},
                          .num_points = 1});
    }

    void add_branch(int32_t i, double branch_multiplier) {
        add({.op = WalkOp::kAddBranch,
             .layer = i,
             .multiplier = static_cast<float>(branch_multiplier),
             .second = static_cast<float>(config_.residual_multiplier)},
            Buffer::kResidual, config_.hidden_size);
    }

    void add(OpCall op, Buffer written, int64_t width) {
        op.points[op.num_points++] = {op.layer, op.op, written, {0, width}};
        calls_.push_back(op);
    }
    void add(OpCall op, Buffer written, int64_t width, Buffer also_written, int64_t its_width) {
        op.points[op.num_points++] = {op.layer, op.op, written, {0, width}};
        add(op, also_written, its_width);
    }

    const ModelConfig& config_;
    std::vector<OpCall> calls_;
};

}  // namespace

std::vector<OpCall> forward_pass(const ModelConfig& config) { return PassBuilder(config).build(); }

void call(const ModelConfig& config, const OpCall& op, WalkBackend& backend) {
    const auto eps = static_cast<float>(config.norm_eps);
    const auto layer = [&]() -> const LayerConfig& { return config.layers[static_cast<size_t>(op.layer)]; };
    switch (op.op) {
        case WalkOp::kEmbed: return backend.embed(op.multiplier);
        case WalkOp::kNorm:
        case WalkOp::kFinalNorm: return backend.norm(op.layer, op.norm, eps);
        case WalkOp::kMatmul: return backend.matmul(op.matrix_id(), op.in, op.multiplier, op.out);
        case WalkOp::kScale: return backend.scale(op.out, op.columns, op.multiplier);
        case WalkOp::kConv:
            return layer().delta ? backend.delta_conv(op.layer, *layer().delta)
                                 : backend.conv(op.layer, *layer().mamba);
        case WalkOp::kScan: return backend.scan(op.layer, *layer().mamba);
        case WalkOp::kCheckState: return backend.check_state(op.layer);
        case WalkOp::kGatedNorm:
            return layer().delta ? backend.delta_norm(op.layer, *layer().delta, eps)
                                 : backend.gated_norm(op.layer, *layer().mamba, eps);
        case WalkOp::kRope: return backend.rope(op.layer, *layer().attention);
        case WalkOp::kStoreKv: return backend.store_kv(op.layer, *layer().attention);
        case WalkOp::kAttention: return backend.attention(op.layer, *layer().attention, op.multiplier);
        case WalkOp::kActivation: return backend.activation(op.layer, *layer().mlp);
        case WalkOp::kAddBranch: return backend.add_branch(op.multiplier, op.second);
        case WalkOp::kLayer: return;
        case WalkOp::kHidden: return backend.hidden();
        case WalkOp::kLogits:
            if (op.multiplier != 1 || op.second != 1) backend.scale_logits(op.multiplier, op.second);
            return;
        case WalkOp::kCheckLogits: return backend.check_logits();
        case WalkOp::kRoute: return backend.route(op.layer, *layer().moe);
        case WalkOp::kChoose: return backend.choose(op.layer, *layer().moe);
        case WalkOp::kExperts: return backend.experts(op.layer, *layer().moe, op.in, op.out);
        case WalkOp::kAddRouted: return backend.add_routed(layer().moe->shared_gate);
        case WalkOp::kDeltaGates: return backend.delta_gates(op.layer, *layer().delta);
        case WalkOp::kL2Norm: return backend.l2_norm(op.layer, *layer().delta);
        case WalkOp::kDeltaUpdate: return backend.delta_update(op.layer, *layer().delta);
        case WalkOp::kHeadNorm: return backend.head_norm(op.layer, *layer().attention, eps);
        case WalkOp::kOutputGate: return backend.output_gate(op.layer, *layer().attention);
    }
    CHECK(false, "operation {}", static_cast<int>(op.op));
}

std::vector<MatrixId> matrices_of(const ModelConfig& config) {
    std::vector<MatrixId> ids;
    for (const OpCall& op : forward_pass(config)) {
        if (op.op == WalkOp::kMatmul) ids.push_back(op.matrix_id());
        if (op.op != WalkOp::kExperts) continue;
        const MoeConfig& moe = *config.layers[static_cast<size_t>(op.layer)].moe;
        for (int32_t expert = 0; expert < moe.n_experts; ++expert) {
            if (moe.kind == MlpKind::kGatedSilu) ids.push_back({op.layer, Matrix::kExpertGate, expert});
            ids.push_back({op.layer, Matrix::kExpertUp, expert});
            ids.push_back({op.layer, Matrix::kExpertDown, expert});
        }
    }
    return ids;
}

}  // namespace verbatim::reference
