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

void add_split_elementwise(ModelShape& shape, int64_t bytes_per_token) {
    count(shape.elementwise, ElementwiseShape{.bytes_per_token = bytes_per_token, .is_split = true});
}

void add_matmul(ModelShape& shape, int64_t n, int64_t k, Split split) {
    count(shape.matmuls, MatmulShape{.n = n, .k = k, .split = split});
}

// After a matmul by rows: its results are added.
void add_all_reduce(ModelShape& shape, int64_t hidden) {
    count(shape.collectives, CollectiveShape{.bytes_per_token = kBytes * hidden});
}

void add_mamba(ModelShape& shape, int64_t hidden, const MambaConfig& mamba) {
    count(shape.matmuls,
          MatmulShape{.n = mamba.in_rows(), .k = hidden, .grouped_n = 2 * mamba.bc_rows(), .n_groups = mamba.n_groups});
    add_matmul(shape, hidden, mamba.d_inner(), Split::kRows);
    add_all_reduce(shape, hidden);
    count(shape.mambas, MambaShape{.n_heads = mamba.n_heads,
                                   .head_dim = mamba.head_dim,
                                   .d_state = mamba.d_state,
                                   .n_groups = mamba.n_groups,
                                   .d_conv = mamba.d_conv});
    add_split_elementwise(shape, 3 * kBytes * mamba.d_inner());  // y, z in, gated norm out
}

// A gated convolution of each channel over `d_conv` inputs (LFM2, arXiv 2511.23404): one matmul gives the two gates and
// the input. As a scan without a state: its conv, and the gates read and written.
void add_short_conv(ModelShape& shape, int64_t hidden, int32_t d_conv) {
    add_matmul(shape, 3 * hidden, hidden, Split::kColumns);
    add_matmul(shape, hidden, hidden, Split::kRows);
    add_all_reduce(shape, hidden);
    count(shape.mambas,
          MambaShape{.n_heads = static_cast<int32_t>(hidden), .head_dim = 1, .d_state = 0, .d_conv = d_conv});
    const StateShape window{.window = hidden * (d_conv - 1)};
    constexpr int64_t kWindowValueBytes = 4;
    count(shape.states, window);
    shape.state_bytes_per_row += kWindowValueBytes * window.window;
    shape.num_parameters += 4 * hidden * hidden + hidden * d_conv + hidden;  // and the norm before it
    shape.weight_bytes = shape.num_parameters * kBytes;
}

void add_attention(ModelShape& shape, int64_t hidden, const AttentionConfig& attention, int32_t window,
                   bool key_is_value) {
    const int64_t kv_rows = (key_is_value ? 1 : 2) * attention.kv_rows();
    count(shape.matmuls, MatmulShape{.n = attention.q_proj_rows() + kv_rows,
                                     .k = hidden,
                                     .grouped_n = kv_rows,
                                     .n_groups = attention.n_kv_heads});
    add_matmul(shape, hidden, attention.q_rows(), Split::kRows);
    add_all_reduce(shape, hidden);
    count(shape.attentions, AttentionShape{.n_heads = attention.n_heads,
                                           .n_kv_heads = attention.n_kv_heads,
                                           .head_dim = attention.head_dim,
                                           .window = window});
    // Rotary in and out, and K and V into the cache.
    add_split_elementwise(shape, kBytes * (2 * attention.q_rows() + 4 * attention.kv_rows()));
    if (attention.output_gate) add_split_elementwise(shape, 3 * kBytes * attention.q_rows());
}

// q and the latent row come from one matmul each; a head's K and V from the row, by a matmul that decodes apply to q
// and to the result instead.
void add_latent_attention(ModelShape& shape, int64_t hidden, int64_t n_heads, const LatentConfig& latent) {
    const int64_t q_rows = n_heads * (latent.content_dim + latent.rotary_dim);
    const int32_t row = latent.kv_rank + latent.rotary_dim;
    if (latent.q_rank > 0) add_matmul(shape, latent.q_rank + row, hidden, Split::kWhole);
    if (latent.q_rank == 0) add_matmul(shape, row, hidden, Split::kWhole);
    add_matmul(shape, q_rows, latent.q_rank > 0 ? latent.q_rank : hidden, Split::kColumns);
    add_matmul(shape, n_heads * (latent.content_dim + latent.value_dim), latent.kv_rank, Split::kColumns);
    add_matmul(shape, hidden, n_heads * latent.value_dim, Split::kRows);
    add_all_reduce(shape, hidden);
    count(shape.attentions,
          AttentionShape{.n_heads = static_cast<int32_t>(n_heads),
                         .n_kv_heads = 1,
                         .head_dim = row,
                         .latent = {.row = row,
                                    .decode_dims = row + latent.kv_rank,
                                    .context_dims = latent.content_dim + latent.rotary_dim + latent.value_dim}});
    count(shape.kvs, KvShape{.bytes_per_token = kBytes * row});
    add_split_elementwise(shape, 2 * kBytes * q_rows);
    add_elementwise(shape, 4 * kBytes * (row + latent.q_rank));
}

