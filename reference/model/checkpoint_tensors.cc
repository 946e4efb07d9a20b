#include "reference/model/checkpoint_tensors.h"
#include "reference/model/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace verbatim::reference {
namespace {

// Names as the families' published checkpoints have them.
struct FamilyNames {
    std::string_view root;  // in front of everything but the head
    std::string_view embedding;
    std::string_view final_norm;
    std::string_view mixer_norm;
    std::string_view mlp_norm;
    std::string_view mamba;  // or the delta net
    std::string_view attention;
    std::string_view mlp;
    std::string_view fused_gate_up;  // gate and up as one matrix of this name; empty if apart
    std::string_view down;
    std::string_view shared_mlp;  // the MLP in a layer with experts
};

FamilyNames family_names(Architecture architecture) {
    switch (architecture) {
        case Architecture::kGraniteHybrid:
            return {"model.",     "embed_tokens", "norm",        "input_layernorm", "post_attention_layernorm",
                    "mamba.",     "self_attn.",   "shared_mlp.", "input_linear",    "output_linear",
                    "shared_mlp."};
        case Architecture::kLlama:
            return {"model.",
                    "embed_tokens",
                    "norm",
                    "input_layernorm",
                    "post_attention_layernorm",
                    "mamba.",
                    "self_attn.",
                    "mlp.",
                    "",
                    "down_proj",
                    ""};
        case Architecture::kBamba:
        case Architecture::kFalconH1:
            return {"model.",
                    "embed_tokens",
                    "final_layernorm",
                    "input_layernorm",
                    "pre_ff_layernorm",
                    "mamba.",
                    "self_attn.",
                    "feed_forward.",
                    "",
                    "down_proj",
                    ""};
        case Architecture::kQwen35:
        case Architecture::kQwen35Moe:
        case Architecture::kQwen3Next:
            return {architecture == Architecture::kQwen3Next ? "model." : "model.language_model.",
                    "embed_tokens",
                    "norm",
                    "input_layernorm",
                    "post_attention_layernorm",
                    "linear_attn.",
                    "self_attn.",
                    "mlp.",
                    "",
                    "down_proj",
                    "mlp.shared_expert."};
        case Architecture::kNemotronH:
        case Architecture::kMamba2: break;
    }
    return {"backbone.", "embeddings",           "norm_f", "norm", "norm", "mixer.", "mixer.", "mixer.", "",
            "down_proj", "mixer.shared_experts."};
}

class Lister {
public:
    Lister(const ModelConfig& config, ModelWeights& weights, ExpertFiling filing)
        : config_(config),
          weights_(weights),
          filing_(filing),
          names_(family_names(config.architecture)),
          norm_role_(config.norm_plus_one ? TensorRole::kNormOffset : TensorRole::kNorm),
          hidden_(config.hidden_size) {}

    std::vector<CheckpointTensor> list() {
        weights_.layers.resize(config_.layers.size());
        if (config_.reads_hidden) return list_mtp();
        place_ = names_.root;
        matrix(names_.embedding, weights_.embedding, config_.vocab_size, hidden_);
        for (size_t i = 0; i < config_.layers.size(); ++i) layer(i);
        place_ = names_.root;
        vector(names_.final_norm, ".weight", norm_role_, weights_.final_norm, {hidden_});
        place_ = "";
        if (!config_.tie_word_embeddings) matrix("lm_head", weights_.lm_head, config_.vocab_size, hidden_);
        return std::move(tensors_);
    }

private:
    // Its embedding and head are those of the model that it predicts for.
    std::vector<CheckpointTensor> list_mtp() {
        names_.root = "mtp.";
        const bool is_nemotron = config_.architecture == Architecture::kNemotronH;
        // Nemotron-H has the fusion in the first layer, and the last norm in the last.
        place_ = is_nemotron ? "mtp.layers.0." : names_.root;
        vector(is_nemotron ? "enorm" : "pre_fc_norm_embedding", ".weight", norm_role_, weights_.input.embedding_norm,
               {hidden_});
        vector(is_nemotron ? "hnorm" : "pre_fc_norm_hidden", ".weight", norm_role_, weights_.input.hidden_norm,
               {hidden_});
        matrix(is_nemotron ? "eh_proj" : "fc", weights_.input.embedding, hidden_, 2 * hidden_);
        tensors_.back().matrices.push_back(&weights_.input.hidden);
        tensors_.back().by_columns = true;
        for (size_t i = 0; i < config_.layers.size(); ++i) layer(i);
        place_ = is_nemotron ? fmt::format("mtp.layers.{}.", config_.layers.size() - 1) : std::string(names_.root);
        vector(is_nemotron ? "final_layernorm" : "norm", ".weight", norm_role_, weights_.final_norm, {hidden_});
        return std::move(tensors_);
    }

