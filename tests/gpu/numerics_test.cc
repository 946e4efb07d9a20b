// What the numerics assume of a device, where there is one: the same bits as the host for fma over edge cases and for
// the functions over all inputs, and tensor cores as reference/numerics/tensor_sm90.h says. Skipped with the reason
// elsewhere. GpuSweep.* take long: tools/gpu-check leaves them out under compute-sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <thread>

#include "engine/base/prng.h"
#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/tensor_fit.h"
#include "kernels/cuda/tensor_self_test.h"
#include "reference/numerics/math.h"
#include "reference/worker_pool.h"
#include "tests/gpu/device_numerics.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {
namespace {

#define SKIP_WITHOUT_GPU() \
    if (const auto gpu = make_gpu_device({.num_self_test_tiles = 0}); !gpu) GTEST_SKIP() << gpu.error().message

bool is_hopper(const Device& device) {
    return device.description().find("compute capability 9.0") != std::string::npos;
}

// Every NaN is one NaN.
uint32_t comparable(uint32_t bits) {
    return reference::is_nan(reference::float_from_bits(bits)) ? reference::kQuietNanBits : bits;
}

TEST(GpuNumerics, FmaRoundsOnceOverEdgeCases) {
    SKIP_WITHOUT_GPU();
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const std::vector<float> edges = {0.0F,
                                      -0.0F,
                                      1.0F,
                                      -1.0F,
                                      0x1p-149F,
                                      -0x1p-149F,
                                      0x1p-126F,
                                      0x1.fffffep-127F,
                                      0x1.fffffep+127F,
                                      -0x1.fffffep+127F,
                                      kInfinity,
                                      -kInfinity,
                                      0x1.000002p+0F,
                                      0x1p-24F,
                                      0x1.8p-13F,
                                      0x1p+64F,
                                      0x1p-75F,
                                      std::nanf("")};
    std::vector<FloatTriple> in;
    for (const float a : edges) {
        for (const float b : edges) {
            for (const float c : edges) in.push_back({a, b, c});
        }
    }
    Prng prng(3);
    const auto any = [&] { return reference::float_from_bits(static_cast<uint32_t>(prng.next())); };
    for (int i = 0; i < 1'000'000; ++i) in.push_back({any(), any(), any()});
    std::vector<uint32_t> out;
    ASSERT_EQ(device_fma(in, out), "");
    for (size_t i = 0; i < in.size(); ++i) {
        const float host = reference::fma_f32(in[i].a, in[i].b, in[i].c);
        ASSERT_EQ(comparable(out[i]), comparable(reference::bits_from_float(host)))
            << in[i].a << " · " << in[i].b << " + " << in[i].c;
    }
}

float on_host(UnaryFunction function, float x) {
    switch (function) {
        case UnaryFunction::kExp: return reference::exp_f32(x);
        case UnaryFunction::kSilu: return reference::silu_f32(x);
        case UnaryFunction::kSoftplus: return reference::softplus_f32(x);
        case UnaryFunction::kSqrt: return reference::sqrt_f32(x);
        case UnaryFunction::kReciprocal: break;
    }
    return 1.0F / x;
}

// The first input of which the device says something else than the host; none: inputs.count.
int64_t first_difference(UnaryFunction function, const Inputs& inputs, std::span<const uint32_t> got,
                         reference::WorkerPool& threads) {
    std::atomic<int64_t> lowest = inputs.count;
    threads.for_ranges(inputs.count, 1 << 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end && i < lowest; ++i) {
            const float x = reference::float_from_bits(inputs.first + static_cast<uint32_t>(i) * inputs.step);
            const uint32_t want = reference::bits_from_float(on_host(function, x));
            if (comparable(got[static_cast<size_t>(i)]) == comparable(want)) continue;
            int64_t before = lowest;
            while (i < before && !lowest.compare_exchange_weak(before, i)) continue;
        }
    });
    return lowest;
}

// All of 2^32 inputs, or every 61st, on as many threads as there are: one would take minutes.
TEST(GpuSweep, FunctionsHaveTheHostsBitsOverAllInputs) {
    SKIP_WITHOUT_GPU();
    constexpr uint64_t kAll = uint64_t{1} << 32;
    constexpr uint64_t kPiece = uint64_t{1} << 26;
    reference::WorkerPool threads(static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency())));
    std::vector<uint32_t> out;
    for (const UnaryFunction function : {UnaryFunction::kExp, UnaryFunction::kSilu, UnaryFunction::kSoftplus,
                                         UnaryFunction::kSqrt, UnaryFunction::kReciprocal}) {
        const uint32_t step = function == UnaryFunction::kExp ? 1 : 61;
        for (uint64_t first = 0; first < kAll; first += kPiece * step) {
            const uint64_t left = (kAll - first + step - 1) / step;
            const Inputs inputs{static_cast<uint32_t>(first), step, static_cast<uint32_t>(std::min(kPiece, left))};
            ASSERT_EQ(device_unary(function, inputs, out), "");
            const int64_t i = first_difference(function, inputs, out, threads);
            ASSERT_EQ(i, inputs.count) << "function " << static_cast<int>(function) << " of "
                                       << reference::float_from_bits(inputs.first + static_cast<uint32_t>(i) * step);
        }
    }
}

