#include "reference/loader/gguf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "files/strict_json.h"
#include "reference/loader/config_json.h"
#include "reference/loader/gguf_fields.h"
#include "reference/loader/gguf_rope.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

// What every architecture has.
Json common(GgufFields& fields, std::string_view name, std::string_view model_type) {
    Json json = {{"architectures", {name}}, {"model_type", model_type}};
    json["vocab_size"] = fields.tensor_rows("token_embd.weight");
    json["hidden_size"] = fields.size("embedding_length");
    json["num_hidden_layers"] = fields.num_layers();
    json["tie_word_embeddings"] = !fields.has_tensor("output.weight");
    fields.harmless({"vocab_size", "context_length", "feed_forward_length", "attention.value_length"});
    return json;
}

// Heads, and their positions if the architecture has them.
void attention(GgufFields& fields, bool has_positions, int64_t n_kv_heads, Json& json) {
    const int64_t n_heads = fields.size("attention.head_count");
    json["num_attention_heads"] = n_heads;
    json["num_key_value_heads"] = n_kv_heads;
    const int64_t implied = n_heads > 0 ? fields.size("embedding_length") / n_heads : 1;
    const int64_t head_dim = fields.size_or("attention.key_length", implied);
    json["head_dim"] = head_dim;
    if (fields.size_or("attention.value_length", head_dim) != head_dim)
        fields.problem("attention.value_length is not attention.key_length = {}", head_dim);
    if (head_dim % 2 != 0) fields.problem("attention.key_length = {}, wanted an even number", head_dim);
    const int64_t turned = fields.size_or("rope.dimension_count", head_dim);
    const double theta = fields.number_or("rope.freq_base", 10000.0);
    fields.harmless({"rope.scaling.finetuned"});
    if (!has_positions) return;
    if (turned != head_dim) fields.problem("rope.dimension_count = {}, wanted the head's {}", turned, head_dim);
    json["rope_theta"] = theta;
    const std::string_view scaling = fields.text_or("rope.scaling.type", "none");
    if (scaling == "linear")
        json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", fields.number("rope.scaling.factor")}};
    else if (scaling != "none")
        fields.problem("rope.scaling.type = {}, wanted none or linear", quote_text(scaling));
}

void mamba_prefixed(GgufFields& fields, std::string_view first_block, Json& json) {
    const int64_t n_heads = fields.size("ssm.time_step_rank");
    const int64_t d_inner = fields.size("ssm.inner_size");
    const int64_t hidden = std::max<int64_t>(1, fields.size("embedding_length"));
    json["mamba_n_heads"] = n_heads;
    json["mamba_d_head"] = n_heads > 0 ? d_inner / n_heads : 0;
    json["mamba_d_state"] = fields.size("ssm.state_size");
    json["mamba_n_groups"] = fields.size_or("ssm.group_count", 1);
    json["mamba_d_conv"] = fields.size("ssm.conv_kernel");
    // Readers cut the product's fraction off.
    json["mamba_expand"] = d_inner % hidden == 0
                               ? Json(d_inner / hidden)
                               : Json((static_cast<double>(d_inner) + 0.25) / static_cast<double>(hidden));
    json["mamba_conv_bias"] = fields.has_tensor(fmt::format("{}ssm_conv1d.bias", first_block));
    json["mamba_proj_bias"] = fields.has_tensor(fmt::format("{}ssm_in.bias", first_block));
}

// Of families whose names have no prefix: puts those that they share, and returns all of mamba_prefixed.
Json mamba_unprefixed(GgufFields& fields, std::string_view first_block, Json& json) {
    Json mamba;
    mamba_prefixed(fields, first_block, mamba);
    json["n_groups"] = mamba["mamba_n_groups"];
    json["conv_kernel"] = mamba["mamba_d_conv"];
    json["use_conv_bias"] = mamba["mamba_conv_bias"];
    json["use_bias"] = mamba["mamba_proj_bias"];
    return mamba;
}

// The prefix of the first block for which `is` holds.
template <typename Is>
std::string block_where(const std::vector<int64_t>& list, const Is& is) {
    for (size_t i = 0; i < list.size(); ++i)
        if (is(list[i])) return fmt::format("blk.{}.", i);
    return "blk.0.";
}

