// simulator/model_shape.h: owns the part of a model that a cost model needs: the kernels of a step, their counts, and
// bytes.
//
// Shapes follow GPU engines: q, k and v are one matmul, gate and up are one, and activations are bf16, as are weights
// without a weight format.
// Equal kernels of several layers are one entry with a count.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reference/model/model_config.h"
#include "reference/model/stored_weights.h"

namespace verbatim {

// How tensor parallelism divides a matrix (Shoeybi et al., Megatron-LM, arXiv 1909.08053).
enum class Split : uint8_t {
    kColumns,  // n: each GPU computes a part of the output
    kRows,     // k: each GPU has a part of the input; an all-reduce adds the results
    kWhole,    // every GPU has all of it
};

// [m, k] x [k, n]; m is the number of tokens in the step.
struct MatmulShape {
    int64_t n = 0;
    int64_t k = 0;
    int32_t count = 1;       // per step
    bool on_logits = false;  // m is the number of sequences that draw a token
    Split split = Split::kColumns;
    // Of n, the columns of KV heads or groups, which are replicated where there are more GPUs than groups.
    int64_t grouped_n = 0;
    int32_t n_groups = 1;
    friend bool operator==(const MatmulShape&, const MatmulShape&) = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent row per position, of all heads. Decodes
// multiply the row itself (the absorbed form), prompts its heads' K and V.
struct LatentShape {
    int32_t row = 0;           // values per position in the cache; 0: no latent attention
    int32_t decode_dims = 0;   // per head and visible position: of the product with K, and of that with V
    int32_t context_dims = 0;  // likewise
    friend bool operator==(const LatentShape&, const LatentShape&) = default;
};

struct AttentionShape {
    int32_t n_heads = 0;
    int32_t n_kv_heads = 0;
    int32_t head_dim = 0;
    int32_t count = 1;           // layers
    int32_t window = 0;          // positions that a token sees, itself included; 0: all
    int32_t kv_value_bytes = 2;  // of K and V in the cache
    LatentShape latent = {};     // n_kv_heads is 1 and head_dim the width of a latent row
    friend bool operator==(const AttentionShape&, const AttentionShape&) = default;

    [[nodiscard]] bool is_latent() const { return latent.row > 0; }
    // Of K and V, per position.
    [[nodiscard]] int64_t position_values() const {
        return is_latent() ? latent.row : int64_t{2} * n_kv_heads * head_dim;
    }
    // Per query row and visible position: a product with K and one with V.
    [[nodiscard]] double decode_pair_operations() const {
        return 2.0 * n_heads * (is_latent() ? latent.decode_dims : 2 * head_dim);
    }
    [[nodiscard]] double context_pair_operations() const {
        return 2.0 * n_heads * (is_latent() ? latent.context_dims : 2 * head_dim);
    }
};

// A causal convolution of each channel over time.
struct ConvShape {
    int64_t channels = 0;
    int32_t d_conv = 4;
    friend bool operator==(const ConvShape&, const ConvShape&) = default;
};

struct MambaShape {
    int32_t n_heads = 0;
    int32_t head_dim = 0;
    int32_t d_state = 0;
    int32_t n_groups = 1;
    int32_t d_conv = 4;
    int32_t count = 1;  // layers
    friend bool operator==(const MambaShape&, const MambaShape&) = default;

    [[nodiscard]] int64_t d_inner() const { return int64_t{n_heads} * head_dim; }
    [[nodiscard]] int64_t conv_dim() const { return d_inner() + 2 * int64_t{n_groups} * d_state; }
    [[nodiscard]] int64_t scan_elements() const { return d_inner() * d_state; }
    [[nodiscard]] ConvShape conv() const { return {conv_dim(), d_conv}; }
};

// A gated delta net: one state [key_dim, value_dim] per value head.
struct DeltaShape {
    int32_t n_key_heads = 0;
    int32_t n_value_heads = 0;
    int32_t key_dim = 0;
    int32_t value_dim = 0;
    int32_t d_conv = 4;
    int32_t count = 1;  // layers
    friend bool operator==(const DeltaShape&, const DeltaShape&) = default;

    [[nodiscard]] int64_t value_rows() const { return int64_t{n_value_heads} * value_dim; }
    [[nodiscard]] int64_t conv_dim() const { return 2 * int64_t{n_key_heads} * key_dim + value_rows(); }
    [[nodiscard]] int64_t state_elements() const { return value_rows() * key_dim; }
    [[nodiscard]] ConvShape conv() const { return {conv_dim(), d_conv}; }
};

// The routed experts of a layer: two grouped matmuls, up (gate and up are one) and down. Router, shared expert and
// latent projections are ordinary matmuls.
struct ExpertsShape {
    int32_t n_experts = 0;
    int32_t n_chosen = 0;   // per token
    int32_t row_width = 0;  // width of an expert's input and output
    int32_t d_ff = 0;
    int32_t num_up = 1;  // 2 with a gate
    int32_t count = 1;   // layers
    friend bool operator==(const ExpertsShape&, const ExpertsShape&) = default;

