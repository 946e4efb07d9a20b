// tests/reference/loader/packed_integers.h: integers of four bits packed as GPTQ and AWQ pack them: a matrix, and a
// whole checkpoint, for tests of loading and of executors.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/numerics/half.h"
#include "tests/reference/loader/quantised_matrix.h"

namespace verbatim::reference {

// A matrix's integers, zero points and scales, and what they stand for.
struct PlainIntegers {
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t group = 64;
    std::vector<int32_t> order = {};  // the group of each column; empty: neighbours
    std::vector<int32_t> quants;      // [rows, cols], from 0 to 15
    std::vector<int32_t> zeros;       // [rows, groups]
    std::vector<uint16_t> scales;     // [rows, groups], fp16

    [[nodiscard]] int64_t groups() const { return cols / group; }
    [[nodiscard]] int64_t group_of(int64_t k) const {
        return order.empty() ? k / group : order[static_cast<size_t>(k)];
    }
    [[nodiscard]] float value(int64_t r, int64_t k) const {
        const auto block = static_cast<size_t>(r * groups() + group_of(k));
        return std::bit_cast<float>(widen_half(scales[block])) *
               static_cast<float>(quants[static_cast<size_t>(r * cols + k)] - zeros[block]);
    }
};

inline PlainIntegers draw_plain(const MatrixView& like, std::mt19937& random, bool symmetric, int64_t group = 64) {
    PlainIntegers plain{.rows = like.rows, .cols = like.cols, .group = group};
    for (int64_t i = 0; i < plain.rows * plain.cols; ++i) plain.quants.push_back(static_cast<int32_t>(random() % 16));
    for (int64_t i = 0; i < plain.rows * plain.groups(); ++i) {
        plain.zeros.push_back(symmetric ? 8 : 1 + static_cast<int32_t>(random() % 15));
        plain.scales.push_back(static_cast<uint16_t>(0x1C00 + random() % 0x800));  // about 1/256
    }
    return plain;
}

// As AutoGPTQ packs: eight neighbouring columns in a word of qweight, eight neighbouring rows in one of qzeros.
inline FileTensors pack_gptq(const std::string& base, const PlainIntegers& plain, int32_t stored_less) {
    std::vector<uint32_t> words(static_cast<size_t>(plain.cols / 8 * plain.rows));
    std::vector<uint32_t> zeros(static_cast<size_t>(plain.groups() * plain.rows / 8));
    std::vector<uint16_t> scales(static_cast<size_t>(plain.groups() * plain.rows));
    std::vector<int32_t> order;
    for (int64_t r = 0; r < plain.rows; ++r) {
        for (int64_t k = 0; k < plain.cols; ++k)
            words[static_cast<size_t>(k / 8 * plain.rows + r)] |=
                static_cast<uint32_t>(plain.quants[static_cast<size_t>(r * plain.cols + k)]) << (k % 8 * 4);
        for (int64_t g = 0; g < plain.groups(); ++g) {
            const auto block = static_cast<size_t>(r * plain.groups() + g);
            zeros[static_cast<size_t>(g * (plain.rows / 8) + r / 8)] |=
                static_cast<uint32_t>(plain.zeros[block] - stored_less) << (r % 8 * 4);
            scales[static_cast<size_t>(g * plain.rows + r)] = plain.scales[block];
        }
    }
    for (int64_t k = 0; k < plain.cols; ++k) order.push_back(static_cast<int32_t>(plain.group_of(k)));
    return {tensor_of(base + ".qweight", TensorDtype::kI32, {plain.cols / 8, plain.rows}, words),
            tensor_of(base + ".qzeros", TensorDtype::kI32, {plain.groups(), plain.rows / 8}, zeros),
            tensor_of(base + ".scales", TensorDtype::kF16, {plain.groups(), plain.rows}, scales),
            tensor_of(base + ".g_idx", TensorDtype::kI32, {plain.cols}, order)};
}

// As AutoAWQ packs: eight neighbouring rows in a word, in the order 0, 2, 4, 6, 1, 3, 5, 7.
inline FileTensors pack_awq(const std::string& base, const PlainIntegers& plain) {
    constexpr std::array<int64_t, 8> kOrder = {0, 2, 4, 6, 1, 3, 5, 7};
    std::vector<uint32_t> words(static_cast<size_t>(plain.cols * plain.rows / 8));
    std::vector<uint32_t> zeros(static_cast<size_t>(plain.groups() * plain.rows / 8));
    std::vector<uint16_t> scales(static_cast<size_t>(plain.groups() * plain.rows));
    for (int64_t octet = 0; octet < plain.rows / 8; ++octet) {
        for (int64_t place = 0; place < 8; ++place) {
            const int64_t r = octet * 8 + kOrder[static_cast<size_t>(place)];
            for (int64_t k = 0; k < plain.cols; ++k)
                words[static_cast<size_t>(k * (plain.rows / 8) + octet)] |=
                    static_cast<uint32_t>(plain.quants[static_cast<size_t>(r * plain.cols + k)]) << (place * 4);
            for (int64_t g = 0; g < plain.groups(); ++g) {
                const auto block = static_cast<size_t>(r * plain.groups() + g);
                zeros[static_cast<size_t>(g * (plain.rows / 8) + octet)] |= static_cast<uint32_t>(plain.zeros[block])
                                                                            << (place * 4);
                scales[static_cast<size_t>(g * plain.rows + r)] = plain.scales[block];
            }
        }
    }
    return {tensor_of(base + ".qweight", TensorDtype::kI32, {plain.cols, plain.rows / 8}, words),
            tensor_of(base + ".qzeros", TensorDtype::kI32, {plain.groups(), plain.rows / 8}, zeros),
            tensor_of(base + ".scales", TensorDtype::kF16, {plain.groups(), plain.rows}, scales)};
}

// How a checkpoint's linear layers are packed: each group of kGroup columns has a scale and a zero point, which is 8 if
// `symmetric`. `ordered`: neighbouring columns are of different groups (act-order, of GPTQ alone).
struct PackedForm {
    static constexpr int64_t kGroup = 32;
    bool awq = false;
    bool symmetric = false;
    bool ordered = false;

