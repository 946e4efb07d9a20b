// tools/program/shape_choice.h: the shape of the model that --model names, for verbs that simulate.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "simulator/model_shape.h"

namespace verbatim::tools {

// A preset, a checkpoint's folder, or a config.json of which shapes alone are read (simulator/shape_config.h). Errors:
// there is no such model; a key that is missing or wrong.
[[nodiscard]] Result<ModelShape> choose_shape(const std::string& name);

}  // namespace verbatim::tools
