#include "reference/loader/gguf_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <set>

#include "files/strict_json.h"
#include "reference/loader/config_json.h"
#include "reference/loader/gguf_rope.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxBlocks = 4096;

// The shortest decimal number that a binary32 prints as: 1e-05 and not 9.999999747378752e-06, as in the config.json
// that the value came from. It rounds to the same binary32.
double shortest(double value) { return std::strtod(fmt::format("{}", static_cast<float>(value)).c_str(), nullptr); }

// The keys of one architecture; collects problems and the keys that were looked at.
class GgufFields {
public:
    GgufFields(const GgufFile& file, std::string_view architecture)
        : file_(file), prefix_(fmt::format("{}.", architecture)) {}

    [[nodiscard]] bool has(std::string_view key) { return find(key) != nullptr; }
    [[nodiscard]] bool has_tensor(std::string_view name) const { return file_.tensors.contains(name); }
    // The values of a tensor that is there; empty if it is not one of at most 4096 binary32 numbers.
    [[nodiscard]] std::vector<float> vector_of(std::string_view name) const {
        const GgufTensor& tensor = file_.tensors.at(name);
        std::vector<float> values;
        if (tensor.format->name == "F32" && tensor.num_elements() <= 4096) {
            values.resize(static_cast<size_t>(tensor.num_elements()));
            dequantise(*tensor.format, tensor.bytes, values);
        }
        return values;
    }
    // Rows of a matrix, 0 without one.
    [[nodiscard]] int64_t tensor_rows(std::string_view name) const {
        const auto found = file_.tensors.find(name);
        return found == file_.tensors.end() || found->second.shape.size() < 2
                   ? 0
                   : found->second.shape[found->second.shape.size() - 2];
    }
    int64_t size_or(std::string_view key, int64_t missing) {
        const GgufValue* value = find(key);
        if (value == nullptr) return missing;
        const auto* number = std::get_if<int64_t>(value);
        if (number != nullptr && *number >= 0 && *number <= INT32_MAX) return *number;
        problem("{}{} = {}, wanted a natural number below 2^31", prefix_, key, value_text(*value));
        return missing;
    }
    int64_t size(std::string_view key) {
        if (find(key) == nullptr) problem("{}{} is missing, wanted a natural number", prefix_, key);
        return size_or(key, 1);
    }
    double number_or(std::string_view key, double missing) {
        const GgufValue* value = find(key);
        if (value == nullptr) return missing;
        if (const auto* real = std::get_if<double>(value); real != nullptr && std::isfinite(*real))
            return shortest(*real);
        problem("{}{} = {}, wanted a number", prefix_, key, value_text(*value));
        return missing;
    }
    double number(std::string_view key) {
        if (find(key) == nullptr) problem("{}{} is missing, wanted a number", prefix_, key);
        return number_or(key, 1.0);
    }
    bool flag_or(std::string_view key, bool missing) {
        const GgufValue* value = find(key);
        if (value == nullptr) return missing;
        if (const auto* flag = std::get_if<bool>(value)) return *flag;
        problem("{}{} = {}, wanted true or false", prefix_, key, value_text(*value));
        return missing;
    }
    std::string_view text_or(std::string_view key, std::string_view missing) {
        const GgufValue* value = find(key);
        const auto* text = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
        if (value != nullptr && text == nullptr) problem("{}{} = {}, wanted a text", prefix_, key, value_text(*value));
        return text == nullptr ? missing : *text;
    }
    // A number for every block, or one for all.
    std::vector<int64_t> per_block(std::string_view key) {
        std::vector<int64_t> list(static_cast<size_t>(num_blocks()), 0);
        const GgufValue* value = find(key);
        const auto* numbers = value == nullptr ? nullptr : std::get_if<GgufNumbers>(value);
        if (numbers == nullptr) {
            std::fill(list.begin(), list.end(), size(key));
            return list;
        }
        if (numbers->size() != list.size())
            problem("{}{} has {} numbers, block_count is {}", prefix_, key, numbers->size(), list.size());
        for (size_t i = 0; i < std::min(list.size(), numbers->size()); ++i) {
            const double each = numbers->at(i);
            if (!(each >= 0 && each <= INT32_MAX))
                problem("{}{}[{}] = {}, wanted a natural number", prefix_, key, i, each);
            else
                list[i] = static_cast<int64_t>(each);
        }
        return list;
    }
    int64_t num_blocks() { return std::min(size("block_count"), kMaxBlocks); }
    // Keys that change nothing.
    void harmless(std::initializer_list<std::string_view> keys) {
        for (const std::string_view key : keys) find(key);
    }
    template <typename... Args>
    void problem(fmt::format_string<Args...> format, Args&&... args) {
        std::string text = fmt::format(format, std::forward<Args>(args)...);
        if (std::find(problems_.begin(), problems_.end(), text) == problems_.end())
            problems_.push_back(std::move(text));
    }
    // Every problem, keys of the architecture that nothing asked for among them.
    [[nodiscard]] std::vector<std::string> problems() {
        for (const auto& [key, value] : file_.metadata)
            if (key.starts_with(prefix_) && !seen_.contains(key))
                problem("{} = {}: the key is not known for this architecture", quote_text(key), value_text(value));
        return problems_;
    }

private:
    const GgufValue* find(std::string_view key) {
        const std::string whole = prefix_ + std::string(key);
        const auto found = file_.metadata.find(whole);
        if (found == file_.metadata.end()) return nullptr;
        seen_.insert(found->first);
        return &found->second;
    }

