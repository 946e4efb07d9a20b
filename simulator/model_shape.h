// simulator/model_shape.h: what a cost model needs to know of a model: which kernels a step runs, how often, and bytes.
//
// Shapes are those of engines on GPUs: q, k and v are one matmul, gate and up are one, and weights and activations are
// bf16. Equal kernels of several layers are one entry with a count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbatim {

// [m, k] x [k, n], m being the step's tokens.
struct MatmulShape {
    int64_t n = 0;
    int64_t k = 0;
    int32_t count = 1;       // in a step
    bool on_logits = false;  // m is the number of sequences that draw a token
    friend bool operator==(const MatmulShape&, const MatmulShape&) = default;
};

struct AttentionShape {
    int32_t n_heads = 0;
    int32_t n_kv_heads = 0;
    int32_t head_dim = 0;
    int32_t count = 1;  // layers
    friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
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
};

// Norms, gates and the like: kernels that read and write so many bytes per token.
struct ElementwiseShape {
    int64_t bytes_per_token = 0;
    int32_t count = 1;
    bool on_logits = false;
    friend bool operator==(const ElementwiseShape&, const ElementwiseShape&) = default;
};

struct ModelShape {
    std::string name;
    int32_t vocab_size = 0;
    int64_t max_positions = 0;
    int64_t num_parameters = 0;
    int64_t weight_bytes = 0;
    int64_t kv_bytes_per_token = 0;   // of all layers
    int64_t state_bytes_per_row = 0;  // of all layers
    std::vector<MatmulShape> matmuls;
    std::vector<AttentionShape> attentions;
    std::vector<MambaShape> mambas;
    std::vector<ElementwiseShape> elementwise;
    friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

}  // namespace verbatim
