// reference/model/quantised_blocks.h: weights in blocks. The types of GGUF files, and the value of each of their
// weights; those of quantised safetensors files are in reference/model/scaled_blocks.h.
//
//   Q1  a weight's value is binary32, by the formula of its type in docs/numerics.md, the same on every machine
//   Q2  a row is a whole number of blocks; a block's values depend on its bytes alone
// The formulas are those of ggml's dequantize_row_* (ggml-quants.c), each operation rounded once, none contracted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace verbatim::reference {

inline constexpr uint32_t kNoGgmlType = UINT32_MAX;  // of a type that GGUF files do not have

struct BlockFormat {
    std::string_view name;    // llama.cpp's: "Q4_K"
    uint32_t ggml_type = 0;   // the number in a GGUF file, or kNoGgmlType
    int32_t num_weights = 0;  // of a block; 1: the type has no blocks
    int32_t num_bytes = 0;    // of a block
    // Writes the block's num_weights values. A value whose scale is NaN or infinite may be NaN.
    void (*dequantise)(const std::byte* block, float* out) = nullptr;
    // Writes the block that ggml's reference quantiser makes of num_weights finite values. Null: not supported.
    void (*quantise)(const float* values, std::byte* block) = nullptr;

    [[nodiscard]] bool is_dense() const { return num_weights == 1; }
    // REQUIRES: num_weights divides num_columns.
    [[nodiscard]] int64_t row_bytes(int64_t num_columns) const { return num_columns / num_weights * num_bytes; }
};

// Of GGUF files, by ascending ggml_type.
std::span<const BlockFormat> block_formats();
// Null: the type is not supported.
const BlockFormat* find_block_format(uint32_t ggml_type);
const BlockFormat* find_block_format(std::string_view name);
// "F32, F16, Q4_0, ..."
std::string block_format_names();

// Writes the values of the blocks, in order. REQUIRES: blocks holds out.size() weights exactly.
void dequantise(const BlockFormat& format, std::span<const std::byte> blocks, std::span<float> out);
// REQUIRES: format.quantise; as above.
void quantise(const BlockFormat& format, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace verbatim::reference
