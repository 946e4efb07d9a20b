#include "simulator/model_shape.h"

#include <algorithm>

#include "reference/model/state_tensors.h"

namespace verbatim {
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
    count(shape.matmuls, MatmulShape{.n = attention.q_proj_rows() + 2 * attention.kv_rows(), .k = hidden});
    count(shape.matmuls, MatmulShape{.n = hidden, .k = attention.q_rows()});
    count(shape.attentions,
          AttentionShape{
              .n_heads = attention.n_heads, .n_kv_heads = attention.n_kv_heads, .head_dim = attention.head_dim});
    // Rotary in and out, and K and V into the cache.
    add_elementwise(shape, kBytes * (2 * attention.q_rows() + 4 * attention.kv_rows()));
    if (attention.output_gate) add_elementwise(shape, 3 * kBytes * attention.q_rows());
}

// q, k, v and z are one matmul, the two gates of each value head another.
void add_delta(ModelShape& shape, int64_t hidden, const DeltaConfig& delta) {
    count(shape.matmuls, MatmulShape{.n = delta.conv_dim() + delta.value_rows(), .k = hidden});
    count(shape.matmuls, MatmulShape{.n = 2 * int64_t{delta.n_value_heads}, .k = hidden});
    count(shape.matmuls, MatmulShape{.n = hidden, .k = delta.value_rows()});
    count(shape.deltas, DeltaShape{.n_key_heads = delta.n_key_heads,
                                   .n_value_heads = delta.n_value_heads,
                                   .key_dim = delta.key_dim,
                                   .value_dim = delta.value_dim,
                                   .d_conv = delta.d_conv});
    add_elementwise(shape, 4 * kBytes * delta.key_rows());    // q and k in, their normed rows out
    add_elementwise(shape, 3 * kBytes * delta.value_rows());  // o, z in, gated norm out
}

// The router, and what carries rows to their experts and back, without the experts themselves.
void add_moe(ModelShape& shape, int64_t hidden, const MoeConfig& moe) {
    constexpr int64_t kLogitBytes = 4;
    const int32_t width = moe.row_width(static_cast<int32_t>(hidden));
    const int32_t num_up = moe.kind == MlpKind::kGatedSilu ? 2 : 1;
    count(shape.matmuls, MatmulShape{.n = moe.n_experts, .k = hidden});
    if (moe.d_latent > 0) count(shape.matmuls, MatmulShape{.n = width, .k = hidden});
    if (moe.d_latent > 0) count(shape.matmuls, MatmulShape{.n = hidden, .k = width});
    if (moe.shared_gate) count(shape.matmuls, MatmulShape{.n = 1, .k = hidden});
    count(shape.experts, ExpertsShape{.n_experts = moe.n_experts,
                                      .n_chosen = moe.n_chosen,
                                      .row_width = width,
                                      .d_ff = moe.d_ff,
                                      .num_up = num_up});
    add_elementwise(shape, kLogitBytes * moe.n_experts);                               // choosing
    add_elementwise(shape, kBytes * width * (1 + int64_t{moe.n_chosen}));              // a row to its experts
    add_elementwise(shape, kBytes * (num_up + 1) * int64_t{moe.d_ff} * moe.n_chosen);  // activation
    add_elementwise(shape, kBytes * width * (int64_t{moe.n_chosen} + 1));              // their sum
}

// Layers of the list of state tensors, whatever kinds there are. A conv's window is kept in another dtype by others.
void add_state_tensors(ModelShape& shape, const ModelConfig& config) {
    const StateTensors tensors = state_tensors(config);
    for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer) {
        StateShape state;
        KvShape kv;
        for (const StateTensor& tensor : tensors) {
            if (tensor.layer != layer) continue;
            if (tensor.per == StatePer::kToken) kv.bytes_per_token += tensor.num_bytes();
            if (tensor.per != StatePer::kSequence) continue;
            (tensor.kind == StateKind::kConv ? state.window : state.recurrent) += tensor.num_elements();
        }
        if (state != StateShape{}) count(shape.states, state);
        if (kv != KvShape{}) count(shape.kvs, kv);
    }
}

void add_mlp(ModelShape& shape, int64_t hidden, const MlpConfig& mlp) {
    const int64_t num_up = mlp.kind == MlpKind::kGatedSilu ? 2 : 1;
    count(shape.matmuls, MatmulShape{.n = num_up * mlp.d_ff, .k = hidden});
    count(shape.matmuls, MatmulShape{.n = hidden, .k = mlp.d_ff});
    add_elementwise(shape, kBytes * (num_up + 1) * mlp.d_ff);
}

// The residual, its normed row, and the widest matmul's input and output.
int64_t activation_bytes(const ModelShape& shape, int64_t hidden) {
    int64_t widest = 0;
    for (const MatmulShape& matmul : shape.matmuls) {
        if (!matmul.on_logits) widest = std::max(widest, matmul.n + matmul.k);
    }
    for (const ExpertsShape& experts : shape.experts) {
        widest = std::max(widest, int64_t{experts.n_chosen} * (experts.row_width + experts.num_up * experts.d_ff));
    }
    return kBytes * (2 * hidden + widest);
}

}  // namespace

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
    add_state_tensors(shape, config);
    add_elementwise(shape, 2 * kBytes * hidden);  // the embedding's row
    const int64_t norm = 4 * kBytes * hidden;     // residual in and out, the branch in, the normed row out
    for (const LayerConfig& layer : config.layers) {
        if (layer.has_mixer()) add_elementwise(shape, norm);
        if (layer.mamba) add_mamba(shape, hidden, *layer.mamba);
        if (layer.attention) add_attention(shape, hidden, *layer.attention);
        if (layer.delta) add_delta(shape, hidden, *layer.delta);
        if (layer.has_feed_forward()) add_elementwise(shape, norm);
        if (layer.moe) add_moe(shape, hidden, *layer.moe);
        if (layer.mlp) add_mlp(shape, hidden, *layer.mlp);
    }
    add_elementwise(shape, norm);
    count(shape.matmuls, MatmulShape{.n = config.vocab_size, .k = hidden, .on_logits = true});
    add_elementwise(shape, 2 * 4 * int64_t{config.vocab_size}, /*on_logits=*/true);  // sampling reads binary32, twice
    shape.activation_bytes_per_token = activation_bytes(shape, hidden);
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
    for (const DeltaShape& delta : shape.deltas) {
        flops.per_token += 7.0 * static_cast<double>(delta.state_elements()) * delta.count;
    }
    for (const ExpertsShape& experts : shape.experts) {
        flops.per_token += 2.0 * static_cast<double>(experts.parameters() * experts.n_chosen) * experts.count;
    }
    for (const AttentionShape& attention : shape.attentions) {
        flops.per_pair += 4.0 * attention.n_heads * attention.head_dim * attention.count;
    }
    return flops;
}

}  // namespace verbatim
