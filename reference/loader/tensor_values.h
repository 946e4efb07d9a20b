// reference/loader/tensor_values.h: converts a checkpoint's numbers for ModelWeights (NUMERICS N2).
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/result.h"
#include "reference/loader/safetensors.h"
#include "reference/model/weights.h"
#include "reference/worker_pool.h"

namespace verbatim::reference {

// True if the tensor's bytes can be read in place as bf16.
bool is_aligned_bf16(const TensorEntry& tensor);
// True if W2 of weights.h holds for the stored values. REQUIRES: is_aligned_bf16.
bool is_canonical(const TensorEntry& tensor, WorkerPool& pool);

// BF16, F16 or F32.
bool is_convertible(TensorDtype dtype);
// REQUIRES: is_convertible(tensor.dtype); destination.size() == num_elements. Counts the changes in `report`.
void convert_to_bf16(const TensorEntry& tensor, std::span<uint16_t> destination, LoadReport& report);
void convert_to_float(const TensorEntry& tensor, std::span<float> destination);

}  // namespace verbatim::reference
