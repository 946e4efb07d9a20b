#include "reference/loader/config_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

std::string golden_config(const std::string& name) {
    std::ifstream file(VERBATIM_SOURCE_DIR "/tests/data/golden/" + name + "/config.json");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

// One change to a good config.json, and a piece of the error it must get.
struct BadField {
    std::string golden;
    std::string key;
    Json value;  // discarded: the key is removed
    std::string wanted_error;
};

void PrintTo(const BadField& bad, std::ostream* out) {
    *out << bad.golden << "." << bad.key << " = " << bad.value.dump();
}

const Json kRemoved = Json(Json::value_t::discarded);

class BadConfigField : public testing::TestWithParam<BadField> {};

TEST_P(BadConfigField, IsAnErrorThatNamesTheField) {
    Json json = Json::parse(golden_config(GetParam().golden));
    if (GetParam().value.is_discarded())
        json.erase(GetParam().key);
    else
        json[GetParam().key] = GetParam().value;
    const auto config = parse_config(json.dump(), "config.json");
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find(GetParam().wanted_error), std::string::npos) << config.error().message;
    EXPECT_TRUE(config.error().message.starts_with("config.json: ")) << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Granite, BadConfigField,
    testing::Values(
        BadField{"granite-hybrid", "hidden_act", "gelu", "hidden_act = \"gelu\", wanted silu or swish"},
        BadField{"granite-hybrid", "num_local_experts", 64, "num_experts_per_tok = 0, wanted an integer from 1"},
        BadField{"granite-hybrid", "normalization_function", "layernorm", "normalization_function = \"layernorm\""},
        BadField{"granite-hybrid", "position_embedding_type", "alibi", "position_embedding_type = \"alibi\""},
        BadField{"granite-hybrid", "vocab_size", 0, "vocab_size = 0, wanted an integer from 1"},
        BadField{"granite-hybrid", "vocab_size", 2147483648, "vocab_size = 2147483648, wanted an integer"},
        BadField{"granite-hybrid", "vocab_size", 160.5, "vocab_size = 160.5, wanted an integer"},
        BadField{"granite-hybrid", "vocab_size", 16777217, "vocab_size = 16777217, wanted 1..16777216"},
        BadField{"granite-hybrid", "hidden_size", "64", "hidden_size = \"64\", wanted an integer"},
        BadField{"granite-hybrid", "hidden_size", kRemoved, "hidden_size is missing"},
        BadField{"granite-hybrid", "rms_norm_eps", kRemoved, "rms_norm_eps is missing"},
        BadField{"granite-hybrid", "rms_norm_eps", -1e-5, "norm_eps = -1e-05"},
        BadField{"granite-hybrid", "layer_types", kRemoved, "layer_types has 0 names, num_hidden_layers = 4"},
        BadField{"granite-hybrid", "layer_types", Json({"mamba", "mamba", "attention", "gated_deltanet"}),
                 "layer_types[3] = \"gated_deltanet\""},
        BadField{"granite-hybrid", "layer_types", Json({"mamba", "mamba", "attention", "mlp"}),
                 "layer_types[3] is of a kind that this family does not have"},
        BadField{"granite-hybrid", "layers_block_type", Json({"mamba", "mamba", "mamba", "mamba"}),
                 "layer_types contradicts layers_block_type"},
        BadField{"granite-hybrid", "num_hidden_layers", 5, "layer_types has 4 names, num_hidden_layers = 5"},
        BadField{"granite-hybrid", "num_hidden_layers", 2000000000, "wanted at most 4096"},
        BadField{"granite-hybrid", "num_key_value_heads", 3, "n_kv_heads = 3 does not divide n_heads = 4"},
        BadField{"granite-hybrid", "num_attention_heads", 6,
                 "num_attention_heads = 6 does not divide hidden_size = 64"},
        BadField{"granite-hybrid", "mamba_n_heads", 7, "mamba_n_heads * mamba_d_head = 7 * 16 is not"},
        BadField{"granite-hybrid", "mamba_n_groups", 3, "n_groups = 3 does not divide n_heads = 8"},
        BadField{"granite-hybrid", "mamba_d_conv", 5, "d_conv = 5, wanted 2..4"},
        BadField{"granite-hybrid", "mamba_expand", 1e300, "mamba_expand * hidden_size"},
        BadField{"granite-hybrid", "mamba_proj_bias", 1, "mamba_proj_bias = 1, wanted true or false"},
        BadField{"granite-hybrid", "time_step_limit", Json({0.5, 0.1}),
                 "time_step_limit = [0.5,0.1], wanted [low, high]"},
        BadField{"granite-hybrid", "time_step_limit", Json({0.5}), "time_step_limit = [0.5]"},
        BadField{"granite-hybrid", "quantization_config", Json{{"bits", 4}}, "quantization_config"},
        BadField{"granite-hybrid", "sliding_window", 4096, "sliding_window = 4096"},
        BadField{"granite-hybrid", "query_pre_attn_scalar", 256,
                 "\"query_pre_attn_scalar\" = 256 is not understood and might change the arithmetic"},
        BadField{"granite-hybrid", "residual_multiplier", "0.22",
                 "residual_multiplier = \"0.22\", wanted a finite number"},
        BadField{"granite-hybrid", "logits_scaling", 0, "logits_divisor = 0"},
        BadField{"granite-hybrid", "model_type", "llama", "model_type = \"llama\" contradicts"},
        BadField{"granite-hybrid", "architectures", Json({"Qwen4ExpForCausalLM"}),
                 "architectures = \"Qwen4ExpForCausalLM\" is not supported. Supported: GraniteMoeHybridForCausalLM, "
                 "LlamaForCausalLM"},
        BadField{"granite-hybrid", "architectures", kRemoved, "architectures = (missing)"}));

