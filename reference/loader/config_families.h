// reference/loader/config_families.h: one reader per family; private to config_json.cc.
//
// Each reader takes the fields of a config.json whose `architectures` names the family and notes problems there. The
// returned ModelConfig is meaningful only without problems. Absent keys get the defaults of transformers' config class.
#pragma once

#include "reference/loader/config_fields.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

ModelConfig read_granite_hybrid(ConfigFields& fields);
ModelConfig read_llama(ConfigFields& fields);
ModelConfig read_bamba(ConfigFields& fields);
ModelConfig read_nemotron_h(ConfigFields& fields);
ModelConfig read_falcon_h1(ConfigFields& fields);
ModelConfig read_mamba2(ConfigFields& fields);
ModelConfig read_qwen35(ConfigFields& fields);       // as published: the language model is a text_config
ModelConfig read_qwen35_text(ConfigFields& fields);  // saved without the other modalities
ModelConfig read_qwen35_moe(ConfigFields& fields);
ModelConfig read_qwen35_moe_text(ConfigFields& fields);
ModelConfig read_qwen3_next(ConfigFields& fields);

}  // namespace verbatim::reference
