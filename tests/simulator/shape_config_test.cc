// Models that their config.json alone describes: the counts of published checkpoints, and bytes by hand.
#include "simulator/shape_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/kernel_times.h"
#include "simulator/sharding.h"

namespace verbatim {
namespace {

using ::testing::HasSubstr;

ModelShape shape(const char* text) {
    EXPECT_TRUE(is_shape_config(text));
    const auto parsed = parse_shape("model", text, "config.json");
    EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
    return parsed.value_or(ModelShape());
}

constexpr const char* kQwen3With8B = R"({"model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 36,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288,
    "vocab_size": 151936, "max_position_embeddings": 40960, "tie_word_embeddings": false})";
constexpr const char* kDeepSeekV3 = R"({"model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61,
    "num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "first_k_dense_replace": 3, "vocab_size": 129280, "max_position_embeddings": 163840})";
constexpr const char* kGptOss20B = R"({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880,
    "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "attention_bias": true,
    "vocab_size": 201088, "max_position_embeddings": 131072, "tie_word_embeddings": false})";
constexpr const char* kGemma3With27B = R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
    "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
    "intermediate_size": 21504, "sliding_window": 1024, "sliding_window_pattern": 6, "vocab_size": 262208,
    "max_position_embeddings": 131072}})";

TEST(ShapeConfig, ParametersAreThoseOfThePublishedCheckpoints) {
    EXPECT_EQ(shape(kQwen3With8B).num_parameters, 8'190'735'360);
    EXPECT_EQ(shape(R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
        "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 768,
        "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "vocab_size": 151936,
        "max_position_embeddings": 40960, "tie_word_embeddings": false})")
                  .num_parameters,
              30'532'122'624);
    EXPECT_EQ(shape(R"({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "sliding_window": 4096,
        "vocab_size": 32000, "max_position_embeddings": 32768})")
                  .num_parameters,
              7'241'732'096);
    EXPECT_EQ(shape(kDeepSeekV3).num_parameters, 671'026'419'200);
    EXPECT_EQ(shape(kGptOss20B).num_parameters, 20'914'757'184);
    EXPECT_EQ(shape(kGemma3With27B).num_parameters, 27'009'346'304);
}

TEST(ShapeConfig, LatentAttentionKeepsOneRowPerPositionAndIsReplicated) {
    const ModelShape model = shape(kDeepSeekV3);
    EXPECT_EQ(model.kv_bytes_per_token, 61 * (512 + 64) * 2);
    ASSERT_EQ(model.attentions.size(), 1u);
    const AttentionShape& attention = model.attentions[0];
    EXPECT_EQ(attention.position_values(), 576);
    EXPECT_EQ(attention.decode_pair_operations(), 2.0 * 128 * (576 + 512));
    EXPECT_EQ(attention.context_pair_operations(), 2.0 * 128 * (192 + 128));
    const ModelShape shard = sharded(model, {.tensor = 8, .experts = 8});
    EXPECT_EQ(shard.kv_bytes_per_token, model.kv_bytes_per_token);
    EXPECT_EQ(shard.attentions[0].n_heads, 16);
    // The latent projections and the router stay whole.
    EXPECT_EQ(shard.matmuls[0].n, 1536 + 576);
}

TEST(ShapeConfig, WindowsAreThoseOfTheLayers) {
    const auto windows = [](const ModelShape& model) {
        std::vector<std::pair<int32_t, int32_t>> counts;
        for (const AttentionShape& attention : model.attentions) counts.emplace_back(attention.window, attention.count);
        return counts;
    };
    EXPECT_EQ(windows(shape(kGptOss20B)), (std::vector<std::pair<int32_t, int32_t>>{{128, 12}, {0, 12}}));
    EXPECT_EQ(windows(shape(kGemma3With27B)), (std::vector<std::pair<int32_t, int32_t>>{{1024, 52}, {0, 10}}));
    EXPECT_EQ(windows(shape(kQwen3With8B)), (std::vector<std::pair<int32_t, int32_t>>{{0, 36}}));
}

TEST(ShapeConfig, WhatIsMissingOrWrongIsNamed) {
    EXPECT_FALSE(is_shape_config(R"({"model_type": "llama"})"));
    EXPECT_FALSE(is_shape_config("no JSON"));
    const auto problem = [](const char* text) {
        const auto parsed = parse_shape("model", text, "config.json");
        return parsed ? std::string() : parsed.error().message;
    };
    EXPECT_THAT(problem(R"({"model_type": "qwen3"})"), HasSubstr("hidden_size is missing"));
    EXPECT_THAT(problem(R"({"model_type": "qwen3", "hidden_size": -1})"), HasSubstr("hidden_size = -1"));
    EXPECT_THAT(problem(R"({"model_type": "qwen3", "num_hidden_layers": 2, "layer_types": 1})"),
                HasSubstr("config.json"));
}

}  // namespace
}  // namespace verbatim
