// tools/program/shape_choice.h: the shape of the model that --model names, for verbs that simulate.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "simulator/model_shape.h"

namespace verbatim::tools {

// A preset, a checkpoint's folder, a GGUF file, or a config.json of which shapes alone are read
// (simulator/shape_config.h). Of a quantised checkpoint the headers of the files say how many bytes its weights have.
// Errors: there is no such model; a key that is missing or wrong; a quantised checkpoint's files are not there.
[[nodiscard]] Result<ModelShape> choose_shape(const std::string& name);

}  // namespace verbatim::tools