    void layer(size_t index) {
        const LayerConfig& layer = config_.layers[index];
        LayerWeights& weights = weights_.layers[index];
        const std::string root = fmt::format("{}layers.{}.", names_.root, index);
        place_ = root;
        if (layer.has_mixer()) vector(names_.mixer_norm, ".weight", norm_role_, weights.mixer_norm, {hidden_});
        if (layer.mamba) mamba(root, *layer.mamba, weights.mamba);
        if (layer.delta) delta(root, *layer.delta, weights.delta);
        if (layer.attention) attention(root, *layer.attention, weights.attention);
        place_ = root;
        if (layer.has_feed_forward()) vector(names_.mlp_norm, ".weight", norm_role_, weights.mlp_norm, {hidden_});
        if (layer.moe) moe(root, *layer.moe, weights.moe);
        place_ = root + std::string(layer.moe ? names_.shared_mlp : names_.mlp);
        if (layer.mlp) mlp(*layer.mlp, weights.mlp);
    }

    void mamba(const std::string& root, const MambaConfig& mamba, MambaWeights& weights) {
        place_ = root + std::string(names_.mamba);
        matrix("in_proj", weights.in_proj, mamba.in_rows(), hidden_);
        if (mamba.in_bias) bias("in_proj", weights.in_bias, mamba.in_rows());
        vector("conv1d", ".weight", TensorRole::kConv, weights.conv_weight, {mamba.conv_dim(), 1, mamba.d_conv});
        if (mamba.conv_bias) bias("conv1d", weights.conv_bias, mamba.conv_dim());
        vector("A_log", "", TensorRole::kALog, weights.a_log, {mamba.n_heads});
        vector("D", "", TensorRole::kD, weights.d, {mamba.n_heads});
        vector("dt_bias", "", TensorRole::kDtBias, weights.dt_bias, {mamba.n_heads});
        if (mamba.gate != MambaGate::kGateOnly)
            vector("norm", ".weight", TensorRole::kNorm, weights.norm, {mamba.d_inner()});
        matrix("out_proj", weights.out_proj, hidden_, mamba.d_inner());
        if (mamba.out_bias) bias("out_proj", weights.out_bias, hidden_);
    }

    void delta(const std::string& root, const DeltaConfig& delta, DeltaWeights& weights) {
        place_ = root + std::string(names_.mamba);
        if (config_.architecture == Architecture::kQwen3Next) {
            grouped_in_proj(delta, weights);
        } else {
            matrix("in_proj_qkv", weights.in_proj, delta.conv_dim(), hidden_);
            matrix("in_proj_z", weights.z, delta.value_rows(), hidden_);
            matrix("in_proj_b", weights.b, delta.n_value_heads, hidden_);
            matrix("in_proj_a", weights.a, delta.n_value_heads, hidden_);
        }
        vector("conv1d", ".weight", TensorRole::kConv, weights.conv_weight, {delta.conv_dim(), 1, delta.d_conv});
        vector("A_log", "", TensorRole::kALog, weights.a_log, {delta.n_value_heads});
        vector("dt_bias", "", TensorRole::kDtBias, weights.dt_bias, {delta.n_value_heads});
        vector("norm", ".weight", TensorRole::kNorm, weights.norm, {delta.value_dim});
        matrix("out_proj", weights.out_proj, hidden_, delta.value_rows());
    }