INSTANTIATE_TEST_SUITE_P(
    Rope, BadConfigField,
    testing::Values(BadField{"llama", "rope_scaling", Json{{"rope_type", "yarn"}, {"factor", 4.0}},
                             "rope scaling of type \"yarn\" is not supported: wanted default, linear or llama3"},
                    BadField{"llama", "rope_scaling", Json{{"type", "dynamic"}, {"factor", 2.0}}, "type \"dynamic\""},
                    BadField{"llama", "rope_scaling", Json{{"rope_type", "linear"}}, "rope_scaling.factor is missing"},
                    BadField{"llama", "rope_scaling", Json{{"rope_type", "linear"}, {"factor", 2.0}, {"mscale", 1.0}},
                             "rope_scaling.\"mscale\" = 1.0 is not understood"},
                    BadField{"llama", "rope_scaling", 4, "rope_scaling = 4, wanted an object"},
                    BadField{"llama", "rope_parameters", Json{{"rope_type", "default"}, {"rope_theta", 1e4}},
                             "contradicts rope_parameters = {\"rope_theta\":10000.0,\"rope_type\":\"default\"}"},
                    BadField{"granite-rope", "rope_parameters", Json{{"rope_theta", 1e6}},
                             "rope_theta = 5000 contradicts rope_parameters.rope_theta = 1000000"},
                    BadField{"llama", "partial_rotary_factor", 0.5, "this family turns all 16 dimensions"},
                    BadField{"llama", "head_dim", 15, "n_rotary_dims = 15, wanted an even number"},
                    BadField{"llama", "pretraining_tp", 2, "pretraining_tp = 2"},
                    BadField{"bamba", "attn_rotary_emb", 18, "turns 18 dimensions, wanted 2 to 16"},
                    BadField{"bamba", "partial_rotary_factor", 1.0,
                             "attn_rotary_emb = 8 contradicts partial_rotary_factor"}));

