// simulator/sharding.h: owns the division of a model among the GPUs of one replica: tensor parallelism, expert
// parallelism and pipeline stages.
//
// The shape of one GPU replaces the model's. So memory, block and row bytes are those of one GPU, and the engine's
// scheduler decides for the replica as it does for one GPU.
//   P1  tensor parallelism divides heads, columns of MLPs and the vocabulary (Megatron-LM, arXiv 1909.08053). KV
//       heads, Mamba groups and key heads are replicated where there are more GPUs than these; norms and routers
//       always are
//   P2  with expert groups a GPU has n_experts / groups experts, each divided by tensor / groups. Tokens are on all
//       GPUs of the tensor-parallel group, so that the layer's all-reduce adds the experts' results (as SGLang's
//       --ep-size inside --tp-size). Experts are balanced: the mean over GPUs counts
//   P3  a pipeline stage has ceil(layers / stages) of the layers, of each kind of memory; the first one has the
//       embedding, the last one the head. Kernels stay those of all layers: a token passes through each
#pragma once

#include "engine/base/result.h"
#include "simulator/device.h"
#include "simulator/model_shape.h"

namespace verbatim {

// The shape of one GPU. Parts that do not divide are rounded up.
[[nodiscard]] ModelShape sharded(ModelShape model, const Parallelism& parallelism);

// Error: heads, experts or layers that cannot be divided so, or a device without the links that this takes.
[[nodiscard]] Status check_parallelism(const ModelShape& model, const Device& device, const Parallelism& parallelism);

// Of linear layers and experts, on one GPU before pipeline stages; the head is apart.
[[nodiscard]] int64_t linear_parameters(const ModelShape& model);
// Of the head's matrix, which may be the embedding.
[[nodiscard]] int64_t head_parameters(const ModelShape& model);

}  // namespace verbatim