    // Key head by key head: its rows of q and k, and those of v, z, b and a of the value heads that read it.
    void grouped_in_proj(const DeltaConfig& delta, DeltaWeights& weights) {
        const int64_t values = int64_t{delta.values_per_key()} * delta.value_dim;
        grouped("in_proj_qkvz", delta.n_key_heads,
                {{&weights.in_proj, 0, delta.key_dim},
                 {&weights.in_proj, delta.key_rows(), delta.key_dim},
                 {&weights.in_proj, 2 * delta.key_rows(), values},
                 {&weights.z, 0, values}});
        grouped("in_proj_ba", delta.n_key_heads,
                {{&weights.b, 0, delta.values_per_key()}, {&weights.a, 0, delta.values_per_key()}});
    }

    void attention(const std::string& root, const AttentionConfig& attention, AttentionWeights& weights) {
        place_ = root + std::string(names_.attention);
        matrix("q_proj", weights.q, attention.q_proj_rows(), hidden_);
        matrix("k_proj", weights.k, attention.kv_rows(), hidden_);
        matrix("v_proj", weights.v, attention.kv_rows(), hidden_);
        matrix("o_proj", weights.o, hidden_, attention.q_rows());
        if (attention.qk_norm) {
            vector("q_norm", ".weight", norm_role_, weights.q_norm, {attention.head_dim});
            vector("k_norm", ".weight", norm_role_, weights.k_norm, {attention.head_dim});
        }
        if (attention.qkv_bias) {
            bias("q_proj", weights.q_bias, attention.q_proj_rows());
            bias("k_proj", weights.k_bias, attention.kv_rows());
            bias("v_proj", weights.v_bias, attention.kv_rows());
        }
        if (attention.o_bias) bias("o_proj", weights.o_bias, hidden_);
    }

    void moe(const std::string& root, const MoeConfig& moe, MoeWeights& weights) {
        weights.experts.resize(static_cast<size_t>(moe.n_experts));
        switch (config_.architecture) {
            case Architecture::kGraniteHybrid: return granite_moe(root + "block_sparse_moe.", moe, weights);
            case Architecture::kQwen35Moe:
            case Architecture::kQwen3Next: return qwen_moe(root + "mlp.", moe, weights);
            default: return nemotron_moe(root + "mixer.", moe, weights);
        }
    }

    void granite_moe(const std::string& root, const MoeConfig& moe, MoeWeights& weights) {
        place_ = root;
        vector("router.layer", ".weight", TensorRole::kRouter, weights.router, {moe.n_experts, hidden_});
        experts_together("input_linear.weight", "output_linear.weight", moe, weights);
    }

    // All experts in one tensor of three dimensions, and another.
    void experts_together(std::string_view in_name, std::string_view out_name, const MoeConfig& moe,
                          MoeWeights& weights) {
        const int64_t width = moe.row_width(config_.hidden_size);
        CheckpointTensor in{place_ + std::string(in_name), {moe.n_experts, 2 * int64_t{moe.d_ff}, width}, {}, {}, {}};
        CheckpointTensor out{place_ + std::string(out_name), {moe.n_experts, width, moe.d_ff}, {}, {}, {}};
        for (MlpWeights& expert : weights.experts) {
            in.matrices.insert(in.matrices.end(), {&expert.gate, &expert.up});
            out.matrices.push_back(&expert.down);
        }
        tensors_.push_back(std::move(in));
        tensors_.push_back(std::move(out));
    }

    // A tensor for each matrix of each expert.
    void experts_one_by_one(const std::string& root, const MoeConfig& moe, MoeWeights& weights) {
        const int64_t width = moe.row_width(config_.hidden_size);
        for (size_t e = 0; e < weights.experts.size(); ++e) {
            place_ = fmt::format("{}experts.{}.", root, e);
            if (moe.kind == MlpKind::kGatedSilu) matrix("gate_proj", weights.experts[e].gate, moe.d_ff, width);
            matrix("up_proj", weights.experts[e].up, moe.d_ff, width);
            matrix("down_proj", weights.experts[e].down, width, moe.d_ff);
        }
        place_ = root;
    }

