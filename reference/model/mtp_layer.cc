#include "reference/model/mtp_layer.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "reference/model/random_model.h"

namespace verbatim::reference {

namespace {

using HasParts = bool (*)(const LayerConfig& layer);

// The last layer that has the parts; null: none has.
const LayerConfig* last_layer(const ModelConfig& config, HasParts has_parts) {
    const auto last = std::find_if(config.layers.rbegin(), config.layers.rend(), has_parts);
    return last == config.layers.rend() ? nullptr : &*last;
}

}  // namespace

Result<ModelConfig> mtp_config(const ModelConfig& config) {
    constexpr HasParts kWhole = [](const LayerConfig& layer) { return layer.attention && layer.has_feed_forward(); };
    constexpr HasParts kAttention = [](const LayerConfig& layer) { return layer.attention.has_value(); };
    constexpr HasParts kExperts = [](const LayerConfig& layer) { return layer.moe.has_value(); };
    const bool in_two = config.architecture == Architecture::kNemotronH;
    ModelConfig mtp = config;
    mtp.reads_hidden = true;
    mtp.layers.clear();
    for (const HasParts parts : in_two ? std::vector{kAttention, kExperts} : std::vector{kWhole}) {
        const LayerConfig* const like = last_layer(config, parts);
        if (like == nullptr)
            return error("no layer has {}, so that of the prediction layer is not known",
                         in_two ? "experts, or none has attention" : "attention and a feed-forward part");
        mtp.layers.push_back(*like);
    }
    return mtp;
}

bool has_mtp(Architecture family) {
    return family == Architecture::kQwen35 || family == Architecture::kQwen35Moe ||
           family == Architecture::kQwen3Next || family == Architecture::kNemotronH;
}

void share_embedding(Model& model) {
    CHECK(model.mtp && !model.weights.lm_head.empty());
    ModelWeights& weights = model.mtp->weights;
    weights.embedding = model.weights.embedding;
    weights.lm_head = model.weights.lm_head;
    weights.quantised |= weights.embedding.is_quantised() || weights.lm_head.is_quantised();
}

Status add_random_mtp(Model& model, uint64_t seed) {
    const Architecture family = model.config.architecture;
    if (!has_mtp(family)) return error("a {} has no layer that predicts more tokens", architecture_name(family));
    ASSIGN_OR_RETURN(const ModelConfig config, mtp_config(model.config));
    model.mtp = std::make_unique<Model>(make_random_model(config, seed));
    share_embedding(model);
    return {};
}

}  // namespace verbatim::reference
