// config.json of Qwen3.5, dense and with experts, and of Qwen3-Next: the language model's keys may be nested, and some
// of them are refused that others ignore.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reference/loader/config_json.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

Json qwen_config(const std::string& golden = "qwen35") {
    std::ifstream file(VERBATIM_SOURCE_DIR "/tests/data/golden/" + golden + "/config.json");
    return Json::parse(file);
}

Result<ModelConfig> parsed(const Json& json) { return parse_config(json.dump(), "config.json"); }

TEST(ConfigQwen, TheGoldensSwitchesAreUnderstood) {
    const auto config = parsed(qwen_config());
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->architecture, Architecture::kQwen35);
    EXPECT_TRUE(config->norm_plus_one);
    EXPECT_TRUE(config->tie_word_embeddings);
    ASSERT_EQ(config->layers.size(), 4u);
    const DeltaConfig delta{.n_key_heads = 2, .n_value_heads = 4, .key_dim = 16, .value_dim = 16, .d_conv = 4};
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(config->layers[i].delta, delta) << i;
    const AttentionConfig& attention = *config->layers[3].attention;
    EXPECT_TRUE(attention.qk_norm && attention.output_gate && !attention.o_bias);
    EXPECT_EQ(attention.rope.n_rotary_dims, 4);
    EXPECT_EQ(attention.rope.theta, 1e7);
}

TEST(ConfigQwen, OtherSpellingsMeanTheSame) {
    const ModelConfig wanted = *parsed(qwen_config());
    const auto same = [&](const Json& json) {
        const auto config = parsed(json);
        ASSERT_TRUE(config) << config.error().message;
        EXPECT_EQ(*config, wanted) << json.dump(2);
    };
    Json text = qwen_config()["text_config"];  // saved without the other modalities
    text["architectures"] = {"Qwen3_5ForCausalLM"};
    same(text);
    Json by_interval = qwen_config();
    by_interval["text_config"].erase("layer_types");
    same(by_interval);
    by_interval["text_config"].erase("full_attention_interval");
    same(by_interval);
    Json published = qwen_config();
    published["vision_config"] = {{"depth", 12}, {"hidden_size", 768}};
    published["text_config"]["mtp_num_hidden_layers"] = 1;
    published["text_config"]["output_gate_type"] = "swish";
    published["text_config"]["mlp_only_layers"] = Json::array();
    published["text_config"].erase("tie_word_embeddings");
    same(published);
    Json older = qwen_config();
    older["text_config"].erase("rope_parameters");
    older["text_config"]["rope_theta"] = 1e7;  // a quarter of each head is the family's default
    same(older);
}

struct BadQwen {
    std::string key;
    Json value;  // discarded: the key is removed
    std::string wanted_error;
};
void PrintTo(const BadQwen& bad, std::ostream* out) { *out << bad.key << " = " << bad.value.dump(); }

const Json kGone = Json(Json::value_t::discarded);

class BadQwenField : public testing::TestWithParam<BadQwen> {};

TEST_P(BadQwenField, OfTheTextConfigIsAnErrorThatNamesIt) {
    Json json = qwen_config();
    const auto& [key, value, wanted_error] = GetParam();
    value.is_discarded() ? void(json["text_config"].erase(key)) : void(json["text_config"][key] = value);
    const auto config = parsed(json);
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find(wanted_error), std::string::npos) << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Text, BadQwenField,
    testing::Values(
        BadQwen{"attn_output_gate", false, "text_config.attn_output_gate = false, wanted true"},
        BadQwen{"output_gate_type", "sigmoid", "text_config.output_gate_type = \"sigmoid\", wanted swish"},
        BadQwen{"mamba_ssm_dtype", "bfloat16", "text_config.mamba_ssm_dtype = \"bfloat16\", wanted float32"},
        BadQwen{"hidden_act", "gelu", "text_config.hidden_act = \"gelu\""},
        BadQwen{"num_experts", 8, "\"num_experts\" = 8 is not understood"},
        BadQwen{"mlp_only_layers", Json({1}), "mlp_only_layers = [1], wanted an empty list"},
        BadQwen{"model_type", "qwen3_5_moe_text", "text_config.model_type = \"qwen3_5_moe_text\""},
        BadQwen{"full_attention_interval", 2, "layer_types contradicts full_attention_interval = 2"},
        BadQwen{"layer_types", Json({"linear_attention", "mlp", "linear_attention", "full_attention"}),
                "layer_types[1] is of a kind that this family does not have"},
        BadQwen{"num_hidden_layers", 5, "layer_types has 4 names, num_hidden_layers = 5"},
        BadQwen{"num_hidden_layers", 2000000000, "wanted at most 4096"},
        BadQwen{"linear_num_value_heads", 5, "delta n_key_heads = 2 does not divide n_value_heads = 5"},
        BadQwen{"linear_num_value_heads", 0, "text_config.linear_num_value_heads = 0, wanted an integer from 1"},
        BadQwen{"linear_key_head_dim", kGone, "text_config.linear_key_head_dim is missing"},
        BadQwen{"linear_value_head_dim", 2147483647, "delta value_dim = 2147483647"},
        BadQwen{"linear_conv_kernel_dim", 5, "delta d_conv = 5, wanted 2..4"},
        BadQwen{"rope_parameters", kGone, "rope_theta is missing"},
        BadQwen{"rope_parameters", Json({{"rope_type", "yarn"}, {"rope_theta", 1e7}}),
                "type \"yarn\" is not supported"},
        BadQwen{"rope_parameters", Json({{"rope_theta", 1e7}, {"partial_rotary_factor", 2.0}}),
                "turns 32 dimensions, wanted 2 to 16"},
        BadQwen{"tie_word_embeddings", false, "tie_word_embeddings contradicts text_config.tie_word_embeddings"}));

