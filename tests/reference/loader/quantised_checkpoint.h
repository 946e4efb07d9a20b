// tests/reference/loader/quantised_checkpoint.h: checkpoint folders with quantised matrices, for tests of loading and
// of executors.
#pragma once

#include <filesystem>
#include <string>

#include "engine/base/check.h"
#include "reference/loader/load_model.h"
#include "reference/loader/write_checkpoint.h"
#include "reference/loader/write_quantised.h"
#include "reference/model/presets.h"
#include "tests/reference/loader/golden_checkpoint.h"
#include "tests/reference/quantised_model.h"

namespace verbatim::tests {

// The value, or a failed CHECK with the error.
template <typename T>
T value_of(Result<T> result) {
    CHECK(result.has_value(), "{}", result.error().message);
    return *std::move(result);
}

// Rows of whole groups of 128.
inline reference::ModelConfig in_whole_groups(reference::ModelConfig config) {
    config = in_whole_blocks(std::move(config));
    config.hidden_size = 128;
    for (reference::LayerConfig& layer : config.layers) {
        if (layer.mlp) layer.mlp->d_ff = 256;
        if (layer.attention) layer.attention->n_heads = 128 / layer.attention->head_dim;
        if (layer.mamba) {
            layer.mamba->head_dim = 32;
            layer.mamba->n_heads = 8;
        }
    }
    return config;
}

// Writes FOLDER/dense, a random model of the preset's family, and FOLDER/KIND from it. Returns the latter.
inline std::filesystem::path write_quantised_preset(const std::filesystem::path& folder, const std::string& preset,
                                                    const std::string& kind, uint64_t seed) {
    const auto config = in_whole_groups(value_of(reference::preset(preset)));
    const auto dense = folder / "dense";
    const Status written = reference::write_random_checkpoint(config, seed, dense);
    CHECK(written.has_value(), "{}", written.error().message);
    reference::Model model = value_of(reference::load_model(dense));
    const Status quantised = reference::write_quantised(model, reference::read_file(dense / "config.json"),
                                                        *reference::find_quantised_kind(kind), folder / kind);
    CHECK(quantised.has_value(), "{}", quantised.error().message);
    return folder / kind;
}

// Gives the checkpoint in `folder`, of kind fp8, the recipe of static activation scales, and each matrix one, such that
// some activations of a random model are beyond 448 of them.
inline void make_scales_static(const std::filesystem::path& folder) {
    nlohmann::json config = nlohmann::json::parse(reference::read_file(folder / "config.json"));
    nlohmann::json& recipe = config["quantization_config"]["config_groups"]["group_0"]["input_activations"];
    recipe["dynamic"] = false;
    recipe["strategy"] = "tensor";
    std::ofstream(folder / "config.json") << config;
    reference::FileTensors tensors = reference::read_tensors(reference::read_file(folder / "model.safetensors"));
    constexpr std::string_view kScale = ".weight_scale";
    reference::FileTensors scales;
    for (const reference::FileTensor& tensor : tensors) {
        const std::string& name = tensor.layout.name;
        if (!name.ends_with(kScale)) continue;
        const float scale = 0.004F + 0.001F * static_cast<float>(scales.size() % 5);
        scales.push_back(
            {{name.substr(0, name.size() - kScale.size()) + ".input_scale", reference::TensorDtype::kF32, {1}},
             std::string(reinterpret_cast<const char*>(&scale), sizeof(scale))});
    }
    tensors.insert(tensors.end(), scales.begin(), scales.end());
    std::ofstream(folder / "model.safetensors", std::ios::binary) << reference::write_tensors(tensors);
}

}  // namespace verbatim::tests