INSTANTIATE_TEST_SUITE_P(
    OtherFamilies, BadConfigField,
    testing::Values(
        BadField{"bamba", "attn_layer_indices", Json({1, 4}),
                 "attn_layer_indices names layer 4, num_hidden_layers = 4"},
        BadField{"bamba", "attn_layer_indices", Json({-1}), "attn_layer_indices names layer -1"},
        BadField{"nemotron-h", "hybrid_override_pattern", "M-M*EM-",
                 "n_routed_experts or num_local_experts is missing"},
        BadField{"nemotron-h", "hybrid_override_pattern", "M-M*xM-", "wanted M, *, - or E"},
        BadField{"nemotron-h", "hybrid_override_pattern", "M-M", "num_hidden_layers = 7, the layers' pattern has 3"},
        BadField{"nemotron-h", "hybrid_override_pattern", kRemoved,
                 "hybrid_override_pattern or layers_block_type is missing"},
        BadField{"nemotron-h", "layers_block_type", Json({"experts", "mamba"}),
                 "layers_block_type[0] = \"experts\": wanted mamba, attention, mlp or moe"},
        BadField{"nemotron-h", "mlp_hidden_act", "silu", "mlp_hidden_act = \"silu\", wanted relu2"},
        BadField{"nemotron-h", "mamba_proj_bias", true, "mamba_proj_bias = true contradicts use_bias = false"},
        BadField{"falcon-h1", "mamba_use_mlp", false, "mamba_use_mlp = false"},
        BadField{"falcon-h1", "ssm_multipliers", Json({1, 1, 1, 1}), "ssm_multipliers = [1,1,1,1], wanted a list of 5"},
        BadField{"falcon-h1", "mlp_multipliers", Json({1, "x"}), "mlp_multipliers = [1,\"x\"], wanted a list of 2"},
        BadField{"falcon-h1", "mamba_d_ssm", 100, "is not mamba_d_ssm = 100"},
        BadField{"mamba2", "rms_norm", false, "rms_norm = false"},
        BadField{"mamba2", "num_heads", 9, "num_heads * head_dim = 9 * 16 is not expand * hidden_size = 128"},
        BadField{"mamba2", "intermediate_size", 256, "intermediate_size = 256 is not expand * hidden_size = 128"}));

INSTANTIATE_TEST_SUITE_P(
    Experts, BadConfigField,
    testing::Values(
        BadField{"nemotron-moe", "n_routed_experts", kRemoved, "n_routed_experts or num_local_experts is missing"},
        BadField{"nemotron-moe", "n_routed_experts", 0, "n_routed_experts = 0, wanted an integer from 1"},
        BadField{"nemotron-moe", "n_routed_experts", 5000, "layer 1: moe n_experts = 5000, wanted 1..4096"},
        BadField{"nemotron-moe", "num_experts_per_tok", 13, "layer 1: moe n_chosen = 13, wanted 1..12"},
        BadField{"nemotron-moe", "num_experts_per_tok", kRemoved, "num_experts_per_tok is missing"},
        BadField{"nemotron-moe", "moe_intermediate_size", kRemoved, "moe_intermediate_size is missing"},
        BadField{"nemotron-moe", "moe_shared_expert_intermediate_size", kRemoved,
                 "moe_shared_expert_intermediate_size is missing"},
        BadField{"nemotron-moe", "intermediate_size", kRemoved, "intermediate_size is missing"},
        BadField{"nemotron-moe", "n_shared_experts", 2, "n_shared_experts = 2, wanted 1 (nothing else is supported)"},
        BadField{"nemotron-moe", "norm_topk_prob", 1, "norm_topk_prob = 1, wanted true or false"},
        BadField{"nemotron-moe", "routed_scaling_factor", "2.5", "routed_scaling_factor = \"2.5\", wanted a finite"},
        BadField{"nemotron-moe", "n_group", 5, "moe n_groups = 5 does not divide n_experts = 12"},
        BadField{"nemotron-moe", "n_group", 12, "n_groups = 12 of 12 experts: wanted two each"},
        BadField{"nemotron-moe", "topk_group", 2, "moe n_chosen_groups = 2, wanted 1..1"},
        BadField{"nemotron-moe", "n_group", 6, "moe n_chosen = 3, wanted 1..2"},
        BadField{"nemotron-moe", "block_configs", Json::array(), "\"block_configs\" = [] is not understood"},
        BadField{"nemotron-moe-latent", "moe_latent_size", -1, "moe_latent_size = -1, wanted an integer from 1"},
        BadField{"granite-moe", "num_local_experts", kRemoved, "num_local_experts is missing"},
        BadField{"granite-moe", "num_local_experts", -1, "num_local_experts = -1, wanted an integer from 0"},
        BadField{"granite-moe", "num_experts_per_tok", 11, "moe n_chosen = 11, wanted 1..10"},
        BadField{"granite-moe", "num_experts_per_tok", kRemoved, "num_experts_per_tok is missing"},
        BadField{"granite-moe", "intermediate_size", kRemoved, "intermediate_size is missing"},
        BadField{"granite-moe", "shared_intermediate_size", 0, "shared_intermediate_size = 0"}));