    void qwen_moe(const std::string& root, const MoeConfig& moe, MoeWeights& weights) {
        const ExpertFiling published =
            config_.architecture == Architecture::kQwen3Next ? ExpertFiling::kOneByOne : ExpertFiling::kTogether;
        place_ = root;
        vector("gate", ".weight", TensorRole::kRouter, weights.router, {moe.n_experts, hidden_});
        if ((filing_ == ExpertFiling::kAsPublished ? published : filing_) == ExpertFiling::kTogether)
            experts_together("experts.gate_up_proj", "experts.down_proj", moe, weights);
        else
            experts_one_by_one(root, moe, weights);
        if (moe.shared_gate) matrix("shared_expert_gate", weights.shared_gate, 1, hidden_);
    }

    void nemotron_moe(const std::string& root, const MoeConfig& moe, MoeWeights& weights) {
        place_ = root;
        vector("gate", ".weight", TensorRole::kRouter, weights.router, {moe.n_experts, hidden_});
        vector("gate", ".e_score_correction_bias", TensorRole::kBias, weights.choice_bias, {moe.n_experts});
        experts_one_by_one(root, moe, weights);
        if (moe.d_latent == 0) return;
        matrix("fc1_latent_proj", weights.latent_in, moe.d_latent, hidden_);
        if (moe.latent_bias) bias("fc1_latent_proj", weights.latent_in_bias, moe.d_latent);
        matrix("fc2_latent_proj", weights.latent_out, hidden_, moe.d_latent);
        if (moe.latent_bias) bias("fc2_latent_proj", weights.latent_out_bias, hidden_);
    }

    void mlp(const MlpConfig& mlp, MlpWeights& weights) {
        const bool gated = mlp.kind == MlpKind::kGatedSilu;
        if (gated && !names_.fused_gate_up.empty()) {
            matrix(names_.fused_gate_up, weights.gate, 2 * int64_t{mlp.d_ff}, hidden_);
            tensors_.back().matrices.push_back(&weights.up);
        } else {
            if (gated) matrix("gate_proj", weights.gate, mlp.d_ff, hidden_);
            matrix("up_proj", weights.up, mlp.d_ff, hidden_);
        }
        if (mlp.up_bias && gated) bias("gate_proj", weights.gate_bias, mlp.d_ff);
        if (mlp.up_bias) bias("up_proj", weights.up_bias, mlp.d_ff);
        matrix(names_.down, weights.down, hidden_, mlp.d_ff);
        if (mlp.down_bias) bias(names_.down, weights.down_bias, hidden_);
    }

    void matrix(std::string_view name, MatrixView& view, int64_t rows, int64_t cols) {
        tensors_.push_back(
            {fmt::format("{}{}.weight", place_, name), {rows, cols}, TensorRole::kMatrix, {&view}, nullptr});
    }
    void grouped(std::string_view name, int64_t n_groups, std::vector<CheckpointTensor::Part> parts) {
        int64_t rows = 0;
        for (const CheckpointTensor::Part& part : parts) rows += n_groups * part.rows_per_group;
        CheckpointTensor tensor{fmt::format("{}{}.weight", place_, name), {rows, hidden_}, {}, {}, {}};
        tensor.parts = std::move(parts);
        tensor.n_groups = n_groups;
        tensors_.push_back(std::move(tensor));
    }
    void bias(std::string_view name, VectorView& view, int64_t size) {
        vector(name, ".bias", TensorRole::kBias, view, {size});
    }
    void vector(std::string_view name, std::string_view suffix, TensorRole role, VectorView& view,
                std::vector<int64_t> shape) {
        tensors_.push_back({fmt::format("{}{}{}", place_, name, suffix), std::move(shape), role, {}, &view});
    }

