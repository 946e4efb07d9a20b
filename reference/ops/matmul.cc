#include "reference/ops/matmul.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/math.h"
#include "reference/numerics/tensor_lanes.h"

namespace verbatim::reference {

namespace {

float widened(uint16_t bf16) { return bf16_to_float(bf16); }
float widened(float value) { return value; }

template <typename T>
float dot_in_chunks(const T* a, const T* b, int64_t n) {
    float total = 0.0F;
    for (int64_t first = 0; first < n; first += kDotChunk) {
        const int64_t last = std::min(first + kDotChunk, n);
        float acc = 0.0F;
        for (int64_t i = first; i < last; i += 2) {
            const bool has_odd = i + 1 < last;
            acc = fma_f32(has_odd ? widened(a[i + 1]) : 0.0F, has_odd ? widened(b[i + 1]) : 0.0F, acc);
            acc = fma_f32(widened(a[i]), widened(b[i]), acc);
        }
        total += acc;
    }
    return total;
}

}  // namespace

float dot_n3(const uint16_t* a, const uint16_t* b, int64_t n) { return dot_in_chunks(a, b, n); }
float dot_n3_of_floats(const float* a, const float* b, int64_t n) { return dot_in_chunks(a, b, n); }

namespace {

// The outputs that are computed side by side, one vector lane each. Their number changes no bit.
constexpr int64_t kLanes = kDotOutputs;

// One chunk of the weights of kLanes outputs as binary32: tile[k][lane]. Lanes beyond the last output and an odd tail's
// partner are +0.
struct WeightTile {
    float values[kDotChunk][kLanes];
};

// total[lane] += the chunk's dot products, each lane in N3's order.
VERBATIM_CLONES void add_chunk(const float* a, const WeightTile& tile, int64_t num_k, float* total) {
    float acc[kLanes] = {};
    for (int64_t k = 0; k < num_k; k += 2) {
        const float odd = k + 1 < num_k ? a[k + 1] : 0.0F;
        const float even = a[k];
        for (int64_t lane = 0; lane < kLanes; ++lane) acc[lane] = fma_f32(odd, tile.values[k + 1][lane], acc[lane]);
        for (int64_t lane = 0; lane < kLanes; ++lane) acc[lane] = fma_f32(even, tile.values[k][lane], acc[lane]);
    }
    for (int64_t lane = 0; lane < kLanes; ++lane) total[lane] += acc[lane];
}

// bf16(x · in_multiplier) as binary32 values, dense.
std::vector<float> rounded_inputs(const ConstFloatRows& x, float in_multiplier) {
    std::vector<float> a(static_cast<size_t>(x.num_rows * x.width));
    for (int64_t m = 0; m < x.num_rows; ++m) {
        for (int64_t k = 0; k < x.width; ++k) a[m * x.width + k] = bf16_value(x.row(m)[k] * in_multiplier);
    }
    return a;
}

// [num_rows, kLanes] to the outputs from n on, with their bias.
void store_totals(std::span<const float> totals, int64_t n, const float* bias, const FloatRows& out) {
    for (int64_t m = 0; m < out.num_rows; ++m) {
        for (int64_t lane = 0; lane < std::min(kLanes, out.width - n); ++lane) {
            const float total = totals[m * kLanes + lane];
            out.row(m)[n + lane] = bias != nullptr ? total + bias[n + lane] : total;
        }
    }
}

// --- tensor.sm90

// A group of the weights of kLanes outputs; lanes beyond the last output and what is beyond K are +0.
void take_group(const uint16_t* weight, int64_t stride, int64_t num_outputs, int64_t num_k,
                TensorOperand<kLanes>& group) {
    for (int k = 0; k < kTensorGroup; ++k) {
        for (int lane = 0; lane < kLanes; ++lane) {
            group.set(k, lane, k < num_k && lane < num_outputs ? weight[lane * stride + k] : uint16_t{0});
        }
    }
}

VERBATIM_CLONES void add_group(const TensorOperand<1>& a, const TensorOperand<kLanes>& group, float* acc) {
    tensor_group_lanes(a, group, acc);
}

// The rows' inputs, group by group: [num_rows][groups].
std::vector<TensorOperand<1>> input_groups(const MatmulArgs& args) {
    const int64_t groups = (args.x.width + kTensorGroup - 1) / kTensorGroup;
    std::vector<TensorOperand<1>> inputs(static_cast<size_t>(args.x.num_rows * groups));
    for (int64_t m = 0; m < args.x.num_rows; ++m) {
        for (int64_t k = 0; k < groups * kTensorGroup; ++k) {
            const float x = k < args.x.width ? args.x.row(m)[k] * args.in_multiplier : 0.0F;
            inputs[m * groups + k / kTensorGroup].set(k % kTensorGroup, 0, round_to_bf16(x));
        }
    }
    return inputs;
}

// tensor_dot of every row with kLanes outputs side by side, all rows over one group before the next one.
void tensor_matmul(const MatmulArgs& args) {
    const int64_t num_k = args.x.width;
    const int64_t num_rows = args.x.num_rows;
    const int64_t groups = (num_k + kTensorGroup - 1) / kTensorGroup;
    constexpr int64_t kChunkGroups = kTensorChunk / kTensorGroup;
    const std::vector<TensorOperand<1>> inputs = input_groups(args);
    std::vector<float> accs(static_cast<size_t>(num_rows * kLanes));
    std::vector<float> totals(accs.size());
    const auto weights = std::make_unique<TensorOperand<kLanes>>();
    for (int64_t n = 0; n < args.out.width; n += kLanes) {
        const int64_t num_outputs = std::min(kLanes, args.out.width - n);
        std::fill(totals.begin(), totals.end(), 0.0F);
        for (int64_t chunk = 0; chunk < groups; chunk += kChunkGroups) {
            std::fill(accs.begin(), accs.end(), 0.0F);
            for (int64_t g = chunk; g < std::min(chunk + kChunkGroups, groups); ++g) {
                const int64_t k = g * kTensorGroup;
                take_group(args.weight + n * num_k + k, num_k, num_outputs, num_k - k, *weights);
                for (int64_t m = 0; m < num_rows; ++m) add_group(inputs[m * groups + g], *weights, &accs[m * kLanes]);
            }
            for (size_t i = 0; i < totals.size(); ++i) totals[i] += accs[i];
        }
        store_totals(totals, n, args.bias, args.out);
    }
}

}  // namespace

void check(const MatmulArgs& args) {
    CHECK_GT(args.x.width, 0);
    CHECK_GT(args.out.width, 0);
    check_rows(args.x, args.out.num_rows, args.x.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_pointer(args.weight, args.out.width * args.x.width);
    check_pointer(args.bias, 0);
    CHECK(args.profile != Profile::kFast, "the fast profile has no definition");
    CHECK(args.x.data != args.out.data || args.out.num_rows == 0, "a matmul cannot write what it reads");
}

void matmul(const MatmulArgs& args) {
    check(args);
    if (args.profile == Profile::kTensorSm90) return tensor_matmul(args);
    const auto read = [&](int64_t n, int64_t k, int64_t count, float* tile) {
        for (int64_t lane = 0; lane < std::min(kLanes, args.out.width - n); ++lane) {
            const uint16_t* row = args.weight + (n + lane) * args.x.width + k;
            for (int64_t i = 0; i < count; ++i) tile[i * kLanes + lane] = bf16_to_float(row[i]);
        }
    };
    tiled_matmul({.x = args.x, .bias = args.bias, .in_multiplier = args.in_multiplier, .out = args.out, .read = read});
}

void tiled_matmul(const TiledMatmul& args) {
    const int64_t num_k = args.x.width;
    const std::vector<float> a = rounded_inputs(args.x, args.in_multiplier);
    const auto tile = std::make_unique_for_overwrite<WeightTile>();  // a chunk is written before it is read
    std::vector<float> totals(static_cast<size_t>(args.x.num_rows * kLanes));
    for (int64_t n = 0; n < args.out.width; n += kLanes) {
        std::fill(totals.begin(), totals.end(), 0.0F);
        for (int64_t k = 0; k < num_k; k += kDotChunk) {
            const int64_t chunk = std::min(kDotChunk, num_k - k);
            if (args.out.width - n < kLanes || chunk % 2 != 0)
                std::fill_n(&tile->values[0][0], (chunk + chunk % 2) * kLanes, 0.0F);
            args.read(n, k, chunk, &tile->values[0][0]);
            for (int64_t m = 0; m < args.x.num_rows; ++m)
                add_chunk(&a[m * num_k + k], *tile, chunk, &totals[m * kLanes]);
        }
        store_totals(totals, n, args.bias, args.out);
    }
}

}  // namespace verbatim::reference
