// reference/model/mtp_layer.h: the multi-token prediction layer of Qwen3.5, Qwen3-Next and Nemotron-H as a separate
// model: attention and a feed-forward part over rows that it makes of a token's embedding and of the hidden row at the
// position before (ModelConfig::reads_hidden). A hidden row is the model's after its final norm, and the layer's own
// after its norm when it predicts further tokens (vLLM, qwen3_next_mtp.py, qwen3_5_mtp.py and nemotron_h_mtp.py).
#pragma once

#include <cstdint>

#include "engine/base/result.h"
#include "reference/model/model_config.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// Its layer has the shapes of the model's last layer with attention and a feed-forward part; of Nemotron-H, where each
// layer has one of them, it is two: the last with attention, then the last with experts. Error: the model has none.
Result<ModelConfig> mtp_config(const ModelConfig& config);

// Whether checkpoints of the family may have the layer.
bool has_mtp(Architecture family);

// Points the embedding and the head of model.mtp at the model's. REQUIRES: model.mtp, and both are filled.
void share_embedding(Model& model);

// Gives a model with random weights a random layer, by the seed. Error: mtp_config's, or another family.
Status add_random_mtp(Model& model, uint64_t seed);

}  // namespace verbatim::reference
