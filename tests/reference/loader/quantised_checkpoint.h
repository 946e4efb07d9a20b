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

}  // namespace verbatim::tests