TEST(ConfigJson, AWrongPatternIsTheOnlyProblem) {
    Json json = Json::parse(golden_config("nemotron-h"));
    json["hybrid_override_pattern"] = "M-M*xM-";
    const auto config = parse_config(json.dump(), "config.json");
    ASSERT_FALSE(config);
    EXPECT_EQ(config.error().message.find("not understood"), std::string::npos) << config.error().message;
}

TEST(ConfigJson, EveryProblemIsReported) {
    Json json = Json::parse(golden_config("llama"));
    json["hidden_act"] = "gelu";
    json.erase("vocab_size");
    for (int i = 0; i < 45; ++i) json[fmt::format("mystery_{}", i)] = i;
    const auto config = parse_config(json.dump(), "config.json");
    ASSERT_FALSE(config);
    const std::string& said = config.error().message;
    EXPECT_EQ(std::ranges::count(said, '\n'), 46) << said;
    for (int i = 0; i < 45; ++i)
        EXPECT_NE(said.find(fmt::format("\"mystery_{}\" = {} is not understood", i, i)), std::string::npos) << said;
}

// What PretrainedConfig of transformers 4 writes into the config.json of any model.
const Json& base_class_fields() {
    static const Json kFields = Json::parse(R"({
        "pruned_heads": {}, "chunk_size_feed_forward": 0, "is_encoder_decoder": false, "is_decoder": false,
        "cross_attention_hidden_size": null, "add_cross_attention": false, "tie_encoder_decoder": false,
        "max_length": 20, "min_length": 0, "do_sample": false, "early_stopping": false, "num_beams": 1,
        "num_beam_groups": 1, "diversity_penalty": 0.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0,
        "typical_p": 1.0, "repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0,
        "encoder_no_repeat_ngram_size": 0, "bad_words_ids": null, "num_return_sequences": 1, "output_scores": false,
        "return_dict_in_generate": false, "forced_bos_token_id": null, "forced_eos_token_id": null,
        "remove_invalid_values": false, "exponential_decay_length_penalty": null, "suppress_tokens": null,
        "begin_suppress_tokens": null, "finetuning_task": null, "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0}, "num_labels": 2, "tokenizer_class": null, "prefix": null, "sep_token_id": null,
        "decoder_start_token_id": null, "task_specific_params": null, "problem_type": null, "torchscript": false,
        "use_bfloat16": false, "tf_legacy_loss": false, "return_dict": true, "output_attentions": false,
        "output_hidden_states": false, "gradient_checkpointing": false, "_commit_hash": "abc",
        "_attn_implementation": "flash_attention_2", "attn_implementation": "sdpa",
        "_attn_implementation_internal": null, "_attn_implementation_autoset": true, "use_cache": true,
        "custom_pipelines": {}, "_name_or_path": "x/y"})");
    return kFields;
}

TEST(ConfigJson, FieldsOfTheBaseClassChangeNothing) {
    for (const char* golden :
         {"granite-hybrid", "llama", "bamba", "nemotron-moe", "falcon-h1", "mamba2", "qwen35-moe", "qwen3-next"}) {
        Json json = Json::parse(golden_config(golden));
        const auto plain = parse_config(json.dump(), golden);
        ASSERT_TRUE(plain) << plain.error().message;
        json.update(base_class_fields());
        if (json.contains("text_config")) json["text_config"].update(base_class_fields());
        const auto config = parse_config(json.dump(), golden);
        ASSERT_TRUE(config) << config.error().message;
        EXPECT_EQ(*config, *plain) << golden;
    }
}

// Their other values stand for another model, or for tokens that may not be answered.
INSTANTIATE_TEST_SUITE_P(
    BaseClass, BadConfigField,
    testing::Values(BadField{"llama", "pruned_heads", Json{{"0", {1}}}, "pruned_heads = {\"0\":[1]}, wanted null or"},
                    BadField{"llama", "is_encoder_decoder", true, "is_encoder_decoder = true"},
                    BadField{"llama", "tie_encoder_decoder", true, "tie_encoder_decoder = true"},
                    BadField{"llama", "cross_attention_hidden_size", 8, "cross_attention_hidden_size = 8"},
                    BadField{"llama", "bad_words_ids", Json({{7}}), "bad_words_ids = [[7]], wanted null or empty"},
                    BadField{"llama", "suppress_tokens", Json({7}), "suppress_tokens = [7], wanted null or empty"},
                    BadField{"llama", "forced_eos_token_id", 2, "forced_eos_token_id = 2, wanted null or empty"},
                    BadField{"qwen35", "pruned_heads", Json{{"0", {1}}}, "pruned_heads = {\"0\":[1]}"}));

