// tests/kernels/cuda/block_case.h: operations over quantised weights on a device, compared with reference/ops/quantised
// bit by bit.
#pragma once

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "kernels/cuda/pack_blocks.h"
#include "reference/model/scaled_blocks.h"
#include "reference/ops/fp8_matmul.h"
#include "reference/ops/int8_matmul.h"
#include "reference/ops/quantised.h"
#include "tests/kernels/cuda/op_cases.h"
#include "tests/support/random_blocks.h"

namespace verbatim::cuda {

// Every type that the kernels take.
inline std::vector<const reference::BlockFormat*> device_formats() {
    std::vector<const reference::BlockFormat*> all;
    for (const reference::BlockFormat& format : reference::block_formats())
        if (find_weight_format(format)) all.push_back(&format);
    for (const reference::BlockFormat* format : reference::scaled_formats()) all.push_back(format);
    all.push_back(&reference::kScaledFp4);
    all.push_back(&reference::kOrderedIntegers);
    return all;
}

// 277 rows of `width` values, each times another power of two, from 2^-149 to 2^127.
inline std::vector<float> draw_every_magnitude(int64_t width) {
    std::vector<float> values;
    for (int exponent = -149; exponent < 128; ++exponent) {
        for (const float value : draw_values(width, static_cast<uint64_t>(exponent + 200)))
            values.push_back(std::ldexp(value, exponent));
    }
    return values;
}

// What an FP8 checkpoint's recipe says: which activations share a scale, and how many outputs and columns share one of
// weights.
struct Fp8Recipe {
    reference::Fp8Sharing activations = reference::Fp8Sharing::kRow;
    int64_t scale_outputs = 1;
    int64_t scale_columns = int64_t{1} << 32;
    float static_scale = 0.0F;  // of kRow, and of the first expert; 0: dynamic