// Puts the kind of every layer, and returns the KV heads of those with attention.
int64_t read_layer_types(const std::vector<int64_t>& kv_heads, Json& json) {
    json["layer_types"] = Json::array();
    int64_t n_kv_heads = 1;
    for (const int64_t heads : kv_heads) {
        json["layer_types"].push_back(heads > 0 ? "attention" : "mamba");
        n_kv_heads = std::max(n_kv_heads, heads);
    }
    return n_kv_heads;
}

// A head of Bamba turns in part.
Json bamba(GgufFields& fields) {
    Json json = common(fields, "BambaForCausalLM", "bamba");
    const std::vector<int64_t> kv_heads = fields.per_layer("attention.head_count_kv");
    attention(fields, false, read_layer_types(kv_heads, json), json);
    json["attn_rotary_emb"] = fields.size_or("rope.dimension_count", json["head_dim"].get<int64_t>());
    json["rope_theta"] = fields.number_or("rope.freq_base", 10000.0);
    json["attention_bias"] = fields.has_tensor(block_where(kv_heads, [](int64_t n) { return n > 0; }) + "attn_q.bias");
    json["mlp_bias"] = fields.has_tensor("blk.0.ffn_up.bias");
    json["rms_norm_eps"] = fields.number("attention.layer_norm_rms_epsilon");
    json["max_position_embeddings"] = fields.size("context_length");
    json["intermediate_size"] = fields.size("feed_forward_length");
    mamba_prefixed(fields, block_where(kv_heads, [](int64_t n) { return n == 0; }), json);
    return json;
}

// Files of Bamba have Granite's architecture, positions, and none of its multipliers.
bool is_bamba(GgufFields& fields) {
    const auto has = [&fields](std::string_view key) { return fields.has(key); };
    return fields.flag_or("rope.scaling.finetuned", true) && fields.size_or("expert_count", 0) == 0 &&
           std::ranges::none_of(
               std::array<std::string_view, 4>{"attention.scale", "embedding_scale", "residual_scale", "logit_scale"},
               has);
}

Json granite_hybrid(GgufFields& fields) {
    if (is_bamba(fields)) return bamba(fields);
    Json json = common(fields, "GraniteMoeHybridForCausalLM", "granitemoehybrid");
    const std::vector<int64_t> kv_heads = fields.per_layer("attention.head_count_kv");
    const int64_t n_kv_heads = read_layer_types(kv_heads, json);
    const bool has_positions = fields.flag_or("rope.scaling.finetuned", true);
    attention(fields, has_positions, n_kv_heads, json);
    json["position_embedding_type"] = has_positions ? "rope" : "nope";
    json["attention_bias"] = fields.has_tensor(block_where(kv_heads, [](int64_t n) { return n > 0; }) + "attn_q.bias");
    json["rms_norm_eps"] = fields.number("attention.layer_norm_rms_epsilon");
    json["max_position_embeddings"] = fields.size("context_length");
    json["embedding_multiplier"] = fields.number_or("embedding_scale", 1.0);
    json["residual_multiplier"] = fields.number_or("residual_scale", 1.0);
    json["logits_scaling"] = fields.number_or("logit_scale", 1.0);
    json["attention_multiplier"] = fields.number_or("attention.scale", 1.0 / std::sqrt(json["head_dim"].get<double>()));
    const int64_t n_experts = fields.size_or("expert_count", 0);
    json["num_local_experts"] = n_experts;
    json["num_experts_per_tok"] = fields.size_or("expert_used_count", 0);
    fields.harmless({"expert_shared_feed_forward_length"});
    if (n_experts > 0) json["intermediate_size"] = fields.tensor_rows("blk.0.ffn_up_exps.weight");
    json["shared_intermediate_size"] =
        fields.tensor_rows(n_experts > 0 ? "blk.0.ffn_up_shexp.weight" : "blk.0.ffn_up.weight");
    mamba_prefixed(fields, block_where(kv_heads, [](int64_t n) { return n == 0; }), json);
    return json;
}

