#include "tools/simulate/model_shape.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "reference/model/config_json.h"
#include "reference/model/presets.h"
#include "tools/program/model_choice.h"

namespace verbatim::tools {
namespace {

using namespace reference;

constexpr int64_t kBytes = 2;  // bf16

// One more of this kernel: equal ones are counted.
template <typename Shape>
void count(std::vector<Shape>& shapes, Shape shape) {
    for (Shape& known : shapes) {
        shape.count = known.count;
        if (known != shape) continue;
        ++known.count;
        return;
    }
    shape.count = 1;
    shapes.push_back(shape);
}

void add_elementwise(ModelShape& shape, int64_t bytes_per_token, bool on_logits = false) {
    count(shape.elementwise, ElementwiseShape{.bytes_per_token = bytes_per_token, .on_logits = on_logits});
}

void add_mamba(ModelShape& shape, int64_t hidden, const MambaConfig& mamba) {
    count(shape.matmuls, MatmulShape{.n = mamba.in_rows(), .k = hidden});
    count(shape.matmuls, MatmulShape{.n = hidden, .k = mamba.d_inner()});
    count(shape.mambas, MambaShape{.n_heads = mamba.n_heads,
                                   .head_dim = mamba.head_dim,
                                   .d_state = mamba.d_state,
                                   .n_groups = mamba.n_groups,
                                   .d_conv = mamba.d_conv});
    add_elementwise(shape, 3 * kBytes * mamba.d_inner());  // y, z in, gated norm out
}

void add_attention(ModelShape& shape, int64_t hidden, const AttentionConfig& attention) {
    count(shape.matmuls, MatmulShape{.n = attention.q_rows() + 2 * attention.kv_rows(), .k = hidden});
    count(shape.matmuls, MatmulShape{.n = hidden, .k = attention.q_rows()});
    count(shape.attentions,
          AttentionShape{
              .n_heads = attention.n_heads, .n_kv_heads = attention.n_kv_heads, .head_dim = attention.head_dim});
    // Rotary in and out, and K and V into the cache.
    add_elementwise(shape, kBytes * (2 * attention.q_rows() + 4 * attention.kv_rows()));
}

void add_mlp(ModelShape& shape, int64_t hidden, const MlpConfig& mlp) {
    const int64_t num_up = mlp.kind == MlpKind::kGatedSilu ? 2 : 1;
    count(shape.matmuls, MatmulShape{.n = num_up * mlp.d_ff, .k = hidden});
    count(shape.matmuls, MatmulShape{.n = hidden, .k = mlp.d_ff});
    add_elementwise(shape, kBytes * (num_up + 1) * mlp.d_ff);
}

Result<ModelConfig> named_config(const std::string& name) {
    if (is_preset(name)) return preset(name);
    std::filesystem::path path = name;
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
    std::ifstream file(path, std::ios::binary);
    if (!std::filesystem::is_regular_file(path, ignored) || !file) {
        return error("--model {}: neither a checkpoint's folder with a config.json nor a preset ({})", name,
                     fmt::join(preset_names(), ", "));
    }
    std::ostringstream text;
    text << file.rdbuf();
    return parse_config(text.str(), path.string());
}

}  // namespace

Result<ModelConfig> choose_config(const std::string& name) {
    auto config = named_config(name);
    if (config && geometry(*config).num_delta_layers > 0)
        return error("--model {}: a {} has gated delta nets, which the simulator cannot price yet", name,
                     architecture_name(config->architecture));
    if (config && geometry(*config).num_moe_layers > 0)
        return error("--model {}: a {} has experts, whose steps are not priced yet: choose a dense model", name,
                     architecture_name(config->architecture));
    return config;
}

ModelShape shape_of(const std::string& name, const ModelConfig& config) {
    const ModelGeometry shape_geometry = geometry(config);
    const int64_t hidden = config.hidden_size;
    ModelShape shape;
    shape.name = name;
    shape.vocab_size = config.vocab_size;
    shape.max_positions = config.max_position_embeddings;
    shape.num_parameters = shape_geometry.num_parameters;
    shape.weight_bytes = shape_geometry.num_parameters * kBytes;
    shape.kv_bytes_per_token = shape_geometry.kv_bytes_per_token;
    shape.state_bytes_per_row = shape_geometry.state_bytes_per_row;
    add_elementwise(shape, 2 * kBytes * hidden);  // the embedding's row
    const int64_t norm = 4 * kBytes * hidden;     // residual in and out, the branch in, the normed row out
    for (const LayerConfig& layer : config.layers) {
        if (layer.has_mixer()) add_elementwise(shape, norm);
        if (layer.mamba) add_mamba(shape, hidden, *layer.mamba);
        if (layer.attention) add_attention(shape, hidden, *layer.attention);
        if (!layer.mlp) continue;
        add_elementwise(shape, norm);
        add_mlp(shape, hidden, *layer.mlp);
    }
    add_elementwise(shape, norm);
    count(shape.matmuls, MatmulShape{.n = config.vocab_size, .k = hidden, .on_logits = true});
    add_elementwise(shape, 2 * 4 * int64_t{config.vocab_size}, /*on_logits=*/true);  // sampling reads binary32, twice
    return shape;
}

ModelFlops flops_of(const ModelShape& shape) {
    ModelFlops flops;
    for (const MatmulShape& matmul : shape.matmuls) {
        if (!matmul.on_logits) flops.per_token += 2.0 * static_cast<double>(matmul.n * matmul.k) * matmul.count;
    }
    for (const MambaShape& mamba : shape.mambas) {
        flops.per_token += 5.0 * static_cast<double>(mamba.scan_elements()) * mamba.count;
    }
    for (const AttentionShape& attention : shape.attentions) {
        flops.per_pair += 4.0 * attention.n_heads * attention.head_dim * attention.count;
    }
    return flops;
}

}  // namespace verbatim::tools
