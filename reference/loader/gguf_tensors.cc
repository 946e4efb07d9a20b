#include "reference/loader/gguf_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "reference/model/shape.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math64.h"

namespace verbatim::reference {
namespace {

struct GgufNames {
    Architecture architecture;
    std::string_view name;      // general.architecture
    std::string_view mlp_norm;  // in front of the feed-forward part
    bool rotary_rows;           // rows of a head's halves alternate in q and k
    bool tiled_values = false;  // value heads of delta nets lie in turn, key head by key head
};
constexpr std::string_view kNemotronMoe = "nemotron_h_moe";
constexpr std::array<GgufNames, 9> kGgufFamilies = {{
    {Architecture::kGraniteHybrid, "granitehybrid", "ffn_norm", true},
    {Architecture::kBamba, "granitehybrid", "ffn_norm", true},
    {Architecture::kLlama, "llama", "ffn_norm", true},
    {Architecture::kMamba2, "mamba2", "ffn_norm", false},
    {Architecture::kNemotronH, "nemotron_h", "attn_norm", true},
    {Architecture::kFalconH1, "falcon-h1", "ffn_norm", false},
    {Architecture::kQwen35, "qwen35", "post_attention_norm", false, true},
    {Architecture::kQwen35Moe, "qwen35moe", "post_attention_norm", false, true},
    {Architecture::kQwen3Next, "qwen3next", "post_attention_norm", false},
}};

const GgufNames* find_gguf_family(Architecture architecture) {
    for (const GgufNames& family : kGgufFamilies)
        if (family.architecture == architecture) return &family;
    return nullptr;
}

class PlaceLister {
public:
    PlaceLister(const ModelConfig& config, ModelWeights& weights, const GgufForm& form)
        : config_(config),
          weights_(weights),
          form_(form),
          names_(*find_gguf_family(config.architecture)),
          hidden_(config.hidden_size) {}

    std::vector<GgufPlace> list() {
        weights_.layers.resize(config_.layers.size());
        if (config_.reads_hidden) return list_prediction();
        matrix("token_embd", weights_.embedding, config_.vocab_size, hidden_);
        blocks();
        norm("output_norm.weight", weights_.final_norm, hidden_);
        if (!config_.tie_word_embeddings) matrix("output", weights_.lm_head, config_.vocab_size, hidden_);
        return std::move(places_);
    }

private:
    std::vector<GgufPlace> list_prediction() {
        const std::string block = fmt::format("blk.{}.nextn.", form_.first_block);
        norm(block + "enorm.weight", weights_.input.embedding_norm, hidden_);
        norm(block + "hnorm.weight", weights_.input.hidden_norm, hidden_);
        GgufPlace& place = add(block + "eh_proj.weight", {hidden_, 2 * hidden_});
        place.matrices = {&weights_.input.embedding, &weights_.input.hidden};
        place.by_columns = true;
        blocks();
        norm(block + "shared_head_norm.weight", weights_.final_norm, hidden_);
        return std::move(places_);
    }

    void blocks() {
        for (size_t i = 0; i < config_.layers.size(); ++i) {
            prefix_ = fmt::format("blk.{}.", form_.first_block + static_cast<int64_t>(i));
            layer(config_.layers[i], weights_.layers[i]);
        }
        prefix_.clear();
    }

    void layer(const LayerConfig& layer, LayerWeights& weights) {
        if (layer.has_mixer()) norm("attn_norm.weight", weights.mixer_norm, hidden_);
        if (layer.mamba) mamba(*layer.mamba, weights.mamba);
        if (layer.delta) delta(*layer.delta, weights.delta);
        if (layer.attention) attention(*layer.attention, weights.attention);
        if (layer.has_feed_forward()) norm(fmt::format("{}.weight", names_.mlp_norm), weights.mlp_norm, hidden_);
        if (layer.moe) experts(*layer.moe, weights.moe);
        if (layer.mlp) mlp(*layer.mlp, layer.moe ? "_shexp" : "", weights.mlp);
    }

    void mamba(const MambaConfig& mamba, MambaWeights& weights) {
        matrix("ssm_in", weights.in_proj, mamba.in_rows(), hidden_);
        if (mamba.in_bias) vector("ssm_in.bias", weights.in_bias, {mamba.in_rows()});
        vector("ssm_conv1d.weight", weights.conv_weight, {mamba.conv_dim(), mamba.d_conv});
        if (mamba.conv_bias) vector("ssm_conv1d.bias", weights.conv_bias, {mamba.conv_dim()});
        vector("ssm_a", weights.a_log, {mamba.n_heads, 1}).change = GgufChange::kNegativeExp;
        vector("ssm_d", weights.d, {mamba.n_heads, 1});
        vector("ssm_dt.bias", weights.dt_bias, {mamba.n_heads});
        if (mamba.gate != MambaGate::kGateOnly)
            vector("ssm_norm.weight", weights.norm, {mamba.n_groups, mamba.d_inner() / mamba.n_groups});
        matrix("ssm_out", weights.out_proj, hidden_, mamba.d_inner());
        if (mamba.out_bias) vector("ssm_out.bias", weights.out_bias, {hidden_});
    }

