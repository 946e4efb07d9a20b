// gguf_metadata() of reference/loader/gguf_config.h.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "reference/loader/gguf_config.h"
#include "reference/loader/gguf_rope.h"
#include "reference/loader/gguf_tensors.h"

namespace verbatim::reference {
namespace {

constexpr uint32_t kInt32 = 5;  // GGUF's number of the type

// The first layer's part of each kind: metadata has one shape for all layers of a kind.
struct GgufParts {
    std::optional<MambaConfig> mamba;
    std::optional<AttentionConfig> attention;
    std::optional<MlpConfig> mlp;  // of a layer without experts
    std::optional<MlpConfig> shared;
    std::optional<MoeConfig> moe;
    std::optional<DeltaConfig> delta;
};

GgufParts gguf_parts(const ModelConfig& config) {
    GgufParts parts;
    for (auto layer = config.layers.rbegin(); layer != config.layers.rend(); ++layer) {
        if (layer->mamba) parts.mamba = layer->mamba;
        if (layer->attention) parts.attention = layer->attention;
        if (layer->mlp) (layer->moe ? parts.shared : parts.mlp) = layer->mlp;
        if (layer->moe) parts.moe = layer->moe;
        if (layer->delta) parts.delta = layer->delta;
    }
    return parts;
}

// Every how many layers there is attention; 0: not in such a rhythm.
int64_t attention_interval(const ModelConfig& config) {
    const auto first =
        std::ranges::find_if(config.layers, [](const LayerConfig& layer) { return layer.attention.has_value(); });
    const int64_t interval = first - config.layers.begin() + 1;
    for (int64_t i = 0; i < std::ssize(config.layers); ++i)
        if (config.layers[static_cast<size_t>(i)].attention.has_value() != ((i + 1) % interval == 0)) return 0;
    return interval;
}

class MetadataWriter {
public:
    MetadataWriter(const ModelConfig& config, std::string_view architecture)
        : config_(config), parts_(gguf_parts(config)), prefix_(fmt::format("{}.", architecture)) {
        out_.set("general.architecture", architecture);
    }

    OwnedMetadata write() {
        set("block_count", static_cast<int64_t>(config_.layers.size()));
        set("context_length", int64_t{config_.max_position_embeddings});
        set("embedding_length", int64_t{config_.hidden_size});
        set("vocab_size", int64_t{config_.vocab_size});
        set("attention.layer_norm_rms_epsilon", config_.norm_eps);
        // llama.cpp wants it, and does not use it.
        if (config_.architecture == Architecture::kNemotronH) set("attention.layer_norm_epsilon", config_.norm_eps);
        feed_forward();
        attention();
        if (parts_.mamba) mamba(*parts_.mamba);
        if (parts_.delta) delta(*parts_.delta);
        if (parts_.moe) experts(*parts_.moe);
        if (config_.architecture == Architecture::kGraniteHybrid) granite();
        if (config_.architecture == Architecture::kBamba) set("rope.scaling.finetuned", true);
        return std::move(out_);
    }

private:
    void set(std::string_view key, GgufValue value) { out_.set(prefix_ + std::string(key), std::move(value)); }
    template <typename Of>
    void per_layer(std::string_view key, const Of& of) {
        std::vector<int32_t> list;
        for (const LayerConfig& layer : config_.layers) list.push_back(of(layer));
        out_.set_numbers(prefix_ + std::string(key), std::move(list));
    }

    void feed_forward() {
        if (config_.architecture == Architecture::kNemotronH)
            per_layer("feed_forward_length", [](const LayerConfig& layer) {
                return layer.moe ? layer.moe->d_ff : layer.mlp ? layer.mlp->d_ff : 0;
            });
        else
            set("feed_forward_length", int64_t{parts_.moe ? parts_.moe->d_ff : parts_.mlp ? parts_.mlp->d_ff : 0});
    }

    void attention() {
        const AttentionConfig attention = parts_.attention.value_or(AttentionConfig{});
        set("attention.head_count", int64_t{attention.n_heads});
        if (config_.architecture == Architecture::kLlama || parts_.delta || !parts_.attention)
            set("attention.head_count_kv", int64_t{attention.n_kv_heads});
        else
            per_layer("attention.head_count_kv",
                      [](const LayerConfig& layer) { return layer.attention ? layer.attention->n_kv_heads : 0; });
        if (!parts_.attention) return;
        set("attention.key_length", int64_t{attention.head_dim});
        set("attention.value_length", int64_t{attention.head_dim});
        const bool turns = attention.rope.kind != RopeKind::kNone;
        set("rope.dimension_count", int64_t{turns ? attention.rope.n_rotary_dims : attention.head_dim});
        if (!turns) return;
        set("rope.freq_base", attention.rope.theta);
        if (attention.rope.kind != RopeKind::kLinear) return;
        set("rope.scaling.type", std::string_view("linear"));
        set("rope.scaling.factor", attention.rope.factor);
    }

