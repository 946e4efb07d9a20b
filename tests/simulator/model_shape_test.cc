// What a sequence keeps in today's hybrid models, by their published configs, and the pages that follow from it.
#include "simulator/model_shape.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/forward_pass.h"
#include "reference/model/presets.h"
#include "simulator/aligned_pages.h"
#include "simulator/run.h"

namespace verbatim {
namespace {

using namespace reference;

// One layer's state tensors, in bytes: the recurrent part in binary32, the conv window in bf16.
struct Kept {
    std::string name;
    int32_t num_state_layers;
    int64_t recurrent_bytes;
    int64_t window_bytes;
    int64_t kv_bytes_per_token;
    int64_t even;               // tokens whose KV is as large as all states, to the nearest
    int32_t fp32_block_tokens;  // of one page for all; 0: not asked
    int32_t bf16_block_tokens;
};

void expect_kept(const ModelShape& shape, const Kept& kept) {
    SCOPED_TRACE(kept.name);
    int32_t num_layers = 0;
    int64_t all_bytes = 0;
    for (const StateShape& state : shape.states) {
        EXPECT_EQ(state.recurrent * 4, kept.recurrent_bytes);
        EXPECT_EQ(state.window * 2, kept.window_bytes);
        num_layers += state.count;
        all_bytes += state.count * (state.recurrent * 4 + state.window * 2);
    }
    EXPECT_EQ(num_layers, kept.num_state_layers);
    int64_t kv_bytes = 0;
    for (const KvShape& kv : shape.kvs) kv_bytes += kv.count * kv.bytes_per_token;
    EXPECT_EQ(kv_bytes, kept.kv_bytes_per_token);
    EXPECT_EQ(std::llround(static_cast<double>(all_bytes) / static_cast<double>(kv_bytes)), kept.even);
    if (kept.fp32_block_tokens == 0) return;
    EXPECT_EQ(aligned_pages(shape, {.state_value_bytes = 4})->block_tokens, kept.fp32_block_tokens);
    EXPECT_EQ(aligned_pages(shape, {.state_value_bytes = 2})->block_tokens, kept.bf16_block_tokens);
}

ModelShape shape_of_preset(const std::string& name) {
    const auto config = reference::preset(name);
    EXPECT_TRUE(config) << name;
    return shape_of(name, *config);
}

TEST(ModelShape, PresetsKeepWhatTheirConfigsSay) {
    for (const Kept& kept : {
             Kept{"nemotron-3-nano-30b", 23, 2'097'152, 36'864, 6'144, 7'989, 2096, 1072},
             Kept{"granite-4.0-h-tiny", 36, 1'572'864, 19'968, 8'192, 7'000, 784, 400},
             Kept{"granite-4.0-h-small", 36, 4'194'304, 50'688, 16'384, 9'327, 1040, 528},
             Kept{"qwen3.5-0.8b", 18, 1'048'576, 36'864, 12'288, 1'590, 544, 288},
             Kept{"qwen3.5-4b", 24, 2'097'152, 49'152, 32'768, 1'572, 528, 272},
             Kept{"qwen3.5-9b", 24, 2'097'152, 49'152, 32'768, 1'572, 528, 272},
             Kept{"qwen3.5-27b", 48, 3'145'728, 61'440, 65'536, 2'349, 784, 400},
             Kept{"qwen3.5-35b-a3b", 30, 2'097'152, 49'152, 20'480, 3'144, 1056, 544},
             Kept{"qwen3-next-80b", 36, 2'097'152, 49'152, 24'576, 3'144, 1056, 544},
         }) {
        const ModelShape shape = shape_of_preset(kept.name);
        expect_kept(shape, kept);
        // The engine keeps the window in binary32.
        EXPECT_EQ(shape.state_bytes_per_row, kept.num_state_layers * (kept.recurrent_bytes + 2 * kept.window_bytes));
        EXPECT_EQ(shape.kv_bytes_per_token, kept.kv_bytes_per_token);
    }
}

// A model of state and attention layers alone: what is behind them keeps nothing.
ModelConfig layers_of(Architecture architecture, const LayerConfig& state, int32_t num_states,
                      const LayerConfig& attention, int32_t num_attentions) {
    ModelConfig config;
    config.architecture = architecture;
    config.vocab_size = 1000;
    config.hidden_size = 64;
    config.max_position_embeddings = 1000;
    config.layers.assign(static_cast<size_t>(num_states), state);
    config.layers.insert(config.layers.end(), static_cast<size_t>(num_attentions), attention);
    return config;
}

LayerConfig attention_layer(int32_t n_heads, int32_t n_kv_heads, int32_t head_dim) {
    LayerConfig layer;
    layer.attention = AttentionConfig{.n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_dim = head_dim, .scale = 1};
    return layer;
}

LayerConfig delta_layer(int32_t n_key_heads, int32_t n_value_heads) {
    LayerConfig layer;
    layer.delta = DeltaConfig{
        .n_key_heads = n_key_heads, .n_value_heads = n_value_heads, .key_dim = 128, .value_dim = 128, .d_conv = 4};
    return layer;
}

LayerConfig mamba_layer(int32_t n_heads, int32_t head_dim, int32_t d_state, int32_t n_groups) {
    LayerConfig layer;
    layer.mamba = MambaConfig{.n_heads = n_heads, .head_dim = head_dim, .d_state = d_state, .n_groups = n_groups};
    return layer;
}

TEST(ModelShape, LargerMembersOfTheirFamiliesKeepWhatTheirConfigsSay) {
    const auto expect_layers = [](const Kept& kept, Architecture architecture, const LayerConfig& state,
                                  const LayerConfig& attention, int32_t num_attentions) {
        const ModelConfig config = layers_of(architecture, state, kept.num_state_layers, attention, num_attentions);
        expect_kept(shape_of(kept.name, config), kept);
    };
    expect_layers({"Nemotron-3-Super-120B-A12B", 40, 4'194'304, 61'440, 8'192, 20'780, 4160, 2112},
                  Architecture::kNemotronH, mamba_layer(128, 64, 128, 8), attention_layer(32, 2, 128), 8);
    expect_layers({"Qwen3.5-122B-A10B", 36, 4'194'304, 73'728, 24'576, 6'252, 2096, 1072}, Architecture::kQwen35,
                  delta_layer(16, 64), attention_layer(32, 2, 256), 12);
}

// Families that have no config here yet: their figures in the shapes that pages and budgets are made of.
TEST(ModelShape, StatesWithoutARecurrenceAndSharedKvAreShapesToo) {
    const auto expect_shape = [](const Kept& kept, int64_t kv_bytes_per_layer, int32_t num_attentions) {
        ModelShape shape;
        shape.states = {
            {.recurrent = kept.recurrent_bytes / 4, .window = kept.window_bytes / 2, .count = kept.num_state_layers}};
        shape.kvs = {{kv_bytes_per_layer, num_attentions}};
        expect_kept(shape, kept);
        const auto pages = aligned_pages(shape, {});
        EXPECT_GE(pages->state_page_bytes, kept.num_state_layers * (kept.recurrent_bytes + kept.window_bytes));
    };
    // 3 convs over q, k and v; K and V are one row of 512 + 64, shared by all heads.
    expect_shape({"Kimi-Linear-48B-A3B", 20, 2'097'152, 73'728, 8'064, 5'384, 0, 0}, (512 + 64) * 2, 7);
    expect_shape({"LFM2-350M", 10, 0, 4'096, 12'288, 3, 16, 16}, 2 * 8 * 64 * 2, 6);
    expect_shape({"LFM2-1.2B", 10, 0, 8'192, 12'288, 7, 16, 16}, 2 * 8 * 64 * 2, 6);
    expect_shape({"LFM2-2.6B", 22, 0, 8'192, 16'384, 11, 16, 16}, 2 * 8 * 64 * 2, 8);
    expect_shape({"LFM2-8B-A1B", 18, 0, 8'192, 12'288, 12, 16, 16}, 2 * 8 * 64 * 2, 6);
}

// A log of such an engine has these two figures, 528 tokens and 0.76 % of padding (vllm-project/vllm#37467); whose they
// are, it does not say.
TEST(ModelShape, ADeltaNetsPageIsPaddedAsItsEngineSays) {
    const auto pages = aligned_pages(shape_of_preset("qwen3.5-9b"), {.state_value_bytes = 4});
    const double page = static_cast<double>(pages->state_page_bytes) / 24;
    EXPECT_EQ(page, 528 * 4096);
    EXPECT_NEAR(page / (2'097'152 + 49'152) - 1, 0.0076, 0.00005);
}

// Of the language models, as the GGUF files that are published of them count (n_params of llama.cpp).
TEST(ModelShape, ParametersAreThoseOfThePublishedFiles) {
    for (const auto& [name, num_parameters] :
         {std::pair{"qwen3.5-4b", 4'205'751'296}, std::pair{"qwen3.5-9b", 8'953'803'264},
          std::pair{"qwen3.5-27b", 26'895'998'464}, std::pair{"qwen3.5-35b-a3b", 34'660'610'688},
          std::pair{"nemotron-3-nano-30b", 31'577'940'288}}) {
        EXPECT_EQ(geometry(*reference::preset(name)).num_parameters, num_parameters) << name;
    }
}

TEST(ModelShape, WeightsAndOperationsAreThoseOfTheConfigs) {
    for (const char* name :
         {"nemotron-3-nano-30b", "granite-4.0-h-small", "tiny-nemotron-moe", "qwen3.5-9b", "granite-4.0-h-micro",
          "tiny-qwen3.5", "tiny-granite-moe", "qwen3.5-35b-a3b", "qwen3-next-80b", "tiny-qwen3.5-moe"}) {
        SCOPED_TRACE(name);
        const auto config = reference::preset(name);
        ASSERT_TRUE(config);
        const ModelGeometry sizes = geometry(*config);
        const ModelShape shape = shape_of(name, *config);
        EXPECT_EQ(shape.weight_bytes, 2 * sizes.num_parameters) << "every expert is in memory";
        double matrices = 0;
        for (const MatmulShape& matmul : shape.matmuls)
            matrices += static_cast<double>(matmul.n * matmul.k) * matmul.count;
        double routed = 0;
        double chosen = 0;
        for (const ExpertsShape& experts : shape.experts) {
            const auto one = static_cast<double>(experts.parameters()) * experts.count;
            routed += one * experts.n_experts;
            chosen += one * experts.n_chosen;
        }
        // Embeddings that no matmul reads, norms, biases and convs are what is left.
        const double embedding = config->tie_word_embeddings ? 0 : 1.0 * config->vocab_size * config->hidden_size;
        const auto rest = [&](int64_t all, double experts) {
            return (static_cast<double>(all) - matrices - experts - embedding) / static_cast<double>(all);
        };
        const double most = std::string_view(name).starts_with("tiny") ? 0.1 : 0.002;
        EXPECT_GT(rest(sizes.num_parameters, routed), 0);
        EXPECT_LT(rest(sizes.num_parameters, routed), most);
        EXPECT_GT(rest(sizes.num_active_parameters, chosen), 0);
        EXPECT_LT(rest(sizes.num_active_parameters, chosen), most);
        const double logits = 2.0 * config->vocab_size * config->hidden_size;
        EXPECT_GE(flops_of(shape).per_token, 2 * (matrices + chosen) - logits);
    }
}

// The simulator prices what executors run: every matrix of the forward pass, and each once.
TEST(ModelShape, MatmulsAreThoseOfTheForwardPass) {
    int num_layers = 0;
    for (const std::string_view name : preset_names()) {
        SCOPED_TRACE(name);
        const ModelConfig config = *preset(name);
        int64_t walked = 0;
        for (const OpCall& call : forward_pass(config)) {
            if (call.op == WalkOp::kMatmul) walked += call.written()[0].columns.count * call.columns.count;
            if (call.op == WalkOp::kLayer) ++num_layers;
        }
        // The router multiplies, too: kRoute.
        for (const LayerConfig& layer : config.layers)
            walked += layer.moe ? int64_t{layer.moe->n_experts} * config.hidden_size : 0;
        int64_t priced = 0;
        for (const MatmulShape& matmul : shape_of(std::string(name), config).matmuls)
            priced += matmul.n * matmul.k * matmul.count;
        EXPECT_EQ(priced, walked);
    }
    EXPECT_GT(num_layers, 500);
}

}  // namespace
}  // namespace verbatim
