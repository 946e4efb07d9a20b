// tests/kernels/poisoned_model.h: a model in which one token causes a fault, for executors that must isolate it from
// other sequences.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::tests {

// A model that embeds one of its tokens, 0 by default, as NaN; the lm_head stays finite.
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
    // The layer of the fault: the first with a state, or the number of layers for the logits.
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