    // Of any numbers but NaN.
    [[nodiscard]] std::vector<std::byte> blocks(int64_t num_outputs, int64_t num_k, std::mt19937_64& random) const {
        std::vector<std::byte> all = tests::random_fp8_blocks(activations, num_outputs, num_k, random);
        const auto place = [&](int64_t n, int64_t k) {
            return all.data() + n * reference::kScaledFp8.row_bytes(num_k) + reference::kScaledFp8.row_bytes(k);
        };
        for (int64_t n = 0; n < num_outputs; ++n) {
            for (int64_t k = 0; k < num_k; k += reference::kScaledWeights)
                std::memcpy(place(n, k), place(n - n % scale_outputs, k - k % scale_columns), sizeof(float));
        }
        return all;
    }
};

// Matrices of one shape and type, with random bytes, in host memory and on a device.
class BlockMatrices {
public:
    // In FP8, with a recipe, if there is one.
    BlockMatrices(Device& device, const reference::BlockFormat& format, int64_t count, int64_t num_outputs,
                  int64_t num_k, uint64_t seed = 1, const std::optional<Fp8Recipe>& recipe = {})
        : format_(format),
          num_outputs_(num_outputs),
          num_k_(num_k),
          activations_(recipe ? recipe->activations : reference::Fp8Sharing::kNone),
          static_scale_(recipe ? recipe->static_scale : 0.0F) {
        std::mt19937_64 random(seed);
        reference::WorkerPool threads(1);
        std::vector<uint32_t> all;
        for (int64_t i = 0; i < count; ++i) {
            blocks_.push_back(recipe ? recipe->blocks(num_outputs, num_k, random)
                                     : tests::random_blocks(format, num_outputs, num_k, random));
            const auto words = pack_blocks(host(i), threads);
            EXPECT_EQ(std::ssize(words), block_words(*find_weight_format(format), num_outputs, num_k));
            all.insert(all.end(), words.begin(), words.end());
        }
        words_ = on_device(device, all);
    }
    [[nodiscard]] reference::MatrixView host(int64_t i) const {
        return {nullptr,      num_outputs_,   num_k_, &format_, blocks_[static_cast<size_t>(i)].data(),
                activations_, static_scale(i)};
    }
    [[nodiscard]] float static_scale(int64_t i) const { return static_scale_ * static_cast<float>(i + 1); }
    // To be multiplied in exact; with `inputs`, by rows in that form.
    [[nodiscard]] DeviceMatrix view(const float* bias = nullptr, RowForm inputs = RowForm::kPairs) const {
        return {words_.data(), bias, num_outputs_, num_k_, *find_weight_format(format_), inputs};
    }

private:
    const reference::BlockFormat& format_;
    int64_t num_outputs_, num_k_;
    reference::Fp8Sharing activations_;
    float static_scale_;
    std::vector<std::vector<std::byte>> blocks_;
    DeviceArray<uint32_t> words_;
};

// K of so many chunks of 256, and of so many more units of 32 where the type allows them.
inline int64_t columns_of(const reference::BlockFormat& format, int64_t records, int64_t units) {
    return records * 256 + (format.num_weights == 32 ? units * 32 : units > 0 ? 256 : 0);
}

inline bool multiplies_blocks_as_defined(Device& device, const reference::BlockFormat& format,
                                         const MatmulShape& shape) {
    const BlockMatrices matrix(device, format, 1, shape.num_outputs, shape.num_k);
    return has_matmul_bits(
        device, shape, Values::kNormal, [&](const float* bias) { return matrix.view(bias); }, multiply_rounded(device),
        [&](auto x, const float* bias, float multiplier, auto out) {
            reference::quantised_matmul(
                {.x = x, .weight = matrix.host(0), .bias = bias, .in_multiplier = multiplier, .out = out});
        });
}

// A matmul with inputs in the matrix's form, for has_matmul_bits. REQUIRES: not pairs.
inline auto multiply_quantised(Device& device, float static_scale = 0.0F) {
    return [&device, static_scale](Floats x, float multiplier, const DeviceMatrix& matrix, Floats out) {
        const DeviceArray<uint32_t> rows(device, x.num_rows * row_words(matrix.inputs, x.width));
        device.quantise_rows(x, {multiplier, static_scale}, matrix.inputs, rows.data());
        device.matmul(rows.data(), matrix, out);
    };
}

// REQUIRES: the type has integers.
inline RowForm int8_form(const reference::BlockFormat& format) {
    return row_form(int8_sharing(*find_weight_format(format)));
}

// Of exact.int8. REQUIRES: the type has integers.
inline bool multiplies_integers_as_defined(Device& device, const reference::BlockFormat& format,
                                           const MatmulShape& shape) {
    const BlockMatrices matrix(device, format, 1, shape.num_outputs, shape.num_k);
    return has_matmul_bits(
        device, shape, Values::kNormal, [&](const float* bias) { return matrix.view(bias, int8_form(format)); },
        multiply_quantised(device),
        [&](auto x, const float* bias, float multiplier, auto out) {
            reference::int8_matmul(
                {.x = x, .weight = matrix.host(0), .bias = bias, .in_multiplier = multiplier, .out = out});
        });
}

// Every weight of every row, so that it also compares the packing.
inline bool looks_up_blocks_as_defined(Device& device, const reference::BlockFormat& format, int64_t vocab_size,
                                       int64_t width) {
    const BlockMatrices table(device, format, 1, vocab_size, width);
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < vocab_size; ++i) tokens.push_back(static_cast<int32_t>(vocab_size - 1 - i));
    const auto device_tokens = on_device(device, tokens);
    const DeviceArray<float> out(device, vocab_size * width);
    DeviceBatch batch;
    batch.tokens = device_tokens.data();
    batch.num_rows = vocab_size;
    device.embed_blocks(batch, table.view(), 0.7F, {out.data(), vocab_size, width, width});
    std::vector<float> want(static_cast<size_t>(out.count()));
    reference::quantised_embedding({.tokens = tokens.data(),
                                    .table = table.host(0),
                                    .multiplier = 0.7F,
                                    .out = dense_rows(want.data(), vocab_size, width)});
    std::vector<float> got(want.size());
    out.download(0, got);
    return device.synchronize() && bits_of(got) == bits_of(want);
}

// Of exact.fp8.
inline bool multiplies_fp8_as_defined(Device& device, const MatmulShape& shape, const Fp8Recipe& recipe) {
    const BlockMatrices matrix(device, reference::kScaledFp8, 1, shape.num_outputs, shape.num_k, 1, recipe);
    return has_matmul_bits(
        device, shape, Values::kNormal,
        [&](const float* bias) { return matrix.view(bias, row_form(recipe.activations)); },
        multiply_quantised(device, recipe.static_scale),
        [&](auto x, const float* bias, float multiplier, auto out) {
            reference::fp8_matmul(
                {.x = x, .weight = matrix.host(0), .bias = bias, .in_multiplier = multiplier, .out = out});
        });
}

