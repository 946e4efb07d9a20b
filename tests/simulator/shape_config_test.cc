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

constexpr const char* kGemma4With31B = R"({"model_type": "gemma4", "text_config": {"model_type": "gemma4_text",
    "attention_k_eq_v": true, "enable_moe_block": false, "global_head_dim": 512, "head_dim": 256, "hidden_size": 5376,
    "hidden_size_per_layer_input": 0, "intermediate_size": 21504, "max_position_embeddings": 262144,
    "num_attention_heads": 32, "num_experts": null, "num_global_key_value_heads": 4, "num_hidden_layers": 60,
    "num_key_value_heads": 16, "num_kv_shared_layers": 0, "sliding_window": 1024, "tie_word_embeddings": true,
    "vocab_size": 262144}})";
constexpr const char* kLfm25With1B = R"({"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16,
    "num_attention_heads": 32, "num_key_value_heads": 8, "block_ff_dim": 12288, "block_multiple_of": 256,
    "block_auto_adjust_ff_dim": true, "conv_L_cache": 3, "vocab_size": 65536, "max_position_embeddings": 128000,
    "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "full_attention", "conv", "conv",
                    "full_attention", "conv", "full_attention", "conv", "full_attention", "conv", "full_attention",
                    "conv"]})";

// Their cards say 30.7 and 25.2 billion; the arithmetic is of the matrices, and the norms are few.
TEST(ShapeConfig, Gemma4HasWiderHeadsWhereAllPositionsAreSeen) {
    const ModelShape dense = shape(kGemma4With31B);
    const int64_t mlps = int64_t{60} * 3 * 5376 * 21504;
    const int64_t local = int64_t{50} * 5376 * 256 * (32 + 2 * 16 + 32);
    const int64_t global = int64_t{10} * 5376 * 512 * (32 + 4 + 32);
    const int64_t matrices = mlps + local + global + int64_t{262144} * 5376;
    EXPECT_NEAR(static_cast<double>(dense.num_parameters), 30.7e9, 0.05e9);
    EXPECT_GT(dense.num_parameters, matrices);
    EXPECT_LT(dense.num_parameters, matrices + 2'000'000);
    ASSERT_EQ(dense.attentions.size(), 2u);
    EXPECT_EQ(dense.attentions[0],
              (AttentionShape{.n_heads = 32, .n_kv_heads = 16, .head_dim = 256, .count = 50, .window = 1024}));
    EXPECT_EQ(dense.attentions[1], (AttentionShape{.n_heads = 32, .n_kv_heads = 4, .head_dim = 512, .count = 10}));
    EXPECT_EQ(dense.kv_bytes_per_token, 2 * 2 * (50 * 16 * 256 + 10 * 4 * 512)) << "K with positions is not V";
    const ModelShape experts = shape(R"({"model_type": "gemma4_text", "attention_k_eq_v": true,
        "enable_moe_block": true, "global_head_dim": 512, "head_dim": 256, "hidden_size": 2816,
        "intermediate_size": 2112, "max_position_embeddings": 262144, "num_attention_heads": 16, "num_experts": 128,
        "top_k_experts": 8, "moe_intermediate_size": 704, "num_global_key_value_heads": 2, "num_hidden_layers": 30,
        "num_key_value_heads": 8, "sliding_window": 1024, "vocab_size": 262144})");
    EXPECT_NEAR(static_cast<double>(experts.num_parameters), 25.2e9, 0.05e9);
    ASSERT_EQ(experts.experts.size(), 1u);
    EXPECT_EQ(experts.experts[0].n_chosen, 8);
    const auto small = parse_shape("e2b", R"({"model_type": "gemma4_text", "hidden_size": 1536, "num_hidden_layers": 35,
        "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256, "intermediate_size": 6144,
        "hidden_size_per_layer_input": 256, "sliding_window": 512, "vocab_size": 262144,
        "max_position_embeddings": 131072})",
                                   "config.json");
    ASSERT_FALSE(small.has_value());
    EXPECT_THAT(small.error().message, HasSubstr("hidden_size_per_layer_input is not 0"));
}

TEST(ShapeConfig, Lfm2HasShortConvolutionsWithTwoInputsOfState) {
    const ModelShape model = shape(kLfm25With1B);
    EXPECT_EQ(model.num_parameters, 1'170'340'608) << "as published";
    EXPECT_EQ(model.state_bytes_per_row, 10 * 2 * 2048 * 4);
    EXPECT_EQ(model.kv_bytes_per_token, 6 * 2 * 8 * 64 * 2);
    ASSERT_EQ(model.mambas.size(), 1u);
    EXPECT_EQ(model.mambas[0].conv(), (ConvShape{2048, 3}));
    EXPECT_EQ(model.mambas[0].count, 10);
    EXPECT_EQ(model.mambas[0].scan_elements(), 0);
    const ModelShape half = sharded(model, {.tensor = 2});
    EXPECT_EQ(half.state_bytes_per_row, model.state_bytes_per_row / 2);
    EXPECT_EQ(half.mambas[0].conv().channels, 1024);
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