    // Rows or columns of value heads, `run` for each, from `first` on.
    [[nodiscard]] GgufOrder values(const DeltaConfig& delta, int64_t run, int64_t first = 0) const {
        if (!names_.tiled_values || delta.tiled_values) return {};
        return {first, delta.n_key_heads, delta.values_per_key(), run};
    }

    void delta(const DeltaConfig& delta, DeltaWeights& weights) {
        const int64_t first_value = 2 * delta.key_rows();
        matrix("attn_qkv", weights.in_proj, delta.conv_dim(), hidden_).rows =
            values(delta, delta.value_dim, first_value);
        matrix("attn_gate", weights.z, delta.value_rows(), hidden_).rows = values(delta, delta.value_dim);
        if (config_.architecture == Architecture::kQwen3Next) {  // b and a of the value heads of one key head together
            GgufPlace& place = add("ssm_ba.weight", {2 * int64_t{delta.n_value_heads}, hidden_});
            place.matrices = {&weights.b, &weights.a};
            place.rows = {0, 2, delta.n_key_heads, delta.values_per_key()};
        } else {
            matrix("ssm_beta", weights.b, delta.n_value_heads, hidden_).rows = values(delta, 1);
            matrix("ssm_alpha", weights.a, delta.n_value_heads, hidden_).rows = values(delta, 1);
        }
        vector("ssm_conv1d.weight", weights.conv_weight, {delta.conv_dim(), delta.d_conv}).rows =
            values(delta, delta.value_dim, first_value);
        GgufPlace& a_log = vector("ssm_a", weights.a_log, {delta.n_value_heads});
        a_log.change = GgufChange::kNegativeExp;
        a_log.rows = values(delta, 1);
        vector("ssm_dt.bias", weights.dt_bias, {delta.n_value_heads}).rows = values(delta, 1);
        vector("ssm_norm.weight", weights.norm, {delta.value_dim});
        matrix("ssm_out", weights.out_proj, hidden_, delta.value_rows()).columns = values(delta, delta.value_dim);
    }

    void attention(const AttentionConfig& attention, AttentionWeights& weights) {
        rotary(matrix("attn_q", weights.q, attention.q_proj_rows(), hidden_), attention);
        rotary(matrix("attn_k", weights.k, attention.kv_rows(), hidden_), attention);
        matrix("attn_v", weights.v, attention.kv_rows(), hidden_);
        matrix("attn_output", weights.o, hidden_, attention.q_rows());
        if (attention.qkv_bias) {
            rotary(vector("attn_q.bias", weights.q_bias, {attention.q_rows()}), attention);
            rotary(vector("attn_k.bias", weights.k_bias, {attention.kv_rows()}), attention);
            vector("attn_v.bias", weights.v_bias, {attention.kv_rows()});
        }
        if (attention.o_bias) vector("attn_output.bias", weights.o_bias, {hidden_});
        if (attention.qk_norm) {
            norm("attn_q_norm.weight", weights.q_norm, attention.head_dim);
            norm("attn_k_norm.weight", weights.k_norm, attention.head_dim);
        }
    }

    void latent(const MoeConfig& moe, MoeWeights& weights) {
        matrix("ffn_latent_down", weights.latent_in, moe.d_latent, hidden_);
        matrix("ffn_latent_up", weights.latent_out, hidden_, moe.d_latent);
        if (!moe.latent_bias) return;
        vector("ffn_latent_down.bias", weights.latent_in_bias, {moe.d_latent});
        vector("ffn_latent_up.bias", weights.latent_out_bias, {hidden_});
    }