// They replace those of an attention with KV heads.
int64_t latent_parameters(int64_t hidden, int64_t n_heads, const LatentConfig& latent) {
    const int64_t q_rows = n_heads * (latent.content_dim + latent.rotary_dim);
    const int64_t of_q = latent.q_rank > 0 ? latent.q_rank * (hidden + 1 + q_rows) : hidden * q_rows;
    return of_q + hidden * (latent.kv_rank + latent.rotary_dim) + latent.kv_rank +
           latent.kv_rank * n_heads * (latent.content_dim + latent.value_dim) + n_heads * latent.value_dim * hidden;
}

// q, k, v and z are one matmul, the two gates of each value head another.
void add_delta(ModelShape& shape, int64_t hidden, const DeltaConfig& delta) {
    count(shape.matmuls, MatmulShape{.n = delta.conv_dim() + delta.value_rows(),
                                     .k = hidden,
                                     .grouped_n = 2 * delta.key_rows(),
                                     .n_groups = delta.n_key_heads});
    add_matmul(shape, 2 * int64_t{delta.n_value_heads}, hidden, Split::kColumns);
    add_matmul(shape, hidden, delta.value_rows(), Split::kRows);
    add_all_reduce(shape, hidden);
    count(shape.deltas, DeltaShape{.n_key_heads = delta.n_key_heads,
                                   .n_value_heads = delta.n_value_heads,
                                   .key_dim = delta.key_dim,
                                   .value_dim = delta.value_dim,
                                   .d_conv = delta.d_conv});
    add_split_elementwise(shape, 4 * kBytes * delta.key_rows());    // q and k in, their normed rows out
    add_split_elementwise(shape, 3 * kBytes * delta.value_rows());  // o, z in, gated norm out
}

// The router, and what carries rows to their experts and back, without the experts themselves.
void add_moe(ModelShape& shape, int64_t hidden, const MoeConfig& moe) {
    constexpr int64_t kLogitBytes = 4;
    const int32_t width = moe.row_width(static_cast<int32_t>(hidden));
    const int32_t num_up = moe.kind == MlpKind::kGatedSilu ? 2 : 1;
    add_matmul(shape, moe.n_experts, hidden, Split::kWhole);
    if (moe.d_latent > 0) add_matmul(shape, width, hidden, Split::kWhole);
    if (moe.d_latent > 0) add_matmul(shape, hidden, width, Split::kWhole);
    if (moe.shared_gate) add_matmul(shape, 1, hidden, Split::kWhole);
    count(shape.experts, ExpertsShape{.n_experts = moe.n_experts,
                                      .n_chosen = moe.n_chosen,
                                      .row_width = width,
                                      .d_ff = moe.d_ff,
                                      .num_up = num_up});
    add_elementwise(shape, kLogitBytes * moe.n_experts);                                     // choosing
    add_elementwise(shape, kBytes * width * (1 + int64_t{moe.n_chosen}));                    // a row to its experts
    add_split_elementwise(shape, kBytes * (num_up + 1) * int64_t{moe.d_ff} * moe.n_chosen);  // activation
    add_elementwise(shape, kBytes * width * (int64_t{moe.n_chosen} + 1));                    // their sum
}

// The window's channels of groups (B and C, or q and k), of d_conv - 1 inputs each.
void divide_window(const LayerConfig& layer, StateShape& state) {
    if (layer.mamba) {
        state.grouped_window = 2 * layer.mamba->bc_rows() * (layer.mamba->d_conv - 1);
        state.n_groups = layer.mamba->n_groups;
    }
    if (layer.delta) {
        state.grouped_window = 2 * layer.delta->key_rows() * (layer.delta->d_conv - 1);
        state.n_groups = layer.delta->n_key_heads;
    }
}

// Layers of the list of state tensors, whatever kinds there are. A conv's window is kept in another dtype by others.
void add_state_tensors(ModelShape& shape, const ModelConfig& config) {
    const StateTensors tensors = state_tensors(config);
    for (int32_t layer = 0; layer < static_cast<int32_t>(config.layers.size()); ++layer) {
        StateShape state;
        KvShape kv;
        for (const StateTensor& tensor : tensors) {
            if (tensor.layer != layer) continue;
            if (tensor.per == StatePer::kToken) {
                kv.bytes_per_token += tensor.num_bytes();
                kv.n_kv_heads = static_cast<int32_t>(tensor.shape.front());
            }
            if (tensor.per != StatePer::kSequence) continue;
            (tensor.kind == StateKind::kConv ? state.window : state.recurrent) += tensor.num_elements();
        }
        divide_window(config.layers[static_cast<size_t>(layer)], state);
        if (state != StateShape{}) count(shape.states, state);
        if (kv != KvShape{}) count(shape.kvs, kv);
    }
}

