#include "reference/model/mtp_layer.h"

#include <algorithm>

#include "engine/base/check.h"
#include "reference/model/random_model.h"

namespace verbatim::reference {

Result<ModelConfig> mtp_config(const ModelConfig& config) {
    const auto last = std::ranges::find_if(config.layers.rbegin(), config.layers.rend(), [](const LayerConfig& layer) {
        return layer.attention && layer.has_feed_forward();
    });
    if (last == config.layers.rend())
        return error("no layer has attention and a feed-forward part, so that of the prediction layer is not known");
    ModelConfig mtp = config;
    mtp.reads_hidden = true;
    mtp.layers.assign(1, *last);
    return mtp;
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
    if (family != Architecture::kQwen35 && family != Architecture::kQwen35Moe && family != Architecture::kQwen3Next)
        return error("a {} has no layer that predicts more tokens", architecture_name(family));
    ASSIGN_OR_RETURN(const ModelConfig config, mtp_config(model.config));
    model.mtp = std::make_unique<Model>(make_random_model(config, seed));
    share_embedding(model);
    return {};
}

}  // namespace verbatim::reference