void read_divisors(GgufFields& fields, Json& json) {
    const std::vector<float> divisors = fields.vector_of(kRopeFreqs);
    const auto rope = llama3_scaling(divisors, json["rope_theta"].get<double>());
    if (json.contains("rope_scaling") || !rope || static_cast<int64_t>(2 * divisors.size()) != json["head_dim"]) {
        fields.problem("tensor {}: its {} divisors are not those of a scaling of Llama 3.1", kRopeFreqs,
                       divisors.size());
        return;
    }
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", rope->factor},
                            {"low_freq_factor", rope->low_freq_factor},
                            {"high_freq_factor", rope->high_freq_factor},
                            {"original_max_position_embeddings", rope->original_max_position_embeddings}};
}

// GGUF's numbers of how a router's logits become weights.
constexpr int64_t kGatingSoftmax = 1;
constexpr int64_t kGatingSigmoid = 2;

void expect_gating(GgufFields& fields, int64_t wanted) {
    if (const int64_t said = fields.size_or("expert_gating_func", wanted); said != wanted)
        fields.problem("expert_gating_func = {}, wanted {}", said, wanted);
}

Json llama(GgufFields& fields) {
    Json json = common(fields, "LlamaForCausalLM", "llama");
    attention(fields, true, fields.size("attention.head_count_kv"), json);
    json["attention_bias"] = fields.has_tensor("blk.0.attn_q.bias");
    json["mlp_bias"] = fields.has_tensor("blk.0.ffn_up.bias");
    json["rms_norm_eps"] = fields.number("attention.layer_norm_rms_epsilon");
    json["max_position_embeddings"] = fields.size("context_length");
    json["intermediate_size"] = fields.size("feed_forward_length");
    if (fields.size_or("expert_count", 0) > 0)
        fields.problem("llama.expert_count: a llama with experts is not supported");
    if (fields.has_tensor(kRopeFreqs)) read_divisors(fields, json);
    fields.harmless({"expert_used_count"});
    return json;
}

Json mamba2(GgufFields& fields) {
    Json json = common(fields, "Mamba2ForCausalLM", "mamba2");
    const Json mamba = mamba_unprefixed(fields, "blk.0.", json);
    json["layer_norm_epsilon"] = fields.number("attention.layer_norm_rms_epsilon");
    json["num_heads"] = mamba["mamba_n_heads"];
    json["head_dim"] = mamba["mamba_d_head"];
    json["state_size"] = mamba["mamba_d_state"];
    json["expand"] = mamba["mamba_expand"];
    fields.harmless({"attention.head_count", "attention.head_count_kv", "ssm.dt_b_c_rms"});
    return json;
}

// Of layers with experts; `first` is the first of them.
void nemotron_experts(GgufFields& fields, int64_t first, Json& json) {
    json["n_routed_experts"] = fields.size("expert_count");
    json["num_experts_per_tok"] = fields.size("expert_used_count");
    json["n_shared_experts"] = fields.size_or("expert_shared_count", 1);
    json["moe_intermediate_size"] = fields.size("expert_feed_forward_length");
    json["moe_shared_expert_intermediate_size"] = fields.size("expert_shared_feed_forward_length");
    json["norm_topk_prob"] = fields.flag_or("expert_weights_norm", false);
    json["routed_scaling_factor"] = fields.number_or("expert_weights_scale", 1.0);
    if (const int64_t latent = fields.size_or("moe_latent_size", 0); latent > 0) json["moe_latent_size"] = latent;
    const int64_t n_groups = fields.size_or("expert_group_count", 1);
    json["n_group"] = n_groups;
    json["topk_group"] = n_groups > 1 ? fields.size("expert_group_used_count") : 1;
    fields.harmless({"expert_group_used_count"});
    expect_gating(fields, kGatingSigmoid);
    json["mlp_bias"] = fields.has_tensor_in(first, "ffn_up_shexp.bias");
}

