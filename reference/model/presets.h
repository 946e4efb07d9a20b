// reference/model/presets.h: configs of published models by name, and tiny ones made for tests.
#pragma once

#include <span>
#include <string_view>

#include "engine/base/result.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

// Names in display order.
std::span<const std::string_view> preset_names();

// The error lists the available names.
Result<ModelConfig> preset(std::string_view name);

}  // namespace verbatim::reference
