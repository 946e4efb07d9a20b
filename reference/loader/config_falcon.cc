// The reader of reference/loader/config_families.h for Falcon-H1: attention and Mamba-2 in parallel in every layer.

#include "reference/loader/config_families.h"

#include <cstdint>
#include <vector>

#include "reference/loader/config_parts.h"

namespace verbatim::reference {
namespace {

AttentionConfig read_falcon_attention(ConfigFields& fields, int32_t hidden_size) {
    AttentionConfig attention = read_attention(fields, hidden_size);
    attention.rope = read_whole_rope(fields, attention.head_dim);
    attention.in_multiplier = fields.number_or({"attention_in_multiplier"}, 1.0);
    attention.key_multiplier = fields.number_or({"key_multiplier"}, 1.0);
    attention.out_multiplier = fields.number_or({"attention_out_multiplier"}, 1.0);
    return attention;
}

MambaConfig read_falcon_mamba(ConfigFields& fields, int32_t hidden_size) {
    MambaConfig mamba = read_mamba_prefixed(fields);
    const int64_t expanded = read_expanded_width(fields, "mamba_expand", hidden_size);
    const auto d_ssm = fields.optional_size({"mamba_d_ssm"});
    read_mamba_head_dim(fields, d_ssm ? *d_ssm : expanded, d_ssm ? "mamba_d_ssm" : "mamba_expand * hidden_size", mamba);
    mamba.out_bias = fields.flag_or({"projectors_bias"}, false);
    const bool norm = fields.flag_or({"mamba_rms_norm"}, false);
    const bool norm_first = fields.flag_or({"mamba_norm_before_gate"}, true);
    mamba.gate = !norm ? MambaGate::kGateOnly : norm_first ? MambaGate::kNormThenGate : MambaGate::kGateThenNorm;
    if (!norm) mamba.n_norm_groups = 1;
    mamba.in_multiplier = fields.number_or({"ssm_in_multiplier"}, 1.0);
    mamba.out_multiplier = fields.number_or({"ssm_out_multiplier"}, 1.0);
    if (const auto five = fields.optional_numbers("ssm_multipliers", 5))
        mamba.multipliers = {(*five)[0], (*five)[1], (*five)[2], (*five)[3], (*five)[4]};
    return mamba;
}

}  // namespace

ModelConfig read_falcon_h1(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"rms_norm_eps"});
    config.max_position_embeddings = fields.size({"max_position_embeddings"});
    config.embedding_multiplier = fields.number_or({"embedding_multiplier"}, 1.0);
    config.logits_multiplier = fields.number_or({"lm_head_multiplier"}, 1.0);
    fields.only_text("hidden_act", {"silu", "swish"});
    fields.only_flag("mamba_use_mlp", true);
    fields.only_null("attn_layer_indices");
    fields.harmless({"mlp_expansion_factor", "expansion_factor"});  // intermediate_size decides
    LayerConfig layer;
    layer.attention = read_falcon_attention(fields, config.hidden_size);
    layer.mamba = read_falcon_mamba(fields, config.hidden_size);
    layer.mlp = MlpConfig{};
    layer.mlp->d_ff = fields.size({"intermediate_size"});
    layer.mlp->up_bias = layer.mlp->down_bias = fields.flag_or({"mlp_bias"}, false);
    if (const auto pair = fields.optional_numbers("mlp_multipliers", 2)) {
        layer.mlp->gate_multiplier = (*pair)[0];
        layer.mlp->out_multiplier = (*pair)[1];
    }
    const int32_t num_layers = read_num_layers(fields);
    const std::vector<LayerKind> kinds = read_layer_list(fields);
    if (!kinds.empty() && kinds != std::vector<LayerKind>(static_cast<size_t>(num_layers), LayerKind::kHybrid))
        fields.problem("layer_types is not {} times hybrid", num_layers);
    config.layers.assign(static_cast<size_t>(num_layers), layer);
    return config;
}

}  // namespace verbatim::reference
