#include "tools/program/shape_choice.h"

#include "reference/loader/model_choice.h"
#include "reference/loader/stored_weights_of.h"
#include "simulator/deployment.h"
#include "simulator/shape_config.h"

namespace verbatim::tools {
namespace {

// Of a checkpoint that may have quantised weights.
Result<ModelShape> quantised_shape(const std::string& name) {
    ASSIGN_OR_RETURN(const auto quantised, reference::find_quantised_checkpoint(name));
    if (quantised) return with_stored_weights(shape_of(name, quantised->config), quantised->stored);
    ASSIGN_OR_RETURN(const reference::ModelConfig config, reference::choose_config(name));
    return shape_of(name, config);
}

}  // namespace

Result<ModelShape> choose_shape(const std::string& name) {
    if (reference::is_gguf(name)) return quantised_shape(name);
    if (!reference::is_preset(name)) {
        ASSIGN_OR_RETURN(const reference::ConfigText config, reference::read_config_text(name));
        if (is_shape_config(config.text)) return parse_shape(name, config.text, config.path);
        if (config.text.find("\"quantization_config\"") != std::string::npos) return quantised_shape(name);
    }
    ASSIGN_OR_RETURN(const reference::ModelConfig config, reference::choose_config(name));
    return shape_of(name, config);
}

}  // namespace verbatim::tools
