// The reader of reference/loader/config_families.h for Nemotron-H: each layer is Mamba-2, attention, an MLP or experts.

#include "reference/loader/config_families.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "files/strict_json.h"
#include "reference/loader/config_parts.h"

namespace verbatim::reference {
namespace {

// Nemotron-H: a pattern of M (Mamba-2), * (attention), - (MLP), E (experts), or a list.
std::vector<LayerKind> read_nemotron_kinds(ConfigFields& fields) {
    const auto pattern = fields.optional_text({"hybrid_override_pattern"});
    const auto num_layers = fields.optional_size({"num_hidden_layers"});
    const std::vector<LayerKind> listed = read_layer_list(fields);
    std::vector<LayerKind> kinds;
    for (const char c : pattern.value_or("").substr(0, kMaxLayers + 1)) {
        constexpr std::string_view kLetters = "M*-E";
        constexpr std::array<LayerKind, 4> kKinds = {LayerKind::kMamba, LayerKind::kAttention, LayerKind::kMlp,
                                                     LayerKind::kMoe};
        const size_t letter = kLetters.find(c);
        if (letter == std::string_view::npos) {
            fields.problem("hybrid_override_pattern[{}] = {}: wanted M, *, - or E", kinds.size(),
                           quote_text(std::string_view(&c, 1)));
            return {};
        }
        kinds.push_back(kKinds[letter]);
    }
    if (pattern && !listed.empty() && listed != kinds)
        fields.problem("hybrid_override_pattern contradicts layers_block_type");
    if (!pattern) kinds = listed;
    if (std::find(kinds.begin(), kinds.end(), LayerKind::kHybrid) != kinds.end())
        fields.problem("layers_block_type has a kind that this family does not have");
    if (kinds.empty()) fields.problem("hybrid_override_pattern or layers_block_type is missing");
    if (num_layers && static_cast<size_t>(*num_layers) != kinds.size())
        fields.problem("num_hidden_layers = {}, the layers' pattern has {}", *num_layers, kinds.size());
    return kinds;
}

// The layer of Nemotron-H's experts. transformers ignores n_shared_experts: the shared expert has the size that is
// given, so only 1 says what is computed.
LayerConfig read_nemotron_moe(ConfigFields& fields, const MlpConfig& dense) {
    MoeConfig moe;
    moe.router = RouterKind::kSigmoidBias;
    moe.n_experts = fields.size({"n_routed_experts", "num_local_experts"});
    moe.n_chosen = fields.size({"num_experts_per_tok"});
    moe.n_groups = fields.optional_size({"n_group"}).value_or(1);
    moe.n_chosen_groups = fields.optional_size({"topk_group"}).value_or(1);
    moe.normalize = fields.flag_or({"norm_topk_prob"}, true);
    moe.sum_epsilon = moe.normalize ? 1e-20 : 0.0;
    moe.scale = fields.number_or({"routed_scaling_factor"}, 1.0);
    moe.kind = MlpKind::kReluSquared;
    moe.d_ff = fields.size({"moe_intermediate_size"});
    moe.d_latent = fields.optional_size({"moe_latent_size"}).value_or(0);
    moe.latent_bias = moe.d_latent > 0 && dense.up_bias;
    fields.only_number("n_shared_experts", 1);
    LayerConfig layer;
    layer.moe = moe;
    layer.mlp = dense;
    layer.mlp->d_ff = fields.size({"moe_shared_expert_intermediate_size"});
    return layer;
}

}  // namespace

ModelConfig read_nemotron_h(ConfigFields& fields) {
    ModelConfig config;
    read_common(fields, config, {"layer_norm_epsilon", "rms_norm_eps", "norm_eps"});
    config.max_position_embeddings = fields.size({"max_position_embeddings"});
    fields.only_text("mlp_hidden_act", {"relu2"});
    fields.only_text("mamba_hidden_act", {"silu", "swish"});
    fields.only_text("hidden_act", {"silu", "swish", "relu2"});  // unused: mlp_hidden_act decides
    const AttentionConfig attention = read_attention(fields, config.hidden_size);
    fields.harmless({"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"});  // there is no RoPE
    MambaConfig mamba;
    mamba.n_heads = fields.size({"mamba_num_heads"});
    mamba.head_dim = fields.size({"mamba_head_dim"});
    mamba.d_state = fields.size({"ssm_state_size"});
    mamba.n_groups = fields.optional_size({"n_groups", "mamba_n_groups"}).value_or(8);
    mamba.n_norm_groups = mamba.n_groups;
    mamba.d_conv = fields.optional_size({"conv_kernel", "mamba_d_conv"}).value_or(4);
    mamba.conv_bias = fields.flag_or({"use_conv_bias", "mamba_conv_bias"}, true);
    mamba.in_bias = mamba.out_bias = fields.flag_or({"use_bias", "mamba_proj_bias"}, false);
    read_time_step_limit(fields, mamba);
    MlpConfig mlp;
    mlp.kind = MlpKind::kReluSquared;
    mlp.up_bias = mlp.down_bias = fields.flag_or({"mlp_bias"}, false);
    const std::vector<LayerKind> kinds = read_nemotron_kinds(fields);
    const auto has = [&](LayerKind kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); };
    LayerConfig experts;
    if (has(LayerKind::kMoe)) experts = read_nemotron_moe(fields, mlp);
    const auto d_ff = fields.optional_size({"intermediate_size"});
    if (has(LayerKind::kMlp) && !d_ff) fields.problem("intermediate_size is missing, wanted an integer");
    mlp.d_ff = d_ff.value_or(1);
    // d_inner is heads * head_dim, whatever expand says; experts' keys stand in configs without a layer of experts too.
    // Heads that predict several tokens (mtp, nextn) are skipped.
    fields.harmless({"expand",
                     "mamba_expand",
                     "chunk_size",
                     "mamba_chunk_size",
                     "mamba_ssm_cache_dtype",
                     "n_routed_experts",
                     "num_local_experts",
                     "n_shared_experts",
                     "moe_intermediate_size",
                     "moe_shared_expert_intermediate_size",
                     "moe_latent_size",
                     "moe_shared_expert_overlap",
                     "num_experts_per_tok",
                     "routed_scaling_factor",
                     "n_group",
                     "topk_group",
                     "norm_topk_prob",
                     "mtp_layers_block_type",
                     "mtp_hybrid_override_pattern",
                     "num_nextn_predict_layers"});
    for (const LayerKind kind : kinds) {
        LayerConfig& layer = config.layers.emplace_back();
        if (kind == LayerKind::kMamba) layer.mamba = mamba;
        if (kind == LayerKind::kAttention) layer.attention = attention;
        if (kind == LayerKind::kMlp) layer.mlp = mlp;
        if (kind == LayerKind::kMoe) layer = experts;
    }
    return config;
}

}  // namespace verbatim::reference