// Layers of experts and of an MLP both have a feed_forward_length: tensors tell them apart.
Json nemotron_h_layers(GgufFields& fields) {
    Json json = common(fields, "NemotronHForCausalLM", "nemotron_h");
    const std::vector<int64_t> kv_heads = fields.per_layer("attention.head_count_kv");
    const std::vector<int64_t> d_ff = fields.per_layer("feed_forward_length");
    std::string pattern;
    int64_t n_kv_heads = 1;
    for (size_t i = 0; i < kv_heads.size(); ++i) {
        const bool has_experts = fields.has_tensor_in(static_cast<int64_t>(i), "ffn_gate_inp.weight");
        pattern += kv_heads[i] > 0 ? '*' : d_ff[i] == 0 ? 'M' : has_experts ? 'E' : '-';
        n_kv_heads = std::max(n_kv_heads, kv_heads[i]);
    }
    const auto first = [&pattern](char kind) {
        const size_t found = pattern.find(kind);
        return found == std::string::npos ? 0 : static_cast<int64_t>(found);
    };
    json["hybrid_override_pattern"] = pattern;
    json["intermediate_size"] =
        std::max<int64_t>(1, fields.tensor_rows(fmt::format("blk.{}.ffn_up.weight", first('-'))));
    attention(fields, false, n_kv_heads, json);
    json["attention_bias"] = fields.has_tensor_in(first('*'), "attn_q.bias");
    json["mlp_bias"] = fields.has_tensor_in(first('-'), "ffn_up.bias");
    json["mlp_hidden_act"] = "relu2";
    const double eps = fields.number("attention.layer_norm_rms_epsilon");
    json["layer_norm_epsilon"] = eps;
    if (fields.number_or("attention.layer_norm_epsilon", eps) != eps)
        fields.problem("attention.layer_norm_epsilon is not attention.layer_norm_rms_epsilon = {}", eps);
    json["max_position_embeddings"] = fields.size("context_length");
    const Json mamba = mamba_unprefixed(fields, fmt::format("blk.{}.", first('M')), json);
    json["mamba_num_heads"] = mamba["mamba_n_heads"];
    json["mamba_head_dim"] = mamba["mamba_d_head"];
    json["ssm_state_size"] = mamba["mamba_d_state"];
    fields.harmless({"rope.scaling.type", "expert_count", "expert_used_count"});
    return json;
}

Json nemotron_h(GgufFields& fields) { return nemotron_h_layers(fields); }

Json nemotron_h_moe(GgufFields& fields) {
    fields.read_num_prediction();
    Json json = nemotron_h_layers(fields);
    const std::string pattern = json["hybrid_override_pattern"];
    const size_t first = pattern.find('E');
    if (first == std::string::npos)
        fields.problem("no layer has experts (ffn_gate_inp.weight), wanted general.architecture = nemotron_h");
    else
        nemotron_experts(fields, static_cast<int64_t>(first), json);
    return json;
}

// The converter multiplies the family's multipliers into the weights: they are 1 here.
Json falcon_h1(GgufFields& fields) {
    Json json = common(fields, "FalconH1ForCausalLM", "falcon_h1");
    attention(fields, true, fields.size("attention.head_count_kv"), json);
    mamba_prefixed(fields, "blk.0.", json);
    json["mamba_d_ssm"] = fields.size("ssm.inner_size");
    json["mamba_rms_norm"] = fields.has_tensor("blk.0.ssm_norm.weight");
    json["mamba_norm_before_gate"] = false;
    json["projectors_bias"] = fields.has_tensor("blk.0.ssm_out.bias");
    json["attention_bias"] = fields.has_tensor("blk.0.attn_q.bias");
    json["mlp_bias"] = fields.has_tensor("blk.0.ffn_up.bias");
    json["intermediate_size"] = fields.size("feed_forward_length");
    json["rms_norm_eps"] = fields.number("attention.layer_norm_rms_epsilon");
    json["max_position_embeddings"] = fields.size("context_length");
    return json;
}