// Equal values under an old and a new name say one thing.
struct TwoNames {
    std::string golden;
    Json more;
    std::string contradiction;  // what is said where they differ; empty: they agree
};

void PrintTo(const TwoNames& names, std::ostream* out) { *out << names.golden << " and " << names.more.dump(); }

class OldAndNewNames : public testing::TestWithParam<TwoNames> {};

TEST_P(OldAndNewNames, AgreeWhereTheyMeanTheSame) {
    Json json = Json::parse(golden_config(GetParam().golden));
    const auto plain = parse_config(json.dump(), "config.json");
    ASSERT_TRUE(plain) << plain.error().message;
    (json.contains("text_config") ? json["text_config"] : json).update(GetParam().more);
    const auto both = parse_config(json.dump(), "config.json");
    if (GetParam().contradiction.empty()) {
        ASSERT_TRUE(both) << both.error().message;
        EXPECT_EQ(*both, *plain);
        return;
    }
    ASSERT_FALSE(both);
    EXPECT_NE(both.error().message.find(GetParam().contradiction), std::string::npos) << both.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Fields, OldAndNewNames,
    testing::Values(
        TwoNames{"qwen35-moe", Json{{"num_local_experts", 16}}, "num_local_experts = 16 contradicts "},
        TwoNames{"qwen35-moe", Json{{"num_local_experts", 10}}, ""},
        TwoNames{"granite-moe", Json{{"num_experts", 10}}, ""},
        TwoNames{"granite-moe", Json{{"num_experts", 11}}, "num_experts = 11 contradicts num_local_experts = 10"},
        TwoNames{"granite-hybrid", Json{{"num_experts", 0}}, ""},
        TwoNames{"nemotron-moe", Json{{"num_local_experts", 12}}, ""},
        TwoNames{"nemotron-moe", Json{{"num_local_experts", 13}}, "contradicts n_routed_experts = 12"},
        TwoNames{
            "granite-hybrid",
            Json{{"layers_block_type", {"linear_attention", "linear_attention", "full_attention", "linear_attention"}}},
            ""},
        TwoNames{"granite-hybrid", Json{{"layers_block_type", {"mamba", "mamba", "mamba", "attention"}}},
                 "layer_types contradicts layers_block_type: "},
        TwoNames{"granite-rope", Json{{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5000}}}}, ""},
        TwoNames{"mamba2-limit", Json{{"mamba_dt_limit", {0.004, 0.05}}}, ""},
        TwoNames{"mamba2-limit", Json{{"mamba_dt_limit", {0.004, 0.1}}},
                 "mamba_dt_limit = [0.004,0.1] contradicts time_step_limit = [0.004,0.05]"},
        TwoNames{"nemotron-h", Json{{"rms_norm_eps", 1e-5}, {"use_conv_bias", true}, {"mamba_conv_bias", true}}, ""}));

TEST(ConfigJson, BothFormsOfARotaryEmbeddingMayBePresent) {
    Json json = Json::parse(golden_config("llama"));
    const auto plain = parse_config(json.dump(), "config.json");
    ASSERT_TRUE(plain && json["rope_scaling"].is_object());
    json["rope_parameters"] = json["rope_scaling"];
    json["rope_parameters"]["rope_theta"] = json["rope_theta"];
    json["rope_scaling"]["type"] = json["rope_scaling"]["rope_type"];
    const auto both = parse_config(json.dump(), "config.json");
    ASSERT_TRUE(both) << both.error().message;
    EXPECT_EQ(*both, *plain);
    json["rope_scaling"]["factor"] = json["rope_scaling"]["factor"].get<double>() + 1;
    const auto other = parse_config(json.dump(), "config.json");
    ASSERT_FALSE(other);
    EXPECT_NE(other.error().message.find("rope_scaling = {"), std::string::npos);
    EXPECT_NE(other.error().message.find("contradicts rope_parameters = {"), std::string::npos);
}

