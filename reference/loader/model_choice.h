// reference/loader/model_choice.h: the model of a command's --model.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "reference/loader/load_model.h"
#include "reference/model/model_config.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// A checkpoint's folder, a GGUF file, or a preset with random weights by the seed.
Result<Model> choose_model(const std::string& name_or_folder, uint64_t seed, const LoadOptions& options = {});
Result<ModelConfig> choose_config(const std::string& name);
bool is_preset(const std::string& name_or_folder);

// A config.json, and where it is. `name`: the file, or the folder that has it. Error: there is none.
struct ConfigText {
    std::string path;
    std::string text;
};
Result<ConfigText> read_config_text(const std::string& name);

Result<Digest> model_digest(const Model& model);

}  // namespace verbatim::reference