    void experts(const MoeConfig& moe, MoeWeights& weights) {
        const int64_t width = moe.row_width(config_.hidden_size);
        weights.experts.resize(static_cast<size_t>(moe.n_experts));
        vector("ffn_gate_inp.weight", weights.router, {moe.n_experts, hidden_});
        if (moe.router == RouterKind::kSigmoidBias) vector("exp_probs_b.bias", weights.choice_bias, {moe.n_experts});
        if (moe.d_latent > 0) latent(moe, weights);
        const auto together = [&](std::string_view name, MatrixView MlpWeights::*view, int64_t rows, int64_t cols) {
            GgufPlace& place = add(fmt::format("{}.weight", name), {moe.n_experts, rows, cols});
            for (MlpWeights& expert : weights.experts) place.matrices.push_back(&(expert.*view));
        };
        const bool gated = moe.kind == MlpKind::kGatedSilu;
        if (gated && form_.fused_gate_up) {
            GgufPlace& place = add("ffn_gate_up_exps.weight", {moe.n_experts, 2 * int64_t{moe.d_ff}, width});
            for (MlpWeights& expert : weights.experts)
                place.matrices.insert(place.matrices.end(), {&expert.gate, &expert.up});
        } else {
            if (gated) together("ffn_gate_exps", &MlpWeights::gate, moe.d_ff, width);
            together("ffn_up_exps", &MlpWeights::up, moe.d_ff, width);
        }
        together("ffn_down_exps", &MlpWeights::down, width, moe.d_ff);
        if (moe.shared_gate) matrix("ffn_gate_inp_shexp", weights.shared_gate, 1, hidden_).is_float = true;
    }

    void mlp(const MlpConfig& mlp, std::string_view shared, MlpWeights& weights) {
        const auto part = [&](std::string_view name, MatrixView& view, VectorView* bias, int64_t rows, int64_t cols) {
            matrix(fmt::format("{}{}", name, shared), view, rows, cols);
            if (bias != nullptr) vector(fmt::format("{}{}.bias", name, shared), *bias, {rows});
        };
        if (mlp.kind == MlpKind::kGatedSilu)
            part("ffn_gate", weights.gate, mlp.up_bias ? &weights.gate_bias : nullptr, mlp.d_ff, hidden_);
        part("ffn_up", weights.up, mlp.up_bias ? &weights.up_bias : nullptr, mlp.d_ff, hidden_);
        part("ffn_down", weights.down, mlp.down_bias ? &weights.down_bias : nullptr, hidden_, mlp.d_ff);
    }

    void rotary(GgufPlace& place, const AttentionConfig& attention) const {
        if (!names_.rotary_rows) return;
        CHECK(attention.head_dim % 2 == 0, "{}", attention.head_dim);
        place.rows = {0, 2, attention.head_dim / 2, 1};
    }
    void norm(std::string name, VectorView& view, int64_t width) {
        GgufPlace& place = vector(std::move(name), view, {width});
        if (config_.norm_plus_one) place.change = GgufChange::kPlusOne;
    }
    GgufPlace& add(std::string name, std::vector<int64_t> shape) {
        GgufPlace& place = places_.emplace_back();
        place.name = prefix_ + name;
        place.shape = std::move(shape);
        return place;
    }
    GgufPlace& matrix(std::string_view name, MatrixView& view, int64_t rows, int64_t cols) {
        GgufPlace& place = add(fmt::format("{}.weight", name), {rows, cols});
        place.matrices = {&view};
        return place;
    }
    GgufPlace& vector(std::string name, VectorView& view, std::vector<int64_t> shape) {
        GgufPlace& place = add(std::move(name), std::move(shape));
        place.vector = &view;
        return place;
    }

    const ModelConfig& config_;
    ModelWeights& weights_;
    GgufForm form_;
    GgufNames names_;
    int64_t hidden_;
    std::string prefix_;
    std::vector<GgufPlace> places_;
};

}  // namespace

int64_t GgufPlace::num_elements() const { return num_elements_of(shape); }

Result<std::string_view> gguf_architecture(const ModelConfig& config) {
    const GgufNames* family = find_gguf_family(config.architecture);
    if (family == nullptr) return error("{} has no GGUF form here", architecture_name(config.architecture));
    const bool has_experts =
        std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return layer.moe.has_value(); });
    return has_experts && config.architecture == Architecture::kNemotronH ? kNemotronMoe : family->name;
}

std::vector<GgufPlace> gguf_places(const ModelConfig& config, ModelWeights& weights, const GgufForm& form) {
    CHECK(find_gguf_family(config.architecture) != nullptr, "{}", architecture_name(config.architecture));
    return PlaceLister(config, weights, form).list();
}

float log_of_decay(float a) {
    const double log = log_f64(-static_cast<double>(a));
    const float short_one = bf16_value(static_cast<float>(log));
    const auto again = static_cast<float>(-exp_f64(static_cast<double>(short_one)));
    const auto units =
        static_cast<int64_t>(std::bit_cast<uint32_t>(again)) - static_cast<int64_t>(std::bit_cast<uint32_t>(a));
    return std::abs(units) <= 1 ? short_one : static_cast<float>(log);
}

}  // namespace verbatim::reference