// "linear_attention" or "full_attention" for every layer: as attention.recurrent_layers lists, else by an interval.
Json delta_layer_types(GgufFields& fields) {
    const int64_t interval = std::max<int64_t>(1, fields.size_or("full_attention_interval", 4));
    std::vector<int64_t> recurrent;
    if (fields.has("attention.recurrent_layers")) recurrent = fields.per_layer("attention.recurrent_layers");
    Json kinds = Json::array();
    for (int64_t i = 0; i < fields.num_layers(); ++i) {
        const bool is_recurrent = recurrent.empty() ? (i + 1) % interval != 0 : recurrent[static_cast<size_t>(i)] != 0;
        kinds.push_back(is_recurrent ? "linear_attention" : "full_attention");
    }
    return kinds;
}

// What the three families with gated delta nets share.
Json delta_family(GgufFields& fields, std::string_view name, std::string_view model_type) {
    Json json = common(fields, name, model_type);
    json["layer_types"] = delta_layer_types(fields);
    const std::vector<int64_t> kv_heads = fields.per_layer("attention.head_count_kv");
    int64_t n_kv_heads = 1;
    for (const int64_t heads : kv_heads) n_kv_heads = std::max(n_kv_heads, heads);
    attention(fields, false, n_kv_heads, json);
    const double head_dim = std::max(1.0, json["head_dim"].get<double>());
    // Readers cut the product's fraction off.
    const double turned = static_cast<double>(fields.size("rope.dimension_count")) + 0.25;
    json["rope_parameters"] = {{"rope_type", "default"},
                               {"rope_theta", fields.number("rope.freq_base")},
                               {"partial_rotary_factor", turned / head_dim}};
    if (const auto scaling = fields.text_or("rope.scaling.type", "none"); scaling != "none")
        fields.problem("rope.scaling.type = {}, wanted none", quote_text(scaling));
    fields.harmless({"rope.dimension_sections"});  // equal positions of text
    json["rms_norm_eps"] = fields.number("attention.layer_norm_rms_epsilon");
    json["max_position_embeddings"] = fields.size("context_length");
    const int64_t n_values = fields.size("ssm.time_step_rank");
    const int64_t width = fields.size("ssm.inner_size");
    if (n_values > 0 && width % n_values != 0)
        fields.problem("ssm.inner_size = {}, wanted a multiple of ssm.time_step_rank = {}", width, n_values);
    json["linear_num_key_heads"] = fields.size("ssm.group_count");
    json["linear_num_value_heads"] = n_values;
    json["linear_key_head_dim"] = fields.size("ssm.state_size");
    json["linear_value_head_dim"] = n_values > 0 ? width / n_values : 0;
    json["linear_conv_kernel_dim"] = fields.size("ssm.conv_kernel");
    return json;
}

void delta_experts(GgufFields& fields, Json& json) {
    json["num_experts"] = fields.size("expert_count");
    json["num_experts_per_tok"] = fields.size("expert_used_count");
    json["moe_intermediate_size"] = fields.size("expert_feed_forward_length");
    json["shared_expert_intermediate_size"] = fields.size("expert_shared_feed_forward_length");
    expect_gating(fields, kGatingSoftmax);
    if (!fields.flag_or("expert_weights_norm", true))
        fields.problem("expert_weights_norm = false, wanted true: llama.cpp divides by the sum in any case");
    if (const double scale = fields.number_or("expert_weights_scale", 1.0); scale != 1.0)
        fields.problem("expert_weights_scale = {}, wanted 1", scale);
}

Json qwen35(GgufFields& fields) {
    fields.read_num_prediction();
    Json json = delta_family(fields, "Qwen3_5ForCausalLM", "qwen3_5_text");
    json["intermediate_size"] = fields.size("feed_forward_length");
    return json;
}

Json qwen35moe(GgufFields& fields) {
    fields.read_num_prediction();
    Json json = delta_family(fields, "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text");
    delta_experts(fields, json);
    return json;
}

// Layers without a router have an MLP.
Json qwen3next(GgufFields& fields) {
    fields.read_num_prediction();
    Json json = delta_family(fields, "Qwen3NextForCausalLM", "qwen3_next");
    delta_experts(fields, json);
    json["mlp_only_layers"] = Json::array();
    for (int64_t i = 0; i < fields.num_layers(); ++i) {
        if (fields.has_tensor_in(i, "ssm_in.weight"))
            fields.problem("blk.{}.ssm_in.weight: q, k, v and z in one matrix are not read, convert the model again",
                           i);
        if (fields.has_tensor_in(i, "ffn_gate_inp.weight")) continue;
        json["mlp_only_layers"].push_back(i);
        json["intermediate_size"] = std::max<int64_t>(1, fields.tensor_rows(fmt::format("blk.{}.ffn_up.weight", i)));
    }
    return json;
}

