// kernels/bench/cost.h: lower bounds for a step's memory traffic and arithmetic, operation by operation, from the
// calls of its forward pass.
//
// Counted are, per operation of reference/walk.h:
//   matmul      bytes: the matrix in bf16 or as quantised, once a step, and the bias; operations: 2 · N · K per row
//   attention   bytes: K and V (bf16) of all positions up to a sequence's last, once a step, and those written;
//               operations: 4 · head_dim per query head and visible position, and 4 for its share of the softmax
//   conv        bytes: weights, bias, the window read (if there was one) and written; operations: 2 · d_conv per
//               channel
//   scan        bytes: the state read (if there was one) and written; operations: 5 per element of the state and token
//   delta       likewise; operations: 7 per element of the state and token
//   router      bytes: its matrix (binary32); operations: 2 per element and row
//   experts     bytes: the matrices of the distinct experts that the step's rows chose, once; operations: 2 per element
//               of each row's chosen experts
//   embedding   bytes: the rows (bf16)
//   norms, gate, activation, rotary, residual, scaling    operations: a handful per element, an exp counted as one
// Activations are not counted as bytes: they can stay in the caches. No implementation is therefore below
//
//   limit = Σ over the operations of max(bytes / stream, operations / peak)
//
// unless its weights are smaller or are in a cache.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/machine.h"
#include "reference/walk.h"

namespace verbatim::bench {

using reference::kNumWalkOps;

// One operation, named by the walk's next observed point: storing KV counts as kAttention.
struct OpCost {
    reference::WalkOp op = reference::WalkOp::kEmbed;
    double bytes = 0;
    double operations = 0;

    [[nodiscard]] double limit_s(const MachineLimits& machine) const;
};

// The cost of one or more steps: operations in the order of the walk. Matrices of one byte per element also have a
// scale of four bytes per output.
class WalkCost {
public:
    explicit WalkCost(double bytes_per_weight = 2) : bytes_per_weight_(bytes_per_weight) {}

    // Adds a step over these parts of sequences; `num_logit_rows` of them need logits. Each part is [first_position,
    // first_position + num_rows) of a sequence. `distinct_experts` by layer with experts, in ascending order; empty:
    // the expected number under uniform choice. REQUIRES: num_logit_rows <= parts.
    void add_step(const reference::ModelConfig& config, std::span<const reference::WalkSequence> parts,
                  int64_t num_logit_rows, std::span<const int64_t> distinct_experts = {});

    [[nodiscard]] double bytes() const;
    [[nodiscard]] double operations() const;
    [[nodiscard]] double limit_s(const MachineLimits& machine) const;
    [[nodiscard]] std::array<double, kNumWalkOps> limit_by_op_s(const MachineLimits& machine) const;
    [[nodiscard]] const std::vector<OpCost>& ops() const { return ops_; }

private:
    double bytes_per_weight_;
    std::vector<OpCost> ops_;
};

}  // namespace verbatim::bench
