// tools/program/model_shape.h: a model's config as the simulator's cost model sees it. No weights are read.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "reference/model/model_config.h"
#include "simulator/model_shape.h"

namespace verbatim::tools {

// `name` is a preset or a checkpoint's folder (or its config.json).
Result<reference::ModelConfig> choose_config(const std::string& name);

ModelShape shape_of(const std::string& name, const reference::ModelConfig& config);

// Operations per token of everything but attention, and per token and position before it of attention.
struct ModelFlops {
    double per_token = 0;
    double per_pair = 0;
};
ModelFlops flops_of(const ModelShape& shape);

}  // namespace verbatim::tools
