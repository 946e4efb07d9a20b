#include "reference/ops/int8_matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "reference/numerics/constants.h"
#include "reference/numerics/half.h"
#include "reference/numerics/math.h"

namespace verbatim::reference {
namespace {

struct RowScale {
    float scale = 0.0F;
    float factor = 0.0F;  // r of the contract
};

RowScale row_scale(float greatest, Int8Sharing sharing) {
    if (!std::isfinite(greatest)) return {std::numeric_limits<float>::quiet_NaN(), 0.0F};
    if (sharing != Int8Sharing::kBlocksOf32) {
        if (greatest < kLeastInt8Magnitude) return {};
        const float factor = 127.0F / greatest;
        return {sharing == Int8Sharing::kRow ? greatest / 127.0F : 1.0F / factor, factor};
    }
    const float exact = greatest / 127.0F;
    const float scale = half_to_float(round_to_half(exact));
    return {scale, scale == 0.0F ? 0.0F : 1.0F / exact};
}

// The greatest magnitude; NaN if there is one.
float greatest_magnitude(std::span<const float> values) {
    float greatest = 0.0F;
    for (const float value : values) {
        if (std::isnan(value)) return value;
        greatest = std::max(greatest, std::abs(value));
    }
    return greatest;
}

struct Sums {
    int32_t products = 0;  // I of the contract
    int32_t minima = 0;    // M
};

Sums block_sums(const IntegerFormat& format, const IntegerBlock& weights, const int8_t* quants) {
    Sums sums;
    for (int32_t j = 0; j < format.num_runs(); ++j) {
        int32_t products = 0;
        int32_t total = 0;
        for (int32_t k = j * format.run_weights; k < (j + 1) * format.run_weights; ++k) {
            products += int32_t{weights.quants[k]} * quants[k];
            total += quants[k];
        }
        sums.products += weights.scales[j] * products;
        sums.minima += weights.minima[j] * total;
    }
    return sums;
}

// All rows' dot products with one output's blocks.
void multiply_output(const IntegerFormat& format, std::span<const IntegerBlock> weights, std::span<const int8_t> quants,
                     std::span<const float> scales, std::span<float> totals) {
    const auto num_blocks = static_cast<int64_t>(weights.size());
    const int64_t chunk = kDotChunk / format.num_weights;
    for (size_t m = 0; m < totals.size(); ++m) {
        const int64_t first_block = static_cast<int64_t>(m) * num_blocks;
        float total = 0.0F;
        for (int64_t first = 0; first < num_blocks; first += chunk) {
            float acc = 0.0F;
            for (int64_t b = first; b < std::min(first + chunk, num_blocks); ++b) {
                const IntegerBlock& block = weights[static_cast<size_t>(b)];
                const Sums sums = block_sums(format, block, &quants[(first_block + b) * format.num_weights]);
                const float scale = scales[static_cast<size_t>(first_block + b)];
                acc = fma_f32(block.scale * scale, static_cast<float>(sums.products), acc);
                if (format.has_minima) acc = fma_f32(block.offset * scale, static_cast<float>(sums.minima), acc);
            }
            total += acc;
        }
        totals[m] = total;
    }
}

}  // namespace

void quantise_row(const Int8RowArgs& args) {
    const int64_t columns = scale_columns(args.sharing);
    CHECK_EQ(args.count % columns, 0);
    const int64_t shared = args.sharing == Int8Sharing::kRow ? args.count : columns;
    std::vector<float> values(static_cast<size_t>(shared));
    for (int64_t first = 0; first < args.count; first += shared) {
        for (int64_t k = 0; k < shared; ++k) values[static_cast<size_t>(k)] = args.x[first + k] * args.multiplier;
        const RowScale of = row_scale(greatest_magnitude(values), args.sharing);
        std::fill_n(args.scales + first / columns, shared / columns, of.scale);
        for (int64_t k = 0; k < shared; ++k) {
            const float value = of.factor == 0.0F ? 0.0F : values[static_cast<size_t>(k)] * of.factor;
            args.quants[first + k] = static_cast<int8_t>(std::nearbyint(value));
        }
    }
}

void check(const Int8MatmulArgs& args) {
    CHECK_GT(args.x.width, 0);
    CHECK_GT(args.out.width, 0);
    check_rows(args.x, args.out.num_rows, args.x.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
    CHECK(args.weight.is_quantised() && args.weight.blocks != nullptr, "a matrix without blocks");
    CHECK(find_integer_format(*args.weight.format) != nullptr, "{} has no integers", args.weight.format->name);
    CHECK_EQ(args.weight.rows, args.out.width);
    CHECK_EQ(args.weight.cols, args.x.width);
    CHECK_EQ(args.weight.cols % args.weight.format->num_weights, 0);
    check_pointer(args.bias, 0);
    CHECK(args.x.data != args.out.data || args.out.num_rows == 0, "a matmul cannot write what it reads");
}

void int8_matmul(const Int8MatmulArgs& args) {
    check(args);
    const IntegerFormat& format = *find_integer_format(*args.weight.format);
    const int64_t num_k = args.x.width;
    const int64_t num_blocks = num_k / format.num_weights;
    std::vector<int8_t> quants(static_cast<size_t>(args.out.num_rows * num_k));
    std::vector<float> scales(static_cast<size_t>(args.out.num_rows * num_blocks));
    for (int64_t m = 0; m < args.out.num_rows; ++m)
        quantise_row({.x = args.x.row(m),
                      .count = num_k,
                      .multiplier = args.in_multiplier,
                      .sharing = format.sharing,
                      .quants = quants.data() + m * num_k,
                      .scales = scales.data() + m * num_blocks});
    std::vector<IntegerBlock> weights(static_cast<size_t>(num_blocks));
    std::vector<float> totals(static_cast<size_t>(args.out.num_rows));
    for (int64_t n = 0; n < args.out.width; ++n) {
        const std::byte* row = args.weight.blocks + n * args.weight.row_bytes();
        for (int64_t b = 0; b < num_blocks; ++b)
            format.read(row + b * args.weight.format->num_bytes, weights[static_cast<size_t>(b)]);
        multiply_output(format, weights, quants, scales, totals);
        for (int64_t m = 0; m < args.out.num_rows; ++m) {
            const float total = totals[static_cast<size_t>(m)];
            args.out.row(m)[n] = args.bias != nullptr ? total + args.bias[n] : total;
        }
    }
}

}  // namespace verbatim::reference