TEST(ConfigJson, ManyProblemsAreReportedAtOnce) {
    Json json = Json::parse(golden_config("granite-hybrid"));
    json["hidden_act"] = "gelu";
    json["mystery"] = 1;
    json.erase("vocab_size");
    const auto config = parse_config(json.dump(), "config.json");
    ASSERT_FALSE(config);
    for (const char* part : {"hidden_act", "mystery", "vocab_size is missing"})
        EXPECT_NE(config.error().message.find(part), std::string::npos) << config.error().message;
}

// The text as a whole rather than a field of it.
TEST(ConfigJson, MalformedTextIsAnErrorThatSaysWhere) {
    const std::vector<std::pair<std::string, std::string>> cases = {
        {"", "line 1, column 1"},
        {"{\"vocab_size\": 1,}", "line 1, column 18"},
        {"[]", "wanted an object"},
        {"null", "wanted an object"},
        {R"({"hidden_size": 64, "hidden_size": 128})", "key \"hidden_size\" occurs twice"},
        {R"({"rope_scaling": {"factor": 1, "factor": 2}})", "key \"factor\" occurs twice"},
        {std::string(100, '['), "nested deeper than 64"},
        {"{\"a\": \"\xff\"}", "ill-formed UTF-8 byte"},
        {R"({"a": 1} x)", "line 1"},
        {R"({"a": 1e999})", "number"},
        {R"({"a": NaN})", "line 1"},
    };
    for (const auto& [text, wanted] : cases) {
        const auto config = parse_config(text, "config.json");
        ASSERT_FALSE(config) << text;
        EXPECT_NE(config.error().message.find(wanted), std::string::npos) << text << "\n" << config.error().message;
    }
}

// What transformers 5 writes for the same models.
TEST(ConfigJson, BothDialectsGiveTheSameConfig) {
    const auto renamed = [](Json json, const std::string& from, const std::string& to) {
        json[to] = json[from];
        json.erase(from);
        return json;
    };
    const auto same = [](const std::string& golden, const Json& newer) {
        const auto a = parse_config(golden_config(golden), "config.json");
        const auto b = parse_config(newer.dump(), "newer config.json");
        ASSERT_TRUE(a) << a.error().message;
        ASSERT_TRUE(b) << b.error().message;
        EXPECT_EQ(*a, *b) << golden;
    };
    Json llama = renamed(Json::parse(golden_config("llama")), "rope_scaling", "rope_parameters");
    llama["rope_parameters"]["rope_theta"] = llama["rope_theta"];
    llama.erase("rope_theta");
    same("llama", renamed(llama, "torch_dtype", "dtype"));

    Json granite = Json::parse(golden_config("granite-hybrid"));
    granite["layer_types"] = {"linear_attention", "linear_attention", "full_attention", "linear_attention"};
    same("granite-hybrid", granite);
    same("granite-hybrid", renamed(granite, "layer_types", "layers_block_type"));

    Json nemotron = Json::parse(golden_config("nemotron-h"));
    nemotron.erase("hybrid_override_pattern");
    nemotron["layers_block_type"] = {"mamba", "mlp", "mamba", "attention", "mlp", "mamba", "mlp"};
    same("nemotron-h", nemotron);
    same("nemotron-h", renamed(nemotron, "head_dim", "attention_head_dim"));

    Json bamba = Json::parse(golden_config("bamba"));
    bamba.erase("attn_layer_indices");
    bamba.erase("attn_rotary_emb");
    bamba["layer_types"] = {"mamba", "attention", "mamba", "attention"};
    same("bamba", bamba);

    Json falcon = Json::parse(golden_config("falcon-h1"));
    falcon["layers_block_type"] = {"hybrid", "hybrid", "hybrid"};
    falcon["mamba_d_head"] = "auto";
    same("falcon-h1", falcon);
}

