#include "reference/loader/config_json.h"

#include <fmt/ranges.h>

#include <array>

#include "files/strict_json.h"
#include "reference/loader/config_families.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

struct Family {
    Architecture architecture;
    std::string_view name;  // in architectures
    std::string_view model_type;
    ModelConfig (*read)(ConfigFields& fields);
};

// A family may have two names: that of its published checkpoints is architecture_name().
constexpr std::array<Family, 11> kFamilies = {{
    {Architecture::kGraniteHybrid, "GraniteMoeHybridForCausalLM", "granitemoehybrid", read_granite_hybrid},
    {Architecture::kLlama, "LlamaForCausalLM", "llama", read_llama},
    {Architecture::kBamba, "BambaForCausalLM", "bamba", read_bamba},
    {Architecture::kNemotronH, "NemotronHForCausalLM", "nemotron_h", read_nemotron_h},
    {Architecture::kFalconH1, "FalconH1ForCausalLM", "falcon_h1", read_falcon_h1},
    {Architecture::kMamba2, "Mamba2ForCausalLM", "mamba2", read_mamba2},
    {Architecture::kQwen35, "Qwen3_5ForConditionalGeneration", "qwen3_5", read_qwen35},
    {Architecture::kQwen35, "Qwen3_5ForCausalLM", "qwen3_5_text", read_qwen35_text},
    {Architecture::kQwen35Moe, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", read_qwen35_moe},
    {Architecture::kQwen35Moe, "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", read_qwen35_moe_text},
    {Architecture::kQwen3Next, "Qwen3NextForCausalLM", "qwen3_next", read_qwen3_next},
}};

std::string supported_families() {
    std::string names;
    for (const Family& family : kFamilies) names += fmt::format("{}{}", names.empty() ? "" : ", ", family.name);
    return names;
}

Result<const Family*> find_family(const Json& object, std::string_view source) {
    const auto architectures = object.find("architectures");
    if (architectures == object.end() || !architectures->is_array() || architectures->size() != 1 ||
        !architectures->front().is_string())
        return error("{}: architectures = {}, wanted a list of one name. Supported: {}", source,
                     architectures == object.end() ? "(missing)" : quote_json(*architectures), supported_families());
    const auto& name = architectures->front().get_ref<const std::string&>();
    for (const Family& family : kFamilies) {
        if (family.name != name) continue;
        const auto type = object.find("model_type");
        if (type != object.end() && *type != family.model_type)
            return error("{}: model_type = {} contradicts architectures = {}, wanted \"{}\"", source, quote_json(*type),
                         quote_text(name), family.model_type);
        return &family;
    }
    return error("{}: architectures = {} is not supported. Supported: {}", source, quote_text(name),
                 supported_families());
}

}  // namespace

Result<CheckpointConfig> parse_checkpoint_config(std::string_view text, std::string_view source) {
    ASSIGN_OR_RETURN(Json object, parse_strict_json(text, source));
    if (!object.is_object()) return error("{}: got {}, wanted an object", source, quote_json(object));
    ASSIGN_OR_RETURN(const Family* family, find_family(object, source));
    CheckpointConfig config;
    if (const auto stated = object.find("quantization_config"); stated != object.end() && !stated->is_null()) {
        ASSIGN_OR_RETURN(config.quantisation, parse_quantisation(*stated, source));
        object.erase(stated);
    }
    ConfigFields fields(object);
    config.model = family->read(fields);
    RETURN_IF_ERROR(fields.finish(source));
    config.model.architecture = family->architecture;
    if (const auto problems = validate(config.model); !problems.empty())
        return error("{}: {}", source, fmt::join(problems, "\n  and: "));
    return config;
}

Result<ModelConfig> parse_config(std::string_view text, std::string_view source) {
    ASSIGN_OR_RETURN(CheckpointConfig config, parse_checkpoint_config(text, source));
    if (config.quantisation)
        return error("{}: quantization_config = {}, wanted none: this takes a model in bf16", source,
                     name(config.quantisation->method));
    return std::move(config.model);
}

}  // namespace verbatim::reference