    void mamba(const MambaConfig& mamba) {
        set("ssm.conv_kernel", int64_t{mamba.d_conv});
        set("ssm.inner_size", mamba.d_inner());
        set("ssm.state_size", int64_t{mamba.d_state});
        set("ssm.time_step_rank", int64_t{mamba.n_heads});
        set("ssm.group_count", int64_t{mamba.n_groups});
    }

    void granite() {
        set("rope.scaling.finetuned", parts_.attention && parts_.attention->rope.kind != RopeKind::kNone);
        set("embedding_scale", config_.embedding_multiplier);
        set("residual_scale", config_.residual_multiplier);
        set("logit_scale", config_.logits_divisor);
        if (parts_.attention) set("attention.scale", parts_.attention->scale);
    }

    void experts(const MoeConfig& moe) {
        set("expert_count", int64_t{moe.n_experts});
        set("expert_used_count", int64_t{moe.n_chosen});
        if (parts_.shared) set("expert_shared_feed_forward_length", int64_t{parts_.shared->d_ff});
        if (config_.architecture == Architecture::kGraniteHybrid) return;
        set("expert_feed_forward_length", int64_t{moe.d_ff});
        if (config_.architecture != Architecture::kNemotronH) return;
        set("expert_shared_count", int64_t{1});
        set("expert_weights_norm", moe.normalize);
        set("expert_weights_scale", moe.scale);
        set("expert_group_count", int64_t{moe.n_groups});
        set("expert_group_used_count", int64_t{moe.n_chosen_groups});
        if (moe.d_latent > 0) set("moe_latent_size", int64_t{moe.d_latent});
    }

    void delta(const DeltaConfig& delta) {
        set("full_attention_interval", attention_interval(config_));
        set("ssm.conv_kernel", int64_t{delta.d_conv});
        set("ssm.inner_size", delta.value_rows());
        set("ssm.state_size", int64_t{delta.key_dim});
        set("ssm.time_step_rank", int64_t{delta.n_value_heads});
        set("ssm.group_count", int64_t{delta.n_key_heads});
        if (config_.architecture == Architecture::kQwen3Next || !parts_.attention) return;
        // Positions of time, height and width: equal for text.
        const int32_t pairs = parts_.attention->rope.n_rotary_dims / 2;
        out_.set_numbers(prefix_ + "rope.dimension_sections", {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0});
    }

    const ModelConfig& config_;
    GgufParts parts_;
    std::string prefix_;
    OwnedMetadata out_;
};

// Whether a scaling of Llama 3.1 is read back as it is.
bool is_written(const RopeConfig& rope) {
    return rope.kind != RopeKind::kLlama3 || llama3_scaling(rope_divisors(rope), rope.theta) == rope;
}

}  // namespace

void OwnedMetadata::set(std::string key, GgufValue value) {
    if (auto* text = std::get_if<std::string_view>(&value)) *text = keep(*text);
    if (auto* strings = std::get_if<GgufStrings>(&value))
        for (std::string_view& text : *strings) text = keep(text);
    if (const auto* numbers = std::get_if<GgufNumbers>(&value)) {
        const std::string_view bytes(reinterpret_cast<const char*>(numbers->bytes.data()), numbers->bytes.size());
        value = GgufNumbers{numbers->type, std::as_bytes(std::span(keep(bytes)))};
    }
    view_.insert_or_assign(keep(key), std::move(value));
}

void OwnedMetadata::set_numbers(std::string key, std::vector<int32_t> numbers) {
    const std::vector<int32_t>& kept = numbers_.emplace_back(std::move(numbers));
    view_.insert_or_assign(keep(key), GgufNumbers{kInt32, std::as_bytes(std::span(kept))});
}

std::string_view OwnedMetadata::keep(std::string_view text) { return texts_.emplace_back(text); }

Result<OwnedMetadata> gguf_metadata(const ModelConfig& config) {
    ASSIGN_OR_RETURN(const std::string_view architecture, gguf_architecture(config));
    if (config.architecture == Architecture::kFalconH1)
        return error("a {} is not written as GGUF: its converter multiplies multipliers into the weights",
                     architecture_name(config.architecture));
    bool has_delta = false;
    for (const LayerConfig& layer : config.layers) {
        has_delta |= layer.delta.has_value();
        if (layer.attention && layer.attention->rope.kind == RopeKind::kLlama3 &&
            (config.architecture != Architecture::kLlama || !is_written(layer.attention->rope)))
            return error("this rotary scaling of Llama 3.1 is not written as GGUF");
        if (layer.moe && layer.moe->router == RouterKind::kSoftmaxAll && !layer.moe->normalize)
            return error("experts whose weights are not divided by their sum are not written as GGUF");
        if (layer.delta && layer.delta->tiled_values) return error("the model is that of a quantised GGUF file");
    }
    if (has_delta && attention_interval(config) == 0)
        return error("layers with attention that are not every n-th are not written as GGUF");
    return MetadataWriter(config, architecture).write();
}

}  // namespace verbatim::reference