TEST(ConfigJson, ExpertsAreReadInEverySpelling) {
    const auto parse = [](const Json& json) { return *parse_config(json.dump(), "config.json"); };
    Json nemotron = Json::parse(golden_config("nemotron-moe"));
    const ModelConfig from_pattern = parse(nemotron);
    nemotron.erase("hybrid_override_pattern");
    nemotron["layers_block_type"] = {"mamba", "moe", "mamba", "attention", "moe", "mlp"};
    EXPECT_EQ(parse(nemotron), from_pattern);
    nemotron["layers_block_type"] = {"linear_attention", "moe", "linear_attention", "full_attention", "moe", "mlp"};
    EXPECT_EQ(parse(nemotron), from_pattern);
    nemotron["num_nextn_predict_layers"] = 1;  // heads that predict several tokens are skipped
    EXPECT_EQ(parse(nemotron), from_pattern);
    ASSERT_TRUE(from_pattern.layers[1].moe && from_pattern.layers[1].mlp);
    EXPECT_FALSE(from_pattern.layers[5].moe);
    EXPECT_EQ(from_pattern.layers[1].mlp->d_ff, 56);
    EXPECT_EQ(from_pattern.layers[5].mlp->d_ff, 160);
    EXPECT_EQ(from_pattern.layers[1].moe->scale, 2.5);
    EXPECT_EQ(from_pattern.layers[1].moe->sum_epsilon, 1e-20);
    const ModelConfig latent = parse(Json::parse(golden_config("nemotron-moe-latent")));
    EXPECT_EQ(latent.layers[0].moe->d_latent, 32);
    EXPECT_EQ(latent.layers[0].moe->n_groups, 3);
    EXPECT_EQ(latent.layers[0].moe->n_chosen_groups, 2);
    Json granite = Json::parse(golden_config("granite-moe"));
    const ModelConfig experts = parse(granite);
    for (const LayerConfig& layer : experts.layers) EXPECT_TRUE(layer.moe && layer.mlp);
    granite["layer_types"] = {"linear_attention", "linear_attention", "full_attention", "linear_attention"};
    EXPECT_EQ(parse(granite), experts);
}

TEST(ConfigJson, InfinityIsReadAsPythonAndAsTransformers5WriteIt) {
    for (const std::string limit : {"[0.0, Infinity]", R"([0.0, {"__float__": "Infinity"}])", "null"}) {
        std::string text = golden_config("mamba2");
        text.replace(text.rfind('}'), 1, fmt::format(", \"time_step_limit\": {}}}", limit));
        const auto config = parse_config(text, "config.json");
        ASSERT_TRUE(config) << config.error().message;
        EXPECT_EQ(*config, *parse_config(golden_config("mamba2"), "config.json")) << limit;
    }
}

TEST(ConfigJson, SwitchesOfTheGoldensAreUnderstood) {
    const auto read = [](const std::string& name) { return *parse_config(golden_config(name), "config.json"); };
    EXPECT_EQ(read("granite-hybrid").layers[2].attention->rope.kind, RopeKind::kNone);
    EXPECT_EQ(read("granite-rope").layers[0].attention->rope.theta, 5000);
    EXPECT_TRUE(read("granite-rope").layers[0].attention->o_bias);
    EXPECT_EQ(read("granite-rope").layers[1].mamba->d_conv, 2);
    EXPECT_EQ(read("granite-hybrid").logits_divisor, 3);
    EXPECT_EQ(read("llama").layers[0].attention->rope.kind, RopeKind::kLlama3);
    EXPECT_EQ(read("bamba").layers[1].attention->rope.n_rotary_dims, 8);
    EXPECT_EQ(read("nemotron-h").layers[3].attention->head_dim, 24);
    EXPECT_EQ(read("nemotron-h").layers[0].mamba->n_norm_groups, 2);
    EXPECT_FALSE(read("nemotron-h").layers[1].has_mixer());
    EXPECT_EQ(read("falcon-h1").layers[0].mamba->gate, MambaGate::kGateOnly);
    EXPECT_EQ(read("falcon-h1-gated").layers[0].mamba->gate, MambaGate::kGateThenNorm);
    EXPECT_EQ(read("falcon-h1-gated").layers[0].mamba->n_norm_groups, 2);
    EXPECT_TRUE(read("falcon-h1-gated").layers[0].mamba->in_bias);
    EXPECT_FALSE(read("falcon-h1-gated").layers[0].mamba->out_bias);
    EXPECT_EQ(read("mamba2-limit").layers[0].mamba->dt_max, 0.05);
    EXPECT_EQ(read("mamba2").layers[0].mamba->n_norm_groups, 1);
}

}  // namespace
}  // namespace verbatim::reference