    const ModelConfig& config_;
    ModelWeights& weights_;
    ExpertFiling filing_;
    FamilyNames names_;
    TensorRole norm_role_;
    int64_t hidden_;
    std::string place_;
    std::vector<CheckpointTensor> tensors_;
};

}  // namespace

int64_t CheckpointTensor::num_elements() const { return num_elements_of(shape); }

namespace {

// Memory for a matrix of `rows` rows that are stored as those of `like`.
std::byte* allocate_rows(const MatrixView& like, int64_t rows, MatrixView& view, WeightStorage& storage) {
    view = {nullptr, rows, like.cols, like.format, nullptr, like.activations, like.activation_scale};
    if (like.is_quantised()) {
        std::byte* blocks = storage.allocate_bytes(rows * like.row_bytes()).data();
        view.blocks = blocks;
        return blocks;
    }
    uint16_t* data = storage.allocate_bf16(rows * like.cols).data();
    view.data = data;
    return reinterpret_cast<std::byte*>(data);
}

void gather_rows(const CheckpointTensor& tensor, const MatrixView& all, WeightStorage& storage) {
    std::map<MatrixView*, int64_t> view_rows;
    for (const CheckpointTensor::Part& part : tensor.parts)
        view_rows[part.view] += tensor.n_groups * part.rows_per_group;
    std::map<MatrixView*, std::byte*> gathered;
    for (const auto& [view, rows] : view_rows) gathered[view] = allocate_rows(all, rows, *view, storage);
    int64_t from = 0;
    for (int64_t group = 0; group < tensor.n_groups; ++group) {
        for (const CheckpointTensor::Part& part : tensor.parts) {
            const int64_t row = part.first_row + group * part.rows_per_group;
            std::ranges::copy(all.slice_rows(from, part.rows_per_group).bytes(),
                              gathered[part.view] + row * all.row_bytes());
            from += part.rows_per_group;
        }
    }
}

// Equal shares of the columns. False: the blocks of a format reach over the bounds of the shares.
bool gather_columns(const CheckpointTensor& tensor, const MatrixView& all, WeightStorage& storage) {
    const auto num_parts = static_cast<int64_t>(tensor.matrices.size());
    MatrixView part = all;
    part.cols = all.cols / num_parts;
    const auto num_bytes = static_cast<size_t>(part.row_bytes());
    if (part.row_bytes() * num_parts != all.row_bytes()) return false;
    for (int64_t i = 0; i < num_parts; ++i) {
        std::byte* to = allocate_rows(part, all.rows, *tensor.matrices[i], storage);
        for (int64_t r = 0; r < all.rows; ++r, to += num_bytes)
            std::ranges::copy(all.slice_rows(r, 1).bytes().subspan(i * num_bytes, num_bytes), to);
    }
    return true;
}

}  // namespace

void split_rows(const CheckpointTensor& tensor, const MatrixView& all, WeightStorage& storage) {
    if (tensor.by_columns) {
        CHECK(gather_columns(tensor, all, storage), "{}: blocks over the middle of its rows", tensor.name);
        return;
    }
    if (!tensor.parts.empty()) return gather_rows(tensor, all, storage);
    const int64_t rows = all.rows / static_cast<int64_t>(tensor.matrices.size());
    for (size_t i = 0; i < tensor.matrices.size(); ++i)
        *tensor.matrices[i] = all.slice_rows(static_cast<int64_t>(i) * rows, rows);
}

std::vector<CheckpointTensor> checkpoint_tensors(const ModelConfig& config, ModelWeights& weights,
                                                 ExpertFiling filing) {
    return Lister(config, weights, filing).list();
}

Status check_experts(const ModelWeights& weights, std::string_view source) {
    for (const LayerWeights& layer : weights.layers)
        for (const MlpWeights& expert : layer.moe.experts)
            if (!expert.gate.empty() && expert.gate.is_quantised() != expert.up.is_quantised())
                return error("{}: an expert has one of gate and up in blocks, the other not: not supported", source);
    return {};
}

}  // namespace verbatim::reference