// Rows choose experts (row + i) mod n_experts. `profile`: exact or exact.int8, or, with a recipe, exact.fp8.
inline bool multiplies_entries_as_defined(Device& device, const reference::BlockFormat& format,
                                          const ExpertShape& shape,
                                          reference::Profile profile = reference::Profile::kExact,
                                          const std::optional<Fp8Recipe>& recipe = {}) {
    const RowForm form = profile == reference::Profile::kExactInt8  ? int8_form(format)
                         : profile == reference::Profile::kExactFp8 ? row_form(recipe->activations)
                                                                    : RowForm::kPairs;
    const int64_t num_outputs = shape.d_ff;
    const BlockMatrices matrices(device, format, shape.n_experts, num_outputs, shape.width, 1, recipe);
    const ExpertCounts counts{shape.num_rows, shape.n_experts, shape.n_chosen};
    const int64_t num = counts.num_entries();
    const auto x = draw_values(shape.num_rows * shape.width, 1);
    std::vector<float> chosen;  // ids, then weights
    for (int64_t r = 0; r < shape.num_rows; ++r) {
        std::vector<float> ids;
        for (int64_t i = 0; i < shape.n_chosen; ++i) ids.push_back(static_cast<float>((r + i) % shape.n_experts));
        std::ranges::sort(ids);
        chosen.insert(chosen.end(), ids.begin(), ids.end());
        chosen.insert(chosen.end(), ids.size(), 1.0F);
    }
    const auto device_x = on_device(device, x);
    const auto device_chosen = on_device(device, chosen);
    const DeviceArray<int32_t> rows(device, num), entries(device, num);
    const DeviceArray<DeviceExpertPart> parts(device, counts.num_parts());
    const DeviceEntries of{counts, rows.data(), entries.data(), parts.data()};
    const int64_t num_words = row_words(form, shape.width);
    const DeviceArray<uint32_t> inputs(device, shape.num_rows * num_words);
    const DeviceArray<uint32_t> gathered(device, num * num_words);
    const DeviceArray<float> out(device, num * num_outputs);
    DeviceArray<float> static_scales;
    const Floats of_x{device_x.data(), shape.num_rows, shape.width, shape.width};
    form == RowForm::kPairs ? device.round_rows(of_x, 1.0F, inputs.data())
                            : device.quantise_rows(of_x, {}, form, inputs.data());
    device.list_entries({device_chosen.data(), shape.num_rows, 2 * shape.n_chosen, 2 * shape.n_chosen}, of);
    if (recipe && recipe->static_scale > 0.0F) {
        std::vector<float> scales;
        for (int64_t i = 0; i < shape.n_experts; ++i) scales.push_back(matrices.static_scale(i));
        static_scales = DeviceArray<float>(device, std::span<const float>(scales));
        device.quantise_entries(of, of_x, /*gathers=*/true, static_scales.data(), gathered.data());
    } else {
        device.gather_entries(of, inputs.data(), num_words, gathered.data());
    }
    device.multiply_entries(reference::Profile::kExact, of, gathered.data(), matrices.view(nullptr, form),
                            {out.data(), num, num_outputs, num_outputs});
    std::vector<float> got(static_cast<size_t>(num * num_outputs));
    std::vector<int32_t> places(static_cast<size_t>(num));
    out.download(0, got);
    entries.download(0, places);
    if (!device.synchronize()) return false;
    for (int64_t i = 0; i < num; ++i) {
        const int64_t row = i / shape.n_chosen;
        const auto expert = static_cast<int64_t>(chosen[static_cast<size_t>(i + row * shape.n_chosen)]);
        std::vector<float> want(static_cast<size_t>(num_outputs));
        reference::linear({.x = dense_rows(x.data() + row * shape.width, 1, shape.width),
                           .weight = matrices.host(expert),
                           .profile = profile,
                           .out = dense_rows(want.data(), 1, num_outputs)});
        const auto first = got.begin() + places[static_cast<size_t>(i)] * num_outputs;
        if (bits_of(std::vector<float>(first, first + num_outputs)) != bits_of(want)) return false;
    }
    return true;
}

}  // namespace verbatim::cuda
