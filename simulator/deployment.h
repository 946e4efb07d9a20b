// simulator/deployment.h: owns what a deployment changes of a model's shape: the number formats of states and weights.
#pragma once

#include <cstdint>

#include "simulator/model_shape.h"

namespace verbatim {

// Recurrent states of `value_bytes` (4 or 2) per element: bytes per row, and bytes that every step reads and writes.
[[nodiscard]] ModelShape with_state_values(ModelShape model, int64_t value_bytes);

// A checkpoint's own formats: bytes in memory, and bytes that every matmul reads, in the mean over all linear layers
// and experts; the head's apart. Weights alone are quantised: products run at the peak of bf16.
[[nodiscard]] ModelShape with_stored_weights(ModelShape model, const reference::StoredWeights& stored);

// How the matrices of linear layers and experts are stored. Embedding, head and vectors stay bf16.
enum class WeightFormat : uint8_t {
    kBf16,   // or as a quantised checkpoint has them
    kFp8,    // one byte; a scale for each 128 x 128 weights
    kInt8,   // one byte; a scale for each row
    kInt4,   // half a byte; a bf16 scale for each 128 weights of a row
    kMxfp4,  // half a byte; a scale byte for each 32 weights (OCP Microscaling Formats 1.0)
    kNvfp4,  // half a byte; an FP8 scale for each 16 weights (NVIDIA Blackwell)
};

// How much faster and slower kernels were than their prices: the tenth and the ninetieth percentile of simulated over
// published throughput, of FP8 runs and of FP4 runs (docs/published-runs.md). Other formats of 8 and of 4 bits have
// those of FP8 and FP4: no run of theirs was found.
struct FormatError {
    double fast = 1;
    double slow = 1;
};
[[nodiscard]] FormatError format_error(WeightFormat format);

// Matrices of this format: bytes in memory, and bytes that every matmul reads. With fp8 and nvfp4 activations have the
// format too, and products run at the device's peak for it, where it has one (FP8 since Hopper, FP4 since Blackwell: as
// TensorRT-LLM's and vLLM's W8A8 and NVFP4 kernels). Elsewhere, and with the other formats, weights alone are quantised
// (as by Marlin's kernels): products run at the peak of bf16.
[[nodiscard]] ModelShape with_weight_format(ModelShape model, WeightFormat format);

// K and V of `value_bytes` (2 or 1) per element: bytes per token, and bytes that attention reads. One scale per layer:
// no bytes.
[[nodiscard]] ModelShape with_kv_values(ModelShape model, int32_t value_bytes);

}  // namespace verbatim
