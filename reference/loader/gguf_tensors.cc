#include "reference/loader/gguf_tensors.h"

#include <fmt/format.h>

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
    bool rotary_rows;           // q and k are in llama.cpp's order
};
constexpr std::array<GgufNames, 5> kGgufFamilies = {{
    {Architecture::kGraniteHybrid, "granitehybrid", "ffn_norm", true},
    {Architecture::kLlama, "llama", "ffn_norm", true},
    {Architecture::kMamba2, "mamba2", "ffn_norm", false},
    {Architecture::kNemotronH, "nemotron_h", "attn_norm", true},
    {Architecture::kFalconH1, "falcon-h1", "ffn_norm", false},
}};

const GgufNames* find_gguf_family(Architecture architecture) {
    for (const GgufNames& family : kGgufFamilies)
        if (family.architecture == architecture) return &family;
    return nullptr;
}

class PlaceLister {
public:
    PlaceLister(const ModelConfig& config, ModelWeights& weights)
        : config_(config),
          weights_(weights),
          names_(*find_gguf_family(config.architecture)),
          hidden_(config.hidden_size) {}

    std::vector<GgufPlace> list() {
        weights_.layers.resize(config_.layers.size());
        matrix("token_embd", weights_.embedding, config_.vocab_size, hidden_);
        for (size_t i = 0; i < config_.layers.size(); ++i) {
            prefix_ = fmt::format("blk.{}.", i);
            layer(config_.layers[i], weights_.layers[i]);
        }
        prefix_.clear();
        vector("output_norm.weight", weights_.final_norm, {hidden_});
        if (!config_.tie_word_embeddings) matrix("output", weights_.lm_head, config_.vocab_size, hidden_);
        return std::move(places_);
    }

private:
    void layer(const LayerConfig& layer, LayerWeights& weights) {
        if (layer.has_mixer()) vector("attn_norm.weight", weights.mixer_norm, {hidden_});
        if (layer.mamba) mamba(*layer.mamba, weights.mamba);
        if (layer.attention) attention(*layer.attention, weights.attention);
        if (layer.has_feed_forward()) vector(fmt::format("{}.weight", names_.mlp_norm), weights.mlp_norm, {hidden_});
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

    void attention(const AttentionConfig& attention, AttentionWeights& weights) {
        rotary(matrix("attn_q", weights.q, attention.q_rows(), hidden_), attention);
        rotary(matrix("attn_k", weights.k, attention.kv_rows(), hidden_), attention);
        matrix("attn_v", weights.v, attention.kv_rows(), hidden_);
        matrix("attn_output", weights.o, hidden_, attention.q_rows());
        if (attention.qkv_bias) {
            rotary(vector("attn_q.bias", weights.q_bias, {attention.q_rows()}), attention);
            rotary(vector("attn_k.bias", weights.k_bias, {attention.kv_rows()}), attention);
            vector("attn_v.bias", weights.v_bias, {attention.kv_rows()});
        }
        if (attention.o_bias) vector("attn_output.bias", weights.o_bias, {hidden_});
    }

    void experts(const MoeConfig& moe, MoeWeights& weights) {
        weights.experts.resize(static_cast<size_t>(moe.n_experts));
        vector("ffn_gate_inp.weight", weights.router, {moe.n_experts, hidden_});
        const auto together = [&](std::string_view name, MatrixView MlpWeights::*view, int64_t rows, int64_t cols) {
            GgufPlace& place = add(fmt::format("{}.weight", name), {moe.n_experts, rows, cols});
            for (MlpWeights& expert : weights.experts) place.matrices.push_back(&(expert.*view));
        };
        together("ffn_gate_exps", &MlpWeights::gate, moe.d_ff, hidden_);
        together("ffn_up_exps", &MlpWeights::up, moe.d_ff, hidden_);
        together("ffn_down_exps", &MlpWeights::down, hidden_, moe.d_ff);
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
        place.change = GgufChange::kRotaryRows;
        place.head_dim = attention.head_dim;
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
    GgufNames names_;
    int64_t hidden_;
    std::string prefix_;
    std::vector<GgufPlace> places_;
};

}  // namespace

int64_t GgufPlace::num_elements() const { return num_elements_of(shape); }

Result<std::string_view> gguf_architecture(Architecture architecture) {
    const GgufNames* family = find_gguf_family(architecture);
    if (family == nullptr) return error("{} has no GGUF form here", architecture_name(architecture));
    return family->name;
}

std::vector<GgufPlace> gguf_places(const ModelConfig& config, ModelWeights& weights) {
    CHECK(find_gguf_family(config.architecture) != nullptr, "{}", architecture_name(config.architecture));
    return PlaceLister(config, weights).list();
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
