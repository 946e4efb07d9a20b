#include "tools/program/shape_choice.h"

#include "reference/loader/model_choice.h"
#include "simulator/shape_config.h"

namespace verbatim::tools {

Result<ModelShape> choose_shape(const std::string& name) {
    if (!reference::is_preset(name)) {
        ASSIGN_OR_RETURN(const reference::ConfigText config, reference::read_config_text(name));
        if (is_shape_config(config.text)) return parse_shape(name, config.text, config.path);
    }
    ASSIGN_OR_RETURN(const reference::ModelConfig config, reference::choose_config(name));
    return shape_of(name, config);
}

}  // namespace verbatim::tools