// Tiles of values with one spread of exponents each, narrow and wide.
std::vector<TensorTile> draw_tiles(size_t count) {
    Prng prng(9);
    std::vector<TensorTile> tiles(count);
    for (size_t t = 0; t < count; ++t) {
        const int spread = static_cast<int>(t % 5) * 8 + 1;
        const auto draw = [&](int center) {
            const double sign = prng.below(2) == 0 ? 1.0 : -1.0;
            const int exponent = center + static_cast<int>(prng.below(static_cast<uint64_t>(spread))) - spread / 2;
            return static_cast<float>(sign * std::ldexp(1.0 + static_cast<double>(prng.below(128)) / 128.0, exponent));
        };
        const int center = static_cast<int>(t / 5 % 3) * 30 - 30;
        for (auto& row : tiles[t].a) {
            for (uint16_t& x : row) x = prng.below(9) == 0 ? uint16_t{0} : reference::round_to_bf16(draw(center));
        }
        for (auto& row : tiles[t].b) {
            for (uint16_t& x : row) x = reference::round_to_bf16(draw(center));
        }
        for (auto& row : tiles[t].c) {
            for (float& x : row) x = prng.below(4) == 0 ? 0.0F : draw(2 * center) * 1.0000305F;
        }
    }
    return tiles;
}

// Tiny, huge and nearly cancelling values, as the matmuls' tests have them.
void add_tiles(reference::Values kind, uint64_t count, std::vector<TensorTile>& tiles) {
    for (uint64_t t = 0; t < count; ++t) {
        TensorTile tile;
        const auto a = reference::draw_bf16(16 * 16, 3 * t, kind);
        const auto b = reference::draw_bf16(8 * 16, 3 * t + 1, kind);
        const auto c = reference::draw_values(16 * 8, 3 * t + 2, kind);
        std::copy(a.begin(), a.end(), &tile.a[0][0]);
        std::copy(b.begin(), b.end(), &tile.b[0][0]);
        std::copy(c.begin(), c.end(), &tile.c[0][0]);
        tiles.push_back(tile);
    }
}

// Products 8 to 15 take 0 to 7 away again: what is left is what the alignment has left of c, of either sign, down to
// +0.
void cancel(TensorTile& tile, size_t t) {
    for (int k = 0; k < 8; ++k) {
        for (auto& row : tile.a) row[k + 8] = row[k] ^ 0x8000U;
        for (auto& column : tile.b) column[k + 8] = column[k];
    }
    for (auto& row : tile.c) {
        for (float& x : row) x = t % 4 == 0 ? 0.0F : std::ldexp(x, -static_cast<int>(t % 40));
    }
}

// NaN, infinities of both signs and zeros next to them, in A, B and the accumulator.
void make_special(TensorTile& tile, size_t t) {
    constexpr uint16_t kSpecials[] = {0x7F80, 0xFF80, 0x7FC0, 0x0000};
    tile.a[t % 16][t / 3 % 16] = kSpecials[t % 4];
    tile.b[t % 8][t / 3 % 16] = kSpecials[t / 4 % 4];
    tile.c[t / 5 % 16][t / 7 % 8] = reference::bf16_to_float(kSpecials[t / 16 % 4]);
}

// All of these; first those that tell all of the fit's models apart.
std::vector<TensorTile> all_tiles() {
    std::vector<TensorTile> tiles = draw_tiles(20000);
    for (const reference::Values kind : reference::kAllValues) add_tiles(kind, 1500, tiles);
    const size_t num_plain = tiles.size();
    for (size_t t = 0; t < num_plain; t += 5) cancel(tiles.emplace_back(TensorTile(tiles[t])), t / 5);
    for (size_t t = 0; t < num_plain; t += 50) make_special(tiles.emplace_back(TensorTile(tiles[t])), t / 50);
    const std::vector<TensorTile> telling = tensor_tiles(kSelfTestTiles);
    tiles.insert(tiles.begin(), telling.begin(), telling.end());
    return tiles;
}

// A failure names the arithmetic that fits best.
TEST(GpuNumerics, TensorCoresEqualTheIntegerModel) {
    SKIP_WITHOUT_GPU();
    const std::vector<TensorTile> tiles = all_tiles();
    std::vector<TensorSums> results;
    ASSERT_EQ(device_mma(tiles, results), "");
    EXPECT_EQ(difference_from_hopper(tiles, results), "");
}

TEST(GpuNumerics, WarpgroupsEqualTheIntegerModel) {
    const auto device = make_gpu_device({.num_self_test_tiles = 0});
    if (!device) GTEST_SKIP() << device.error().message;
    if (!is_hopper(**device)) GTEST_SKIP() << "warpgroups are of compute capability 9.0: " << (*device)->description();
    ASSERT_TRUE((*device)->uses_wgmma()) << "no code for 90a was built";
    const std::vector<TensorTile> tiles = all_tiles();
    const auto results = multiply_on(**device, TensorCaller::kGroup, tiles);
    ASSERT_TRUE(results) << results.error().message;
    EXPECT_EQ(difference_from_hopper(tiles, *results), "");
}

// By both ways of multiplying: what is refused, or goes on by mma.sync alone, is no success.
TEST(GpuNumerics, TensorSm90IsGrantedOnHopper) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    const Status granted = (*device)->computes_in(reference::Profile::kTensorSm90);
    if (!is_hopper(**device)) GTEST_SKIP() << granted.error().message;
    EXPECT_TRUE(granted) << granted.error().message;
    EXPECT_TRUE((*device)->uses_wgmma()) << (*device)->description();
}

}  // namespace
}  // namespace verbatim::cuda
