// reference/forward_pass.h: owns the list of operations that makes a forward pass: what walk() calls, what a record's
// sums have places for, what packing, pricing and capturing look at.
//
//   embed                   tokens -> residual
//
//   a model that reads hidden rows (ModelConfig::reads_hidden):
//     norm (input embedding)  residual -> normed
//     matmul (input embedding) normed -> branch
//     hidden                rows that are handed in -> residual
//     norm (input hidden)   residual -> normed
//     matmul (input hidden) normed -> residual
//     add_branch            branch -> residual
//
//   per layer with mixers:
//     norm (mixer)          residual -> normed
//     Mamba:
//       matmul (in_proj)    normed -> projected
//       scale               z, x, B, C, dt of projected, each by its multiplier
//       conv                projected -> conv, window
//       scan                conv, projected -> mixed, state
//       check_state
//       gated_norm          projected, mixed -> mixed
//       matmul (out_proj)   mixed -> branch
//       add_branch          branch -> residual
//     delta net:
//       matmul (in_proj)    normed -> projected
//       matmul (z, b, a)    normed -> z, b, a
//       delta_conv          projected -> conv, window
//       delta_gates         b, a
//       l2_norm             conv's q and k
//       delta_update        conv, b, a -> mixed, state
//       check_state
//       delta_norm          z, mixed -> mixed
//       matmul (out_proj)   mixed -> branch
//       add_branch          branch -> residual
//     attention:
//       matmul (q, k, v)    normed -> q, k, v; with an output gate q_gate, k, v
//       scale               k
//       head_norm           q (with an output gate q_gate -> q), k
//       rope                q, k
//       store_kv            k, v -> KV
//       attention           q, KV -> mixed
//       output_gate         q_gate, mixed -> mixed
//       matmul (o)          mixed -> branch
//       add_branch          branch -> residual
//
//   per layer with an MLP, experts, or both:
//     norm (mlp)            residual -> normed
//     experts:
//       route               normed -> router
//       choose              router -> chosen
//       matmul (latent_in)  normed -> latent              only with a latent size
//       experts             normed or latent, chosen -> branch, routed with a shared expert, latent_sum with a latent
//       matmul (latent_out) latent_sum -> branch, with a shared expert routed
//     MLP:
//       matmul (gate, up)   normed -> gate, up
//       activation          gate, up -> up
//       matmul (down)       up -> branch
//     both:
//       matmul (shared_gate) normed -> shared_gate        only with a gate
//       add_routed          routed, shared_gate -> branch
//     add_branch            branch -> residual
//
//   for the rows whose logits are requested, if there are any:
//     norm (final)          residual -> head
//     matmul (lm_head)      head -> logits
//     scale_logits
//     check_logits
//
// A scale by 1 is left out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reference/walk.h"

namespace verbatim::reference {

// One operation with its place in the model and its parameters; those of its layer are in the config.
struct OpCall {
    WalkOp op = WalkOp::kEmbed;
    int32_t layer = -1;             // -1: the embedding; number of layers: final norm and head
    Buffer in = Buffer::kResidual;  // of kMatmul and kExperts
    Buffer out = Buffer::kResidual;
    Columns columns;  // of kMatmul and kExperts: those read; of kScale: those scaled
    Matrix matrix = Matrix::kInProj;
    Norm norm = Norm::kMixer;
    // kEmbed: of the rows; kMatmul: of the input; kAttention: of the products; kAddBranch: of the branch; kLogits
    float multiplier = 1;
    float second = 1;  // kAddBranch: of the residual; kLogits: the divisor
    std::array<WalkPoint, 2> points;
    size_t num_points = 0;

    [[nodiscard]] std::span<const WalkPoint> written() const { return std::span(points).first(num_points); }
    [[nodiscard]] MatrixId matrix_id() const { return {layer, matrix}; }
    // Its rows are those whose logits are requested.
    [[nodiscard]] bool is_of_head(const ModelConfig& config) const { return layer == std::ssize(config.layers); }
};

// In the walk's order, with the head. REQUIRES: validate(config) is empty.
std::vector<OpCall> forward_pass(const ModelConfig& config);

// Calls the backend's method; nothing for kLayer.
void call(const ModelConfig& config, const OpCall& op, WalkBackend& backend);

// Every matmul of a forward pass in the walk's order, those of every expert by id: the matrices that a backend packs.
std::vector<MatrixId> matrices_of(const ModelConfig& config);

}  // namespace verbatim::reference