void add_mlp(ModelShape& shape, int64_t hidden, const MlpConfig& mlp) {
    const int64_t num_up = mlp.kind == MlpKind::kGatedSilu ? 2 : 1;
    add_matmul(shape, num_up * mlp.d_ff, hidden, Split::kColumns);
    add_matmul(shape, hidden, mlp.d_ff, Split::kRows);
    add_split_elementwise(shape, kBytes * (num_up + 1) * mlp.d_ff);
}

}  // namespace

// The residual, its normed row, and the widest matmul's input and output.
int64_t activation_bytes(const ModelShape& shape) {
    int64_t widest = 0;
    for (const MatmulShape& matmul : shape.matmuls) {
        if (!matmul.on_logits) widest = std::max(widest, matmul.n + matmul.k);
    }
    for (const ExpertsShape& experts : shape.experts) {
        widest = std::max(widest, int64_t{experts.n_chosen} * (experts.row_width + experts.num_up * experts.d_ff));
    }
    return 2 * shape.hidden_bytes + kBytes * widest;
}

namespace {

// All layers have the same attention.
void replace_attentions(ModelShape& shape, const ModelConfig& config, const LatentConfig& latent) {
    const int64_t hidden = config.hidden_size;
    shape.kvs.clear();
    for (const LayerConfig& layer : config.layers) {
        const AttentionConfig& attention = *layer.attention;
        shape.num_parameters += latent_parameters(hidden, attention.n_heads, latent) -
                                hidden * (2 * attention.q_rows() + 2 * attention.kv_rows());
        add_latent_attention(shape, hidden, attention.n_heads, latent);
    }
    shape.kv_bytes_per_token = shape.kvs.front().bytes_per_token * shape.kvs.front().count;
    shape.weight_bytes = shape.num_parameters * kBytes;
}

}  // namespace

ModelShape shape_of(const std::string& name, const ModelConfig& config, const ShapeExtras& extras) {
    const ModelGeometry shape_geometry = geometry(config);
    const int64_t hidden = config.hidden_size;
    ModelShape shape;
    shape.name = name;
    shape.vocab_size = config.vocab_size;
    shape.max_positions = config.max_position_embeddings;
    shape.num_parameters = shape_geometry.num_parameters + extras.num_parameters;
    shape.weight_bytes = shape.num_parameters * kBytes;
    shape.kv_bytes_per_token = shape_geometry.kv_bytes_per_token;
    shape.state_bytes_per_row = shape_geometry.state_bytes_per_row;
    shape.num_layers = shape_geometry.num_layers;
    shape.embedding_parameters = config.tie_word_embeddings ? 0 : config.vocab_size * hidden;
    shape.hidden_bytes = kBytes * hidden;
    add_state_tensors(shape, config);
    add_elementwise(shape, 2 * kBytes * hidden);  // the embedding's row
    add_all_reduce(shape, hidden);                // of its parts: the vocabulary is divided
    const int64_t norm = 4 * kBytes * hidden;     // residual in and out, the branch in, the normed row out
    if (extras.latent) replace_attentions(shape, config, *extras.latent);
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const LayerConfig& layer = config.layers[i];
        const int32_t short_conv = extras.short_convs.empty() ? 0 : extras.short_convs[i];
        if (layer.has_mixer() || short_conv > 0) add_elementwise(shape, norm);
        if (short_conv > 0) add_short_conv(shape, hidden, short_conv);
        if (layer.mamba) add_mamba(shape, hidden, *layer.mamba);
        if (layer.attention && !extras.latent)
            add_attention(shape, hidden, *layer.attention, extras.windows.empty() ? 0 : extras.windows[i],
                          !extras.key_is_value.empty() && extras.key_is_value[i] != 0);
        if (layer.delta) add_delta(shape, hidden, *layer.delta);
        if (layer.has_feed_forward()) add_elementwise(shape, norm);
        if (layer.moe) add_moe(shape, hidden, *layer.moe);
        if (layer.mlp) add_mlp(shape, hidden, *layer.mlp);
        if (layer.has_feed_forward()) add_all_reduce(shape, hidden);  // of MLP and experts together
    }
    add_elementwise(shape, norm);
    count(shape.matmuls, MatmulShape{.n = config.vocab_size, .k = hidden, .on_logits = true});
    add_elementwise(shape, 2 * 4 * int64_t{config.vocab_size}, /*on_logits=*/true);  // sampling reads binary32, twice
    count(shape.collectives,
          CollectiveShape{.bytes_per_token = kBytes * int64_t{config.vocab_size}, .on_logits = true});
    shape.activation_bytes_per_token = activation_bytes(shape);
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
        flops.per_pair += attention.context_pair_operations() * attention.count;
    }
    return flops;
}

}  // namespace verbatim
