#include "reference/loader/fp4_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "reference/model/block_bytes.h"
#include "reference/model/scaled_blocks.h"

namespace verbatim::reference {
namespace {

constexpr int64_t kHalfBlock = kScaledWeights / 2;

// Pairs of neighbouring weights, the even one in the low nibble.
struct Fp4Source {
    const std::byte* quants = nullptr;  // [rows, cols / 2]
    const std::byte* scales = nullptr;  // [rows, cols / group]
    float global = 1;                   // divides the scales, or multiplies them
    bool multiplies = false;
    int64_t cols = 0;
};

// Two scales in binary32, then the pairs as they are.
void write_nvfp4_row(const Fp4Source& source, int64_t row, std::byte* out) {
    for (int64_t column = 0; column < source.cols; column += kScaledWeights, out += kScaledFp4.num_bytes) {
        for (int64_t half = 0; half < 2; ++half) {
            const uint8_t stored = byte_at(source.scales, (row * source.cols + column) / kHalfBlock + half);
            const float scale =
                source.multiplies ? e4m3_value(stored) * source.global : e4m3_value(stored) / source.global;
            std::memcpy(out + half * static_cast<int64_t>(sizeof(scale)), &scale, sizeof(scale));
        }
        std::memcpy(out + 2 * sizeof(float), source.quants + (row * source.cols + column) / 2, kHalfBlock);
    }
}

// As GGUF's MXFP4: weight j in the low nibble of byte j, weight j + 16 in the high one.
void write_mxfp4_row(const Fp4Source& source, int64_t row, std::byte* out) {
    const int64_t block_bytes = find_block_format("MXFP4")->num_bytes;
    for (int64_t column = 0; column < source.cols; column += kScaledWeights, out += block_bytes) {
        const int64_t first = row * source.cols + column;
        out[0] = source.scales[first / kScaledWeights];
        const auto nibble = [&](int64_t i) { return byte_at(source.quants, (first + i) / 2) >> (i % 2 * 4) & 15; };
        for (int64_t j = 0; j < kHalfBlock; ++j)
            out[1 + j] = static_cast<std::byte>(nibble(j) | nibble(j + kHalfBlock) << 4);
    }
}

Result<float> read_global(const QuantisedTensors& tensors, std::string_view weight, bool is_modelopt) {
    const TensorEntry* const stored = tensors.global_scale;
    if (stored == nullptr)
        return error("{}: its {} is missing", weight, is_modelopt ? "weight_scale_2" : "weight_global_scale");
    const bool is_scalar = is_modelopt && stored->shape.empty();
    RETURN_IF_ERROR(
        expect_shape(*stored, TensorDtype::kF32, is_scalar ? std::vector<int64_t>{} : std::vector{int64_t{1}}));
    const auto global = value_at<float>(stored->bytes.data(), 0);
    if (global > 0 && std::isfinite(global)) return global;
    return error("{}: {}, wanted a positive number", stored->name, global);
}

}  // namespace

bool is_fp4(const QuantisedTensors& tensors) {
    return tensors.quants != nullptr && tensors.quants->dtype == TensorDtype::kU8;
}

Result<MatrixView> fp4_to_blocks(const QuantisationConfig& config, const QuantisedTensors& tensors,
                                 std::string_view weight, int64_t rows, int64_t cols, WorkerPool& pool,
                                 WeightStorage& storage) {
    if (!config.has_float4)
        return error("{}: pairs of 4 bits, but quantization_config names no weights of type float in 4 bits", weight);
    const bool is_mxfp4 = config.block_columns == kScaledWeights;
    if (!is_mxfp4 && config.block_columns != kHalfBlock)
        return error("{}: float4 in groups of {}, wanted 16 or 32", weight, config.block_columns);
    RETURN_IF_ERROR(expect_shape(*tensors.quants, TensorDtype::kU8, {rows, cols / 2}));
    if (tensors.shape != nullptr) RETURN_IF_ERROR(check_stated_shape(*tensors.shape, rows, cols));
    RETURN_IF_ERROR(expect_shape(*tensors.scales, is_mxfp4 ? TensorDtype::kU8 : TensorDtype::kF8E4M3,
                                 {rows, cols / config.block_columns}));
    if (tensors.zeros != nullptr) return error("{}: float4 with zero points: not supported", tensors.zeros->name);
    if (tensors.order != nullptr) return error("{}: float4 in an order of columns: not supported", tensors.order->name);
    Fp4Source source{.quants = tensors.quants->bytes.data(), .scales = tensors.scales->bytes.data(), .cols = cols};
    if (!is_mxfp4) {
        source.multiplies = config.method == QuantMethod::kModelOpt;
        ASSIGN_OR_RETURN(source.global, read_global(tensors, weight, source.multiplies));
    } else if (std::ranges::count(tensors.scales->bytes, std::byte{255}) > 0) {
        return error("{}: a scale is NaN", tensors.scales->name);
    }
    const BlockFormat& format = is_mxfp4 ? *find_block_format("MXFP4") : kScaledFp4;
    return make_blocks(format, rows, cols, pool, storage, [&](int64_t row, std::byte* out) {
        (is_mxfp4 ? write_mxfp4_row : write_nvfp4_row)(source, row, out);
    });
}

}  // namespace verbatim::reference
