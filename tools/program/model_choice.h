// tools/program/model_choice.h: the model of a command's --model.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "reference/loader/load_model.h"
#include "reference/model/model_config.h"
#include "reference/model/weights.h"
#include "simulator/model_shape.h"

namespace verbatim::tools {

// A preset's name gives that architecture with random weights by seed, any other name is a checkpoint's folder. The
// error for a name that is neither lists the presets.
Result<reference::Model> choose_model(const std::string& name_or_folder, uint64_t seed,
                                      const reference::LoadOptions& options = {});
// Its configuration alone: of a preset, a checkpoint's folder or its config.json.
Result<reference::ModelConfig> choose_config(const std::string& name);
// The shapes of either, or of a model that its config.json alone describes (simulator/shape_config.h).
Result<ModelShape> choose_shape(const std::string& name);
bool is_preset(const std::string& name_or_folder);

// The digest of all inputs of the arithmetic: config, weights, rotary tables (their first 4096 positions). Errors: a
// config that its family's config.json cannot express.
Result<Digest> model_digest(const reference::Model& model);

}  // namespace verbatim::tools