TEST(ConfigQwen, AnInvalidTextConfigIsAnError) {
    for (const Json& text : {kGone, Json(nullptr), Json(7), Json::array()}) {
        Json json = qwen_config();
        text.is_discarded() ? void(json.erase("text_config")) : void(json["text_config"] = text);
        const auto config = parsed(json);
        ASSERT_FALSE(config);
        EXPECT_NE(config.error().message.find("text_config = "), std::string::npos) << config.error().message;
    }
}

TEST(ConfigQwen, AnUnknownKeyOutsideTheTextConfigIsAnError) {
    Json json = qwen_config();
    json["residual_scale"] = 2;
    const auto config = parsed(json);
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find("\"residual_scale\" = 2 is not understood"), std::string::npos);
}

TEST(ConfigQwenMoe, TheGoldensSwitchesAreUnderstood) {
    const auto config = parsed(qwen_config("qwen35-moe"));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->architecture, Architecture::kQwen35Moe);
    ASSERT_EQ(config->layers.size(), 4u);
    const MoeConfig moe{.router = RouterKind::kSoftmaxAll,
                        .n_experts = 10,
                        .n_chosen = 3,
                        .normalize = true,
                        .d_ff = 40,
                        .shared_gate = true};
    for (const LayerConfig& layer : config->layers) {
        EXPECT_EQ(layer.moe, moe);
        EXPECT_EQ(layer.mlp->d_ff, 48);
    }
    const DeltaConfig delta{.n_key_heads = 2, .n_value_heads = 6, .key_dim = 16, .value_dim = 24, .d_conv = 4};
    EXPECT_EQ(config->layers[0].delta, delta);
}

TEST(ConfigQwenMoe, OtherSpellingsMeanTheSame) {
    const ModelConfig wanted = *parsed(qwen_config("qwen35-moe"));
    const auto same = [&](const Json& json) {
        const auto config = parsed(json);
        ASSERT_TRUE(config) << config.error().message;
        EXPECT_EQ(*config, wanted) << json.dump(2);
    };
    Json text = qwen_config("qwen35-moe")["text_config"];
    text["architectures"] = {"Qwen3_5MoeForCausalLM"};
    same(text);
    Json published = qwen_config("qwen35-moe");
    Json& inner = published["text_config"];
    inner["norm_topk_prob"] = true;
    inner["decoder_sparse_step"] = 1;
    inner["mlp_only_layers"] = Json::array();
    inner["intermediate_size"] = 512;
    inner["output_gate_type"] = "swish";
    inner["mtp_num_hidden_layers"] = 1;
    same(published);
}

TEST(ConfigQwenNext, TheGoldensSwitchesAreUnderstood) {
    const auto config = parsed(qwen_config("qwen3-next"));
    ASSERT_TRUE(config) << config.error().message;
    EXPECT_EQ(config->architecture, Architecture::kQwen3Next);
    ASSERT_EQ(config->layers.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(config->layers[i].moe.has_value(), i != 1) << i;  // mlp_only_layers = [1]
        EXPECT_EQ(config->layers[i].mlp->d_ff, i != 1 ? 48 : 96) << i;
    }
    EXPECT_TRUE(config->layers[0].moe->normalize && config->layers[0].moe->shared_gate);
    EXPECT_EQ(config->layers[3].attention->rope.n_rotary_dims, 4);
}

