// tests/kernels/poisoned_model.h: a model that a token makes fail, for executors that must keep it apart from the
// others.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::tests {

// A model one of whose tokens, 0 or another, is embedded as NaN; the head that turns rows into logits stays sound.
struct PoisonedModel {
    explicit PoisonedModel(reference::Architecture family = reference::Architecture::kGraniteHybrid,
                           reference::Profile profile = reference::Profile::kExact, TokenId token = 0)
        : scene(reference::draw_small_config(family, 8), 8, profile) {
        CHECK(scene.has_kv);
        auto& embedding = scene.model.weights.embedding;
        table.assign(embedding.data, embedding.data + embedding.rows * embedding.cols);
        std::fill_n(table.begin() + token * embedding.cols, embedding.cols, uint16_t{0x7FC0});
        embedding.data = table.data();
    }
    [[nodiscard]] std::vector<TokenId> sound_tokens(int64_t count, uint64_t seed) const {
        auto tokens = scene.tokens(count, seed);
        for (TokenId& token : tokens) token = std::max(token, 1);
        return tokens;
    }
    // Where it shows: the first layer with a state, or in the logits, after all layers.
    [[nodiscard]] int32_t fault_layer() const {
        const auto& layers = scene.model.config.layers;
        const auto found =
            std::find_if(layers.begin(), layers.end(), [](const auto& layer) { return layer.mamba.has_value(); });
        return static_cast<int32_t>(found - layers.begin());
    }
    std::vector<uint16_t> table;
    SceneModel scene;
};

}  // namespace verbatim::tests