    [[nodiscard]] Json quantisation() const {
        if (awq) return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", kGroup}, {"version", "gemm"}};
        return {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", kGroup}, {"desc_act", ordered}};
    }
};

// The nearest integers of a matrix [rows, cols] in BF16, each group between its least and its greatest weight.
inline PlainIntegers to_integers(const FileTensor& matrix, const PackedForm& form) {
    PlainIntegers plain{.rows = matrix.layout.shape[0], .cols = matrix.layout.shape[1], .group = PackedForm::kGroup};
    for (int64_t k = 0; form.ordered && k < plain.cols; ++k)
        plain.order.push_back(static_cast<int32_t>(k * 7 % plain.groups()));
    std::vector<float> least(static_cast<size_t>(plain.rows * plain.groups()));
    std::vector<float> greatest(least.size());
    const auto visit = [&](const auto& take) {
        for (int64_t r = 0; r < plain.rows; ++r)
            for (int64_t k = 0; k < plain.cols; ++k)
                take(static_cast<size_t>(r * plain.groups() + plain.group_of(k)),
                     bf16_to_float(element<uint16_t>(matrix, r * plain.cols + k)));
    };
    visit([&](size_t block, float value) {
        least[block] = std::min(least[block], value);
        greatest[block] = std::max(greatest[block], value);
    });
    for (size_t block = 0; block < least.size(); ++block) {
        const float extent =
            form.symmetric ? 2.0F * std::max(-least[block], greatest[block]) : greatest[block] - least[block];
        const uint16_t scale = round_to_half(std::max(extent, 1e-3F) / 15.0F);
        const float zero = std::nearbyint(-least[block] / std::bit_cast<float>(widen_half(scale)));
        plain.scales.push_back(scale);
        plain.zeros.push_back(form.symmetric ? 8 : std::clamp(static_cast<int32_t>(zero), 1, 15));
    }
    visit([&](size_t block, float value) {
        const float quant = std::nearbyint(value / std::bit_cast<float>(widen_half(plain.scales[block])));
        plain.quants.push_back(std::clamp(static_cast<int32_t>(quant) + plain.zeros[block], 0, 15));
    });
    return plain;
}

// Packs the linear layers of the checkpoint in `folder` that are whole words and groups.
inline void pack_checkpoint(const std::filesystem::path& folder, const PackedForm& form) {
    FileTensors packed;
    for (FileTensor& tensor : read_tensors(read_file(folder / "model.safetensors"))) {
        const auto& [name, dtype, shape] = tensor.layout;
        const bool is_linear = shape.size() == 2 && name.starts_with("model.layers.") && name.ends_with(".weight");
        if (!is_linear || shape[0] % 8 != 0 || shape[1] % PackedForm::kGroup != 0) {
            packed.push_back(std::move(tensor));
            continue;
        }
        const std::string base = name.substr(0, name.rfind('.'));
        const PlainIntegers plain = to_integers(tensor, form);
        for (FileTensor& part : form.awq ? pack_awq(base, plain) : pack_gptq(base, plain, 1))
            packed.push_back(std::move(part));
    }
    Json config = Json::parse(read_file(folder / "config.json"));
    config["quantization_config"] = form.quantisation();
    std::ofstream(folder / "config.json") << config;
    std::ofstream(folder / "model.safetensors", std::ios::binary) << write_tensors(packed);
}

}  // namespace verbatim::reference