    // Per expert: [row_width, num_up · d_ff] and [d_ff, row_width].
    [[nodiscard]] int64_t parameters() const { return int64_t{num_up + 1} * d_ff * row_width; }
};

// Elements of a layer's state tensors per sequence.
struct StateShape {
    int64_t recurrent = 0;       // the state of a scan or delta net: binary32 by default
    int64_t window = 0;          // a convolution's last inputs
    int32_t count = 1;           // layers
    int64_t grouped_window = 0;  // of `window`, the channels of groups or key heads
    int32_t n_groups = 1;
    friend bool operator==(const StateShape&, const StateShape&) = default;
};

// A layer's KV per token.
struct KvShape {
    int64_t bytes_per_token = 0;
    int32_t count = 1;  // layers
    int32_t n_kv_heads = 1;
    friend bool operator==(const KvShape&, const KvShape&) = default;
};

// Norms, gates and similar kernels: bytes read and written per token.
struct ElementwiseShape {
    int64_t bytes_per_token = 0;
    int32_t count = 1;
    bool on_logits = false;
    bool is_split = false;  // each GPU has a part of the row: heads, groups or columns of an MLP
    friend bool operator==(const ElementwiseShape&, const ElementwiseShape&) = default;
};

// What the GPUs of a tensor-parallel group exchange.
struct CollectiveShape {
    int64_t bytes_per_token = 0;
    int32_t count = 1;
    bool on_logits = false;  // an all-gather of the logits' parts; else an all-reduce
    friend bool operator==(const CollectiveShape&, const CollectiveShape&) = default;
};

// The GPUs of one replica: tensor · pipeline.
struct Parallelism {
    int32_t tensor = 1;    // GPUs that share every layer
    int32_t experts = 1;   // of these, groups with whole experts each; inside a group every expert is divided
    int32_t pipeline = 1;  // stages of layers
    friend bool operator==(const Parallelism&, const Parallelism&) = default;

    [[nodiscard]] int32_t num_gpus() const { return tensor * pipeline; }
};

// In what format matrices are multiplied; weights of fewer bytes may be widened to bf16 first.
enum class ProductFormat : uint8_t { kBf16, kFp8, kFp4 };

struct ModelShape {
    std::string name;
    int32_t vocab_size = 0;
    int64_t max_positions = 0;
    int64_t num_parameters = 0;
    int64_t weight_bytes = 0;
    int64_t kv_bytes_per_token = 0;                 // all layers
    int64_t state_bytes_per_row = 0;                // all layers
    double weight_value_bytes = 2;                  // of a linear layer's matrix, scales included
    double head_value_bytes = 2;                    // of the head's
    double embedding_value_bytes = 2;               // of the embedding's, where it is not the head
    ProductFormat products = ProductFormat::kBf16;  // of linear layers and experts, where the device has it
    int64_t state_value_bytes = 4;                  // of a recurrent state's elements; windows are binary32
    int64_t activation_bytes_per_token = 0;         // alive at once, at most
    int32_t num_layers = 0;
    int64_t embedding_parameters = 0;  // 0: the head is the embedding
    int64_t hidden_bytes = 0;          // of a token's residual row
    // Of a quantised checkpoint: how it stores its weights; weight_value_bytes is the mean. Empty: bf16, or a format
    // that the deployment chose.
    std::vector<reference::StoredType> stored;
    Parallelism parallelism;  // that the fields below are divided by: simulator/sharding.h
    std::vector<MatmulShape> matmuls;
    std::vector<AttentionShape> attentions;
    std::vector<MambaShape> mambas;
    std::vector<DeltaShape> deltas;
    std::vector<ExpertsShape> experts;
    std::vector<StateShape> states;  // in the order of the model's state tensors
    std::vector<KvShape> kvs;        // likewise
    std::vector<ElementwiseShape> elementwise;
    std::vector<CollectiveShape> collectives;  // with a tensor-parallel group
    friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): ranks, and dimensions of each head.
struct LatentConfig {
    int32_t q_rank = 0;  // 0: q is one matmul
    int32_t kv_rank = 0;
    int32_t content_dim = 0;  // of q and k, without position
    int32_t rotary_dim = 0;   // of q, and of the k that all heads share
    int32_t value_dim = 0;
};

// What models have that reference::ModelConfig does not: models that are planned for, and not run.
struct ShapeExtras {
    std::vector<int32_t> windows;        // per layer, of its attention; 0: none; empty: none at all
    std::optional<LatentConfig> latent;  // of all layers' attention, instead of the config's KV heads
    std::vector<uint8_t> key_is_value;   // per layer: one projection gives both (Gemma 4); empty: none
    std::vector<int32_t> short_convs;    // per layer: inputs of its gated convolution (LFM2); 0: none; empty: none
    int64_t num_parameters = 0;          // beyond those of the config: biases, sinks, norms
};

// A model's config as the cost model sees it. No weights are read.
ModelShape shape_of(const std::string& name, const reference::ModelConfig& config, const ShapeExtras& extras = {});

// Of a token, alive at once: what a step's workspace grows by.
[[nodiscard]] int64_t activation_bytes(const ModelShape& shape);

// Operations per token of everything but attention, and per token and position before it of attention.
struct ModelFlops {
    double per_token = 0;
    double per_pair = 0;
};
ModelFlops flops_of(const ModelShape& shape);

}  // namespace verbatim
