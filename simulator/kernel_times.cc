#include "simulator/kernel_times.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr double kNsPerSecond = 1e9;

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

KernelPrice RooflineTimes::context_attention(const AttentionShape& shape, int64_t num_new, int64_t past) const {
    const double kv = 2.0 * shape.n_kv_heads * shape.head_dim * kBf16Bytes;
    const double q = 2.0 * shape.n_heads * shape.head_dim * kBf16Bytes;
    const double pairs = real(num_new) * real(past) + real(num_new) * real(num_new + 1) / 2;
    return kernel(kv * real(past + num_new) + q * real(num_new), 4.0 * shape.head_dim * shape.n_heads * pairs);
}

KernelPrice RooflineTimes::decode_attention(const AttentionShape& shape, int64_t batch, int64_t context) const {
    const double kv = 2.0 * shape.n_kv_heads * shape.head_dim * kBf16Bytes;
    const double q = 2.0 * shape.n_heads * shape.head_dim * kBf16Bytes;
    return kernel(real(batch) * (kv * real(context) + q),
                  4.0 * shape.head_dim * shape.n_heads * real(batch) * real(context));
}

KernelPrice RooflineTimes::conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const {
    const double channels = real(shape.channels);
    const double windows = 2.0 * (shape.d_conv - 1) * channels * kFloatBytes;
    return kernel(real(num_sequences) * windows + 2 * real(num_tokens) * channels * kBf16Bytes,
                  2.0 * shape.d_conv * real(num_tokens) * channels);
}

}  // namespace verbatim
