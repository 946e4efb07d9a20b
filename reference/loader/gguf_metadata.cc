// gguf_metadata() of reference/loader/gguf_config.h.
#include <fmt/format.h>

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
    std::optional<MlpConfig> mlp;
    std::optional<MoeConfig> moe;
};

GgufParts gguf_parts(const ModelConfig& config) {
    GgufParts parts;
    for (auto layer = config.layers.rbegin(); layer != config.layers.rend(); ++layer) {
        if (layer->mamba) parts.mamba = layer->mamba;
        if (layer->attention) parts.attention = layer->attention;
        if (layer->mlp) parts.mlp = layer->mlp;
        if (layer->moe) parts.moe = layer->moe;
    }
    return parts;
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
        feed_forward();
        attention();
        if (parts_.mamba) mamba(*parts_.mamba);
        if (config_.architecture == Architecture::kGraniteHybrid) granite();
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
            per_layer("feed_forward_length", [](const LayerConfig& layer) { return layer.mlp ? layer.mlp->d_ff : 0; });
        else
            set("feed_forward_length", int64_t{parts_.moe ? parts_.moe->d_ff : parts_.mlp ? parts_.mlp->d_ff : 0});
    }

    void attention() {
        const AttentionConfig attention = parts_.attention.value_or(AttentionConfig{});
        set("attention.head_count", int64_t{attention.n_heads});
        if (config_.architecture == Architecture::kLlama || !parts_.attention)
            set("attention.head_count_kv", int64_t{attention.n_kv_heads});
        else
            per_layer("attention.head_count_kv",
                      [](const LayerConfig& layer) { return layer.attention ? layer.attention->n_kv_heads : 0; });
        if (!parts_.attention) return;
        set("attention.key_length", int64_t{attention.head_dim});
        set("attention.value_length", int64_t{attention.head_dim});
        set("rope.dimension_count", int64_t{attention.head_dim});
        if (attention.rope.kind == RopeKind::kNone) return;
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
        if (!parts_.moe) return;
        set("expert_count", int64_t{parts_.moe->n_experts});
        set("expert_used_count", int64_t{parts_.moe->n_chosen});
        if (parts_.mlp) set("expert_shared_feed_forward_length", int64_t{parts_.mlp->d_ff});
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
    ASSIGN_OR_RETURN(const std::string_view architecture, gguf_architecture(config.architecture));
    if (config.architecture == Architecture::kFalconH1)
        return error("a {} is not written as GGUF: its converter multiplies multipliers into the weights",
                     architecture_name(config.architecture));
    for (const LayerConfig& layer : config.layers) {
        if (layer.attention && layer.attention->rope.kind == RopeKind::kLlama3 &&
            (config.architecture != Architecture::kLlama || !is_written(layer.attention->rope)))
            return error("this rotary scaling of Llama 3.1 is not written as GGUF");
        if (layer.moe && config.architecture != Architecture::kGraniteHybrid)
            return error("experts of {} are not written as GGUF", architecture_name(config.architecture));
    }
    return MetadataWriter(config, architecture).write();
}

}  // namespace verbatim::reference
