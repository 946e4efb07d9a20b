// reference/model/presets.h: configs of published models by name, and tiny ones made for tests.
#pragma once

#include <span>
#include <string_view>

#include "engine/base/result.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

// Names in the order in which they are listed to people.
std::span<const std::string_view> preset_names();

// An error lists the names there are.
Result<ModelConfig> preset(std::string_view name);

}  // namespace verbatim::reference