const std::string_view* text_at(const GgufFile& file, std::string_view key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? nullptr : std::get_if<std::string_view>(&found->second);
}

struct GgufReader {
    std::string_view architecture;
    Json (*read)(GgufFields& fields);
};
constexpr std::array<GgufReader, 9> kGgufReaders = {{{"granitehybrid", granite_hybrid},
                                                     {"llama", llama},
                                                     {"mamba2", mamba2},
                                                     {"nemotron_h", nemotron_h},
                                                     {"nemotron_h_moe", nemotron_h_moe},
                                                     {"falcon-h1", falcon_h1},
                                                     {"qwen35", qwen35},
                                                     {"qwen35moe", qwen35moe},
                                                     {"qwen3next", qwen3next}}};

Result<const GgufReader*> find_gguf_reader(const GgufFile& file, std::string_view source) {
    const std::string_view* name = text_at(file, "general.architecture");
    if (name == nullptr) return error("{}: general.architecture is missing, wanted a text", source);
    std::string supported;
    for (const GgufReader& reader : kGgufReaders) {
        if (reader.architecture == *name) return &reader;
        supported += fmt::format("{}{}", supported.empty() ? "" : ", ", reader.architecture);
    }
    return error("{}: general.architecture = {} is not supported in GGUF files: {} are", source, quote_text(*name),
                 supported);
}

// Value heads stay in the file's order where the columns of the output matrix are in blocks, which cannot be moved.
void keep_tiled_values(const GgufFile& file, ModelConfig& config) {
    if (config.architecture != Architecture::kQwen35 && config.architecture != Architecture::kQwen35Moe) return;
    for (size_t i = 0; i < config.layers.size(); ++i) {
        auto& delta = config.layers[i].delta;
        const auto found = file.tensors.find(fmt::format("blk.{}.ssm_out.weight", i));
        if (!delta || found == file.tensors.end()) continue;
        delta->tiled_values =
            delta->n_key_heads > 1 && delta->values_per_key() > 1 && !found->second.format->is_dense();
    }
}

}  // namespace

int64_t num_prediction_blocks(const GgufFile& file) {
    const std::string_view* architecture = text_at(file, "general.architecture");
    if (architecture == nullptr) return 0;
    const auto found = file.metadata.find(fmt::format("{}.nextn_predict_layers", *architecture));
    const auto* number = found == file.metadata.end() ? nullptr : std::get_if<int64_t>(&found->second);
    return number == nullptr ? 0 : *number;
}

bool is_prediction_tensor(const GgufFile& file, const ModelConfig& config, std::string_view name) {
    constexpr std::string_view kBlock = "blk.";
    if (!name.starts_with(kBlock) || num_prediction_blocks(file) == 0) return false;
    int64_t block = 0;
    const std::string_view number = name.substr(kBlock.size());
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), block);
    return parsed.ec == std::errc() && block >= std::ssize(config.layers) &&
           block < std::ssize(config.layers) + num_prediction_blocks(file);
}

Result<ModelConfig> gguf_config(const GgufFile& file, std::string_view source) {
    ASSIGN_OR_RETURN(const GgufReader* reader, find_gguf_reader(file, source));
    if (!file.tensors.contains("token_embd.weight")) return error("{}: tensor token_embd.weight is missing", source);
    GgufFields fields(file, reader->architecture);
    const Json json = reader->read(fields);
    if (const auto problems = fields.problems(); !problems.empty())
        return error("{}: {}", source, fmt::join(problems, "; "));
    ASSIGN_OR_RETURN(ModelConfig config,
                     parse_config(json.dump(), fmt::format("{}: its metadata as a config.json", source)));
    keep_tiled_values(file, config);
    return config;
}

}  // namespace verbatim::reference
