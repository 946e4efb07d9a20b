// tests/support/random_blocks.h: blocks of quantised weights for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "reference/model/integer_blocks.h"
#include "reference/model/scaled_blocks.h"
#include "reference/numerics/fp8.h"

namespace verbatim::tests {

// Of GGUF's types and those of quantised checkpoints, what exact.int8 multiplies.
inline std::vector<reference::BlockFormat> integer_formats() {
    std::vector<reference::BlockFormat> formats;
    const auto add = [&](const reference::BlockFormat& format) {
        if (reference::find_integer_format(format) != nullptr) formats.push_back(format);
    };
    for (const reference::BlockFormat& format : reference::block_formats()) add(format);
    for (const reference::BlockFormat* format : reference::scaled_formats()) add(*format);
    return formats;
}

// Makes zero points of four bits, if the type has some: a loader writes no others.
inline void limit_zero_points(const reference::BlockFormat& format, std::span<std::byte> blocks) {
    if (format.name != reference::kScaledInt4Zero.name) return;
    for (size_t at = 0; at < blocks.size(); at += static_cast<size_t>(format.num_bytes))
        blocks[at + sizeof(float)] &= std::byte{15};
}

// Random bytes under scales of ordinary size.
inline std::vector<std::byte> random_blocks(const reference::BlockFormat& format, int64_t rows, int64_t cols,
                                            std::mt19937_64& random) {
    std::vector<std::byte> blocks(static_cast<size_t>(rows * format.row_bytes(cols)));
    for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
    std::vector<float> values(static_cast<size_t>(format.num_weights));
    for (size_t at = 0; at < blocks.size(); at += static_cast<size_t>(format.num_bytes)) {
        // Bytes below 64 make scales below 2.
        const auto is_ordinary = [&] {
            format.dequantise(&blocks[at], values.data());
            return std::ranges::all_of(values, [](float value) { return std::abs(value) < 1e4F; });
        };
        while (!is_ordinary())
            for (int32_t i = 0; i < format.num_bytes; ++i)
                blocks[at + static_cast<size_t>(i)] = static_cast<std::byte>(random() & 0x3F);
    }
    limit_zero_points(format, blocks);
    return blocks;
}

// FP8 of any bytes but NaN, with a scale for each row, or each of its groups.
inline std::vector<std::byte> random_fp8_blocks(reference::Fp8Sharing sharing, int64_t rows, int64_t cols,
                                                std::mt19937_64& random) {
    const reference::BlockFormat& format = reference::kScaledFp8;
    const int64_t columns = reference::fp8_columns(sharing, cols);
    std::vector<std::byte> blocks(static_cast<size_t>(rows * format.row_bytes(cols)));
    for (std::byte& byte : blocks) {
        byte = static_cast<std::byte>(random());
        if ((byte & std::byte{0x7F}) == std::byte{0x7F}) byte = std::byte{0};
    }
    float scale = 0.0F;
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t k = 0; k < cols; k += format.num_weights) {
            if (k % columns == 0) scale = 1e-3F * static_cast<float>(1 + random() % 100);
            std::memcpy(&blocks[static_cast<size_t>(row * format.row_bytes(cols) + format.row_bytes(k))], &scale,
                        sizeof(scale));
        }
    }
    return blocks;
}

}  // namespace verbatim::tests
