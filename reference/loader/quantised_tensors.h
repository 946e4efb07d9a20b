// reference/loader/quantised_tensors.h: a quantised matrix of a safetensors checkpoint: its tensors, and the blocks
// that they become (reference/model/scaled_blocks.h).
//
//   method              tensors in the place of NAME.weight
//   fp8                 NAME.weight in F8_E4M3, NAME.weight_scale_inv or weight_scale
//   compressed-tensors  NAME.weight in I8 or F8_E4M3, NAME.weight_scale; or in 4 or 8 bits NAME.weight_packed,
//                       weight_scale, weight_shape, and weight_zero_point if it is not symmetric
//   gptq, awq           NAME.qweight, NAME.qzeros, NAME.scales; of gptq also NAME.g_idx
//   modelopt            NAME.weight in F8_E4M3, NAME.weight_scale; or in float4 in U8, weight_scale and weight_scale_2
// FP8 weights may have NAME.input_scale, or activation_scale, the static scale of their activations. Scales of the KV
// cache are left aside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "reference/loader/quantisation_config.h"
#include "reference/loader/safetensors.h"
#include "reference/model/weight_storage.h"
#include "reference/model/weights.h"
#include "reference/worker_pool.h"

namespace verbatim::reference {

using TensorsByName = std::map<std::string, TensorEntry, std::less<>>;

// Pointers are null where the file lacks the tensor.
struct QuantisedTensors {
    const TensorEntry* quants = nullptr;
    const TensorEntry* scales = nullptr;
    const TensorEntry* zeros = nullptr;
    const TensorEntry* shape = nullptr;
    const TensorEntry* order = nullptr;         // g_idx: the group of each column
    const TensorEntry* global_scale = nullptr;  // of a matrix in nvfp4
    const TensorEntry* input_scale = nullptr;   // of activations
    std::vector<std::string> names;             // of all that belong to the matrix, read or not
};

// Of the matrix `weight`, a name that ends in ".weight". Empty: the matrix is not quantised.
std::optional<QuantisedTensors> find_quantised(const QuantisationConfig& config, const TensorsByName& tensors,
                                               std::string_view weight);

// The static scale of a matrix's activations. Errors, with the tensor's name: it is missing, no single number of BF16,
// F16 or F32, or not positive and finite.
Result<float> static_scale_of(const QuantisedTensors& tensors, std::string_view weight);

// Whether `tensor` is a scale of the KV cache, which modelopt's checkpoints may have.
bool is_of_kv_cache(const QuantisationConfig& config, std::string_view tensor);

// Errors of a matrix's tensors, with their names: another dtype or shape; a weight_shape (the rows and columns before
// packing) that is not that of the matrix.
Status expect_shape(const TensorEntry& got, TensorDtype dtype, const std::vector<int64_t>& shape);
Status check_stated_shape(const TensorEntry& stated, int64_t rows, int64_t cols);

// The matrix [rows, cols] of blocks that `storage` owns; `write_row` fills each row's bytes, on several threads.
MatrixView make_blocks(const BlockFormat& format, int64_t rows, int64_t cols, WorkerPool& pool, WeightStorage& storage,
                       const std::function<void(int64_t row, std::byte* out)>& write_row);

// The matrix [rows, cols] in blocks that `storage` owns. Errors, each with the tensor's name: a tensor is missing, or
// its dtype or shape is not that of the matrix; a dtype of weights that the recipe does not name; columns that are no
// whole blocks of 32; 8 bits with zero points; columns in another order than their groups.
Result<MatrixView> to_blocks(const QuantisationConfig& config, const QuantisedTensors& tensors, std::string_view weight,
                             int64_t rows, int64_t cols, WorkerPool& pool, WeightStorage& storage);

}  // namespace verbatim::reference