    const GgufFile& file_;
    std::string prefix_;
    std::set<std::string_view> seen_;
    std::vector<std::string> problems_;
};

// What every architecture has.
Json common(GgufFields& fields, std::string_view name, std::string_view model_type) {
    Json json = {{"architectures", {name}}, {"model_type", model_type}};
    json["vocab_size"] = fields.tensor_rows("token_embd.weight");
    json["hidden_size"] = fields.size("embedding_length");
    json["num_hidden_layers"] = fields.num_blocks();
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

Json granite_hybrid(GgufFields& fields) {
    Json json = common(fields, "GraniteMoeHybridForCausalLM", "granitemoehybrid");
    const std::vector<int64_t> kv_heads = fields.per_block("attention.head_count_kv");
    json["layer_types"] = Json::array();
    int64_t n_kv_heads = 1;
    for (const int64_t heads : kv_heads) {
        json["layer_types"].push_back(heads > 0 ? "attention" : "mamba");
        n_kv_heads = std::max(n_kv_heads, heads);
    }
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

Json nemotron_h(GgufFields& fields) {
    Json json = common(fields, "NemotronHForCausalLM", "nemotron_h");
    const std::vector<int64_t> kv_heads = fields.per_block("attention.head_count_kv");
    const std::vector<int64_t> d_ff = fields.per_block("feed_forward_length");
    std::string pattern;
    int64_t n_kv_heads = 1;
    int64_t width = 1;
    for (size_t i = 0; i < kv_heads.size(); ++i) {
        pattern += kv_heads[i] > 0 ? '*' : d_ff[i] > 0 ? '-' : 'M';
        n_kv_heads = std::max(n_kv_heads, kv_heads[i]);
        width = std::max(width, d_ff[i]);
    }
    json["hybrid_override_pattern"] = pattern;
    json["intermediate_size"] = width;
    attention(fields, false, n_kv_heads, json);
    const auto positive = [](int64_t n) { return n > 0; };
    json["attention_bias"] = fields.has_tensor(block_where(kv_heads, positive) + "attn_q.bias");
    json["mlp_bias"] = fields.has_tensor(block_where(d_ff, positive) + "ffn_up.bias");
    json["mlp_hidden_act"] = "relu2";
    json["layer_norm_epsilon"] = fields.number("attention.layer_norm_rms_epsilon");
    json["max_position_embeddings"] = fields.size("context_length");
    const auto first_mamba = pattern.find('M');
    const std::string block = fmt::format("blk.{}.", first_mamba == std::string::npos ? 0 : first_mamba);
    const Json mamba = mamba_unprefixed(fields, block, json);
    json["mamba_num_heads"] = mamba["mamba_n_heads"];
    json["mamba_head_dim"] = mamba["mamba_d_head"];
    json["ssm_state_size"] = mamba["mamba_d_state"];
    fields.harmless({"rope.scaling.type", "expert_count", "expert_used_count"});
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

struct GgufReader {
    std::string_view architecture;
    Json (*read)(GgufFields& fields);
};
constexpr std::array<GgufReader, 5> kGgufReaders = {{{"granitehybrid", granite_hybrid},
                                                     {"llama", llama},
                                                     {"mamba2", mamba2},
                                                     {"nemotron_h", nemotron_h},
                                                     {"falcon-h1", falcon_h1}}};

Result<const GgufReader*> find_gguf_reader(const GgufFile& file, std::string_view source) {
    const auto found = file.metadata.find("general.architecture");
    const auto* name = found == file.metadata.end() ? nullptr : std::get_if<std::string_view>(&found->second);
    if (name == nullptr) return error("{}: general.architecture is missing, wanted a text", source);
    std::string supported;
    for (const GgufReader& reader : kGgufReaders) {
        if (reader.architecture == *name) return &reader;
        supported += fmt::format("{}{}", supported.empty() ? "" : ", ", reader.architecture);
    }
    return error("{}: general.architecture = {} is not supported in GGUF files: {} are", source, quote_text(*name),
                 supported);
}

}  // namespace

Result<ModelConfig> gguf_config(const GgufFile& file, std::string_view source) {
    ASSIGN_OR_RETURN(const GgufReader* reader, find_gguf_reader(file, source));
    if (!file.tensors.contains("token_embd.weight")) return error("{}: tensor token_embd.weight is missing", source);
    GgufFields fields(file, reader->architecture);
    const Json json = reader->read(fields);
    if (const auto problems = fields.problems(); !problems.empty())
        return error("{}: {}", source, fmt::join(problems, "; "));
    return parse_config(json.dump(), fmt::format("{}: its metadata as a config.json", source));
}

}  // namespace verbatim::reference
