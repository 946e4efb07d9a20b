#include "reference/loader/model_choice.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "reference/loader/config_json.h"
#include "reference/model/mtp_layer.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "reference/ops/rope.h"
#include "reference/walk.h"

namespace verbatim::reference {
namespace {

void add(Digester& digester, const Linear& linear) {
    digester.add(linear.weight.rows);
    digester.add(linear.weight.cols);
    if (linear.weight.is_quantised()) digester.add(linear.weight.format->name);
    digester.bytes(linear.weight.bytes().data(), linear.weight.bytes().size());
    digester.add_all(linear.bias);
}

void add(Digester& digester, const LayerConfig& config, const LayerWeights& weights) {
    digester.add_all(weights.mixer_norm);
    digester.add_all(weights.mlp_norm);
    const MambaWeights& mamba = weights.mamba;
    for (const VectorView vector :
         {mamba.conv_weight, mamba.conv_bias, mamba.a_log, mamba.d, mamba.dt_bias, mamba.norm}) {
        digester.add_all(vector);
    }
    const DeltaWeights& delta = weights.delta;
    for (const VectorView vector : {delta.conv_weight, delta.a_log, delta.dt_bias, delta.norm})
        if (!vector.empty()) digester.add_all(vector);
    for (const VectorView vector :
         {weights.attention.q_norm, weights.attention.k_norm, weights.moe.router, weights.moe.choice_bias})
        if (!vector.empty()) digester.add_all(vector);
    if (config.attention && config.attention->rope.kind != RopeKind::kNone) {
        constexpr int64_t kPositions = 4096;
        digester.add(RopeTable(config.attention->rope, kPositions).digest(kPositions));
    }
}

}  // namespace

bool is_preset(const std::string& name_or_folder) { return std::ranges::count(preset_names(), name_or_folder) > 0; }

Result<Model> choose_model(const std::string& name_or_folder, uint64_t seed, const LoadOptions& options) {
    if (is_preset(name_or_folder)) {
        ASSIGN_OR_RETURN(const ModelConfig config, preset(name_or_folder));
        Model model = make_random_model(config, seed);
        if (options.mtp) {
            if (Status added = add_random_mtp(model, seed); !added)
                return error("--model {}: {}", name_or_folder, added.error().message);
        }
        return model;
    }
    std::error_code ignored;
    if (std::filesystem::exists(name_or_folder, ignored)) return load_model(name_or_folder, options);
    return error("--model {}: neither a checkpoint's folder, a GGUF file nor a preset ({})", name_or_folder,
                 fmt::join(preset_names(), ", "));
}

Result<Digest> model_digest(const Model& model) {
    Digester digester;
    ModelConfig written = model.config;
    for (LayerConfig& layer : written.layers)
        if (layer.delta) layer.delta->tiled_values = false;  // config.json has no word for it
    const auto config = write_config(written);
    if (!config) return error("the model's config has no digest: {}", config.error().message);
    digester.add(*config);
    for (size_t i = 0; i < written.layers.size(); ++i)
        if (written.layers[i] != model.config.layers[i]) digester.add(i);
    const ModelWeights& weights = model.weights;
    digester.bytes(weights.embedding.bytes().data(), weights.embedding.bytes().size());
    for (const MatrixId id : matrices_of(model.config)) add(digester, linear_of(weights, id));
    for (size_t i = 0; i < weights.layers.size(); ++i) add(digester, model.config.layers[i], weights.layers[i]);
    digester.add_all(weights.final_norm);
    return digester.digest();
}

Result<ConfigText> read_config_text(const std::string& name) {
    std::filesystem::path path = name;
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    if (is_folder) path /= "config.json";
    std::ifstream file(path, std::ios::binary);
    if (!std::filesystem::is_regular_file(path, ignored) || !file) {
        return error("--model {}: neither a checkpoint's folder with a config.json nor a preset ({})", name,
                     fmt::join(preset_names(), ", "));
    }
    std::ostringstream text;
    text << file.rdbuf();
    if (!is_folder) return ConfigText{path.string(), text.str()};
    ASSIGN_OR_RETURN(std::string whole, with_hf_quant_config(text.str(), path.parent_path()));
    return ConfigText{path.string(), std::move(whole)};
}

Result<ModelConfig> choose_config(const std::string& name) {
    if (is_preset(name)) return preset(name);
    ASSIGN_OR_RETURN(const ConfigText config, read_config_text(name));
    return parse_config(config.text, config.path);
}

}  // namespace verbatim::reference
