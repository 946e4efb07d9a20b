#include "simulator/kernel_times.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr double kNsPerSecond = 1e9;

// Per position: K and V. Per query row: itself and the result. Per head, query row and visible position: a product with
// K and one with V.
double kv_bytes(const AttentionShape& shape) { return 2.0 * shape.n_kv_heads * shape.head_dim * kBf16Bytes; }
double row_bytes(const AttentionShape& shape) { return 2.0 * shape.n_heads * shape.head_dim * kBf16Bytes; }
double pair_operations(const AttentionShape& shape) { return 4.0 * shape.head_dim * shape.n_heads; }

}  // namespace

const char* name(PriceSource source) {
    constexpr std::array kNames = {"measured", "interpolated", "extrapolated", "roofline", "assumed"};
    static_assert(kNames.size() == kNumPriceSources);
    CHECK(source < PriceSource::kCount, "price source {}", static_cast<int>(source));
    return kNames[static_cast<size_t>(source)];
}

KernelPrice RooflineTimes::kernel(double bytes, double operations) const {
    const double memory_s = bytes / (device_.memory_bytes_per_s * device_.memory_efficiency);
    const double compute_s = operations / (device_.bf16_flops * device_.flops_efficiency);
    return {std::max(memory_s, compute_s) * kNsPerSecond + device_.kernel_ns, PriceSource::kRoofline};
}

KernelPrice RooflineTimes::matmul(int64_t m, int64_t n, int64_t k) const {
    return kernel(kBf16Bytes * (real(n) * real(k) + real(m) * real(n + k)), 2 * real(m) * real(n) * real(k));
}

KernelPrice RooflineTimes::context_attention(const AttentionShape& shape, std::span<const Chunk> chunks) const {
    double bytes = 0;
    double pairs = 0;
    for (const Chunk& chunk : chunks) {
        bytes += kv_bytes(shape) * real(chunk.past + chunk.num_new) + row_bytes(shape) * real(chunk.num_new);
        pairs += chunk.pairs_with_past() + chunk.pairs_among_new();
    }
    return kernel(bytes, pair_operations(shape) * pairs);
}

KernelPrice RooflineTimes::decode_attention(const AttentionShape& shape, const DecodeBatch& batch) const {
    return kernel(kv_bytes(shape) * batch.context + row_bytes(shape) * real(batch.num_sequences),
                  pair_operations(shape) * (batch.context + batch.window_pairs));
}

double RooflineTimes::pair_ns(const AttentionShape& shape) const {
    return kernel(0, pair_operations(shape)).ns - device_.kernel_ns;
}

double RooflineTimes::position_ns(const AttentionShape& shape) const {
    return kernel(kv_bytes(shape), pair_operations(shape)).ns - device_.kernel_ns;
}

KernelPrice RooflineTimes::conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const {
    const double channels = real(shape.channels);
    const double windows = 2.0 * (shape.d_conv - 1) * channels * kFloatBytes;
    return kernel(real(num_sequences) * windows + 2 * real(num_tokens) * channels * kBf16Bytes,
                  2.0 * shape.d_conv * real(num_tokens) * channels);
}

}  // namespace verbatim
