#include "reference/ops/fp8_matmul.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "reference/model/block_bytes.h"
#include "reference/model/scaled_blocks.h"
#include "reference/numerics/math.h"
#include "reference/ops/matmul.h"

namespace verbatim::reference {
namespace {

constexpr int64_t kNumbers = sizeof(float);  // their place in a block, behind its scale

void quantise_group(const Fp8RowArgs& args, int64_t first, int64_t count, float& scale) {
    float greatest = 0.0F;
    bool finite = true;
    for (int64_t k = first; k < first + count; ++k) {
        const float value = args.x[k] * args.factors.multiplier;
        finite = finite && std::isfinite(value);
        greatest = std::max(greatest, std::abs(value));
    }
    const float own = args.factors.static_scale > 0.0F ? args.factors.static_scale : greatest / kGreatestE4m3;
    scale = finite ? own : std::numeric_limits<float>::quiet_NaN();
    for (int64_t k = first; k < first + count; ++k)
        args.values[k] = scale > 0.0F ? round_to_e4m3(args.x[k] * args.factors.multiplier / scale) : 0.0F;
}

// The blocks of an output from column `first` on, which is a block's first.
const std::byte* blocks_at(const MatrixView& weight, int64_t row, int64_t first) {
    return weight.blocks + row * weight.row_bytes() + kScaledFp8.row_bytes(first);
}

// sums[m][n] = dot_n3 over columns [first, first + count).
void sum_group(const Fp8MatmulArgs& args, ConstFloatRows values, int64_t first, int64_t count, FloatRows sums) {
    const auto read = [&](int64_t n, int64_t k, int64_t columns, float* tile) {
        for (int64_t lane = 0; lane < std::min(kDotOutputs, args.out.width - n); ++lane) {
            const std::byte* blocks = blocks_at(args.weight, n + lane, first + k);
            for (int64_t i = 0; i < columns; ++i) {
                const int64_t at = kScaledFp8.row_bytes(i - i % kScaledWeights) + kNumbers + i % kScaledWeights;
                tile[i * kDotOutputs + lane] = e4m3_value(byte_at(blocks, at));
            }
        }
    };
    tiled_matmul({.x = values.columns(first, count), .out = sums, .read = read});
}

}  // namespace

void quantise_fp8_row(const Fp8RowArgs& args) {
    CHECK(args.sharing != Fp8Sharing::kNone, "a recipe without FP8 activations");
    const int64_t columns = fp8_columns(args.sharing, args.count);
    for (int64_t first = 0; first < args.count; first += columns)
        quantise_group(args, first, std::min(columns, args.count - first), args.scales[first / columns]);
}

void check(const Fp8MatmulArgs& args) {
    CHECK_GT(args.x.width, 0);
    CHECK_GT(args.out.width, 0);
    check_rows(args.x, args.out.num_rows, args.x.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
    CHECK(args.weight.format != nullptr && args.weight.format->name == kScaledFp8.name && args.weight.blocks != nullptr,
          "a matrix that is not in FP8");
    CHECK(args.weight.activations != Fp8Sharing::kNone, "a recipe without FP8 activations");
    const float static_scale = args.weight.activation_scale;
    CHECK(static_scale == 0.0F ||
              (args.weight.activations == Fp8Sharing::kRow && static_scale > 0.0F && std::isfinite(static_scale)),
          "a static scale of {}", static_scale);
    CHECK_EQ(args.weight.rows, args.out.width);
    CHECK_EQ(args.weight.cols, args.x.width);
    CHECK_EQ(args.weight.cols % kScaledWeights, 0);
    check_pointer(args.bias, 0);
    CHECK(args.x.data != args.out.data || args.out.num_rows == 0, "a matmul cannot write what it reads");
}

void fp8_matmul(const Fp8MatmulArgs& args) {
    check(args);
    const int64_t num_rows = args.out.num_rows;
    const int64_t num_k = args.x.width;
    const int64_t columns = fp8_columns(args.weight.activations, num_k);
    const int64_t num_groups = (num_k + columns - 1) / columns;
    std::vector<float> values(static_cast<size_t>(num_rows * num_k));
    std::vector<float> scales(static_cast<size_t>(num_rows * num_groups));
    for (int64_t m = 0; m < num_rows; ++m) {
        quantise_fp8_row({.x = args.x.row(m),
                          .count = num_k,
                          .factors = {args.in_multiplier, args.weight.activation_scale},
                          .sharing = args.weight.activations,
                          .values = values.data() + m * num_k,
                          .scales = scales.data() + m * num_groups});
        std::fill_n(args.out.row(m), args.out.width, 0.0F);
    }
    std::vector<float> sums(static_cast<size_t>(num_rows * args.out.width));
    for (int64_t group = 0; group < num_groups; ++group) {
        const int64_t first = group * columns;
        const int64_t count = std::min(columns, num_k - first);
        sum_group(args, {values.data(), num_rows, num_k, num_k}, first, count,
                  dense_rows(sums.data(), num_rows, args.out.width));
        for (int64_t n = 0; n < args.out.width; ++n) {
            const auto scale = value_at<float>(blocks_at(args.weight, n, first), 0);
            for (int64_t m = 0; m < num_rows; ++m) {
                float& total = args.out.row(m)[n];
                total = fma_f32(scale * scales[static_cast<size_t>(m * num_groups + group)],
                                sums[static_cast<size_t>(m * args.out.width + n)], total);
            }
        }
    }
    for (int64_t m = 0; m < num_rows && args.bias != nullptr; ++m)
        for (int64_t n = 0; n < args.out.width; ++n) args.out.row(m)[n] += args.bias[n];
}

}  // namespace verbatim::reference
