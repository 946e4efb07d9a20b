#include "kernels/kernel_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "reference/reference_model.h"

namespace verbatim {
namespace {

using reference::ModelConfig;
using reference::RopeConfig;
using reference::RopeKind;

// Layers of two kinds of rotary embedding, and one without.
ModelConfig turning(const std::vector<RopeConfig>& ropes) {
    ModelConfig config = reference::draw_small_config(reference::Architecture::kLlama, 1);
    const reference::LayerConfig layer = config.layers.at(0);
    config.layers.clear();
    for (const RopeConfig& rope : ropes) {
        config.layers.push_back(layer);
        config.layers.back().attention->rope = rope;
    }
    return config;
}

void expect_those_of_the_reference(const reference::Model& model, int64_t num_positions) {
    reference::ReferenceModel reference(model.config, model.weights);
    KernelModel kernels(model.config, model.weights);
    for (size_t i = 0; i < model.config.layers.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        EXPECT_TRUE(std::ranges::equal(kernels.decay_rates(layer), reference.decay_rates(layer))) << layer;
        const reference::LayerWeights& weights = model.weights.layers[i];
        const auto expect_norm = [&](std::span<const float> norm, reference::VectorView stored) {
            ASSERT_EQ(norm.size(), stored.size()) << layer;
            if (!stored.empty()) EXPECT_TRUE(std::equal(norm.begin(), norm.end(), reference.norm_weight(stored)));
        };
        expect_norm(kernels.norm(layer, reference::Norm::kMixer), weights.mixer_norm);
        expect_norm(kernels.norm(layer, reference::Norm::kMlp), weights.mlp_norm);
        expect_norm(kernels.norm(layer, reference::Norm::kFinal), model.weights.final_norm);
        expect_norm(kernels.q_norm(layer), weights.attention.q_norm);
        expect_norm(kernels.k_norm(layer), weights.attention.k_norm);
        const auto& attention = model.config.layers[i].attention;
        if (!attention || attention->rope.kind == RopeKind::kNone) continue;
        const RotaryTable& rotary = kernels.rotary_table(layer, num_positions);
        const reference::RopeTable& wanted = reference.rope_table(layer, num_positions);
        ASSERT_EQ(rotary.n_pairs(), wanted.n_pairs());
        ASSERT_EQ(rotary.num_positions(), num_positions);
        EXPECT_EQ(rotary.inv_freq(), wanted.inv_freq());
        const auto count = static_cast<size_t>(num_positions * wanted.n_pairs());
        EXPECT_TRUE(std::ranges::equal(std::span(rotary.cos(0), count), std::span(wanted.cos(0), count))) << layer;
        EXPECT_TRUE(std::ranges::equal(std::span(rotary.sin(0), count), std::span(wanted.sin(0), count))) << layer;
    }
}

TEST(KernelModel, TablesAreThoseOfTheReferenceInEveryFamily) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
        expect_those_of_the_reference(reference::make_random_model(reference::draw_small_config(seed), seed), 70);
    }
}

TEST(KernelModel, ANormPlusOneIsTheStoredWeightPlusOne) {
    const reference::Model model = reference::make_random_model(*reference::preset("tiny-qwen3.5"), 1);
    const KernelModel kernels(model.config, model.weights);
    const reference::LayerWeights& layer = model.weights.layers[3];
    EXPECT_EQ(kernels.norm(3, reference::Norm::kMlp)[5], 1.0F + layer.mlp_norm[5]);
    EXPECT_EQ(kernels.q_norm(3)[7], 1.0F + layer.attention.q_norm[7]);
    EXPECT_LT(std::abs(layer.mlp_norm[5]), 0.2F);  // so that the one is not in it already
}

TEST(KernelModel, EveryRotaryScalingIsThatOfTheReference) {
    const ModelConfig config = turning({
        {.kind = RopeKind::kDefault, .n_rotary_dims = 2, .theta = 1e4},
        {.kind = RopeKind::kNone},
        {.kind = RopeKind::kLinear, .n_rotary_dims = 2, .theta = 5e5, .factor = 3.0},
        {.kind = RopeKind::kDefault, .n_rotary_dims = 2, .theta = 1e4},
    });
    const reference::Model model = reference::make_random_model(config, 1);
    expect_those_of_the_reference(model, 300);
    KernelModel kernels(model.config, model.weights);
    EXPECT_EQ(&kernels.rotary_table(0, 1), &kernels.rotary_table(3, 1));
    EXPECT_NE(&kernels.rotary_table(0, 1), &kernels.rotary_table(2, 1));
}

TEST(KernelModel, LlamaThreeStretchesLongWavesAlone) {
    ModelConfig config = turning({{}});
    config.layers[0].attention->head_dim = 64;
    config.layers[0].attention->rope = {.kind = RopeKind::kLlama3,
                                        .n_rotary_dims = 64,
                                        .theta = 5e5,
                                        .factor = 32.0,
                                        .low_freq_factor = 1.0,
                                        .high_freq_factor = 4.0,
                                        .original_max_position_embeddings = 8192};
    const reference::Model model = reference::make_random_model(config, 1);
    expect_those_of_the_reference(model, 100);
    RopeConfig plain = config.layers[0].attention->rope;
    plain.kind = RopeKind::kDefault;
    const auto some = RotaryTable(config.layers[0].attention->rope).inv_freq();
    const auto all = RotaryTable(plain).inv_freq();
    EXPECT_EQ(some.front(), all.front());
    EXPECT_EQ(some.back(), all.back() / 32.0);
}

TEST(KernelModel, AGrowingRotaryTableKeepsItsBits) {
    RotaryTable table({.kind = RopeKind::kDefault, .n_rotary_dims = 6, .theta = 1e4});
    table.extend(5);
    const std::vector<float> before(table.cos(0), table.cos(5));
    table.extend(3);
    EXPECT_EQ(table.num_positions(), 5);
    table.extend(900);
    EXPECT_EQ(table.num_positions(), 900);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), table.cos(0)));
}

}  // namespace
}  // namespace verbatim