TEST(ConfigQwenNext, ConfigsChooseDenseLayersAndWeights) {
    const auto dense_layers = [](const Json& json) {
        const auto config = parsed(json);
        EXPECT_TRUE(config) << config.error().message;
        std::vector<size_t> dense;
        for (size_t i = 0; config && i < config->layers.size(); ++i)
            if (!config->layers[i].moe) dense.push_back(i);
        return dense;
    };
    Json json = qwen_config("qwen3-next");
    json["decoder_sparse_step"] = 2;  // experts in layers 1 and 3
    EXPECT_EQ(dense_layers(json), (std::vector<size_t>{0, 1, 2}));
    json["mlp_only_layers"] = Json::array();
    EXPECT_EQ(dense_layers(json), (std::vector<size_t>{0, 2}));
    json["decoder_sparse_step"] = 1;
    json.erase("intermediate_size");  // unused
    EXPECT_EQ(dense_layers(json), std::vector<size_t>{});
    json.erase("mlp_only_layers");
    json.erase("decoder_sparse_step");
    json["use_sliding_window"] = false;
    EXPECT_EQ(dense_layers(json), std::vector<size_t>{});
    json["norm_topk_prob"] = false;
    EXPECT_FALSE(parsed(json)->layers[0].moe->normalize);
    json.erase("norm_topk_prob");
    EXPECT_TRUE(parsed(json)->layers[0].moe->normalize);
}

class BadQwenMoeField : public testing::TestWithParam<BadQwen> {};

TEST_P(BadQwenMoeField, OfTheTextConfigIsAnErrorThatNamesIt) {
    Json json = qwen_config("qwen35-moe");
    const auto& [key, value, wanted_error] = GetParam();
    value.is_discarded() ? void(json["text_config"].erase(key)) : void(json["text_config"][key] = value);
    const auto config = parsed(json);
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find(wanted_error), std::string::npos) << config.error().message;
}

// What transformers ignores and what would be another model.
INSTANTIATE_TEST_SUITE_P(
    Text, BadQwenMoeField,
    testing::Values(
        BadQwen{"norm_topk_prob", false, "text_config.norm_topk_prob = false, wanted true"},
        BadQwen{"decoder_sparse_step", 2, "text_config.decoder_sparse_step = 2, wanted 1"},
        BadQwen{"mlp_only_layers", Json({1}), "mlp_only_layers = [1], wanted an empty list: every layer"},
        BadQwen{"attn_output_gate", false, "text_config.attn_output_gate = false, wanted true"},
        BadQwen{"output_gate_type", "sigmoid", "text_config.output_gate_type = \"sigmoid\", wanted swish"},
        BadQwen{"mamba_ssm_dtype", "bfloat16", "text_config.mamba_ssm_dtype = \"bfloat16\", wanted float32"},
        BadQwen{"use_sliding_window", true, "text_config.use_sliding_window = true, wanted false"},
        BadQwen{"model_type", "qwen3_5_text", "text_config.model_type = \"qwen3_5_text\""},
        BadQwen{"num_experts", kGone, "text_config.num_experts or num_local_experts is missing"},
        BadQwen{"num_experts", 0, "text_config.num_experts = 0, wanted an integer from 1"},
        BadQwen{"num_experts", 5000, "moe n_experts = 5000, wanted 1..4096"},
        BadQwen{"num_experts_per_tok", 11, "moe n_chosen = 11, wanted 1..10"},
        BadQwen{"moe_intermediate_size", kGone, "text_config.moe_intermediate_size is missing"},
        BadQwen{"shared_expert_intermediate_size", 0, "shared_expert_intermediate_size = 0, wanted an integer from 1"},
        BadQwen{"routed_scaling_factor", 2.5, "\"routed_scaling_factor\" = 2.5 is not understood"}));

class BadQwenNextField : public testing::TestWithParam<BadQwen> {};

TEST_P(BadQwenNextField, IsAnErrorThatNamesIt) {
    Json json = qwen_config("qwen3-next");
    const auto& [key, value, wanted_error] = GetParam();
    value.is_discarded() ? void(json.erase(key)) : void(json[key] = value);
    const auto config = parsed(json);
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find(wanted_error), std::string::npos) << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Flat, BadQwenNextField,
    testing::Values(BadQwen{"mlp_only_layers", Json({4}), "mlp_only_layers names layer 4, there are 4"},
                    BadQwen{"mlp_only_layers", Json({-1}), "mlp_only_layers names layer -1, there are 4"},
                    BadQwen{"mlp_only_layers", 1, "mlp_only_layers = 1, wanted a list of layers"},
                    BadQwen{"decoder_sparse_step", 0, "decoder_sparse_step = 0, wanted an integer from 1"},
                    BadQwen{"intermediate_size", kGone, "intermediate_size is missing"},
                    BadQwen{"norm_topk_prob", 1, "norm_topk_prob = 1"},
                    BadQwen{"rope_theta", kGone, "rope_theta is missing"},
                    BadQwen{"attn_output_gate", false, "attn_output_gate = false, wanted true"},
                    BadQwen{"use_sliding_window", true, "use_sliding_window = true, wanted false"},
                    BadQwen{"text_config", Json::object(), "\"text_config\" = {} is not understood"},
                    BadQwen{"linear_num_value_heads", 3, "delta n_key_heads = 2 does not divide n_value_heads = 3"}));

}  // namespace
}  // namespace verbatim::reference
