#include "simulator/kernel_times.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr double kNsPerSecond = 1e9;

// Per position: K and V. Per query row: itself and the result.
double kv_bytes(const AttentionShape& shape) { return real(shape.position_values() * shape.kv_value_bytes); }
double row_bytes(const AttentionShape& shape) { return 2.0 * shape.n_heads * shape.head_dim * kBf16Bytes; }

}  // namespace

const char* name(PriceSource source) {
    constexpr std::array kNames = {"measured", "interpolated", "extrapolated", "roofline", "assumed"};
    static_assert(kNames.size() == kNumPriceSources);
    CHECK(source < PriceSource::kCount, "price source {}", static_cast<int>(source));
    return kNames[static_cast<size_t>(source)];
}

double RooflineTimes::peak_flops(ProductFormat format) const {
    switch (format) {
        case ProductFormat::kBf16: return device_.bf16_flops;
        case ProductFormat::kFp8: return device_.fp8_flops;
        case ProductFormat::kFp4: return device_.fp4_flops;
    }
    CHECK(false, "format {}", static_cast<int>(format));
}

KernelPrice RooflineTimes::kernel(double bytes, double operations, ProductFormat format) const {
    const double memory_s = bytes / (device_.memory_bytes_per_s * device_.memory_efficiency);
    const double compute_s = operations / (peak_flops(format) * device_.flops_efficiency);
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
    return kernel(bytes, shape.context_pair_operations() * pairs);
}

KernelPrice RooflineTimes::decode_attention(const AttentionShape& shape, const DecodeBatch& batch) const {
    return kernel(kv_bytes(shape) * batch.context + row_bytes(shape) * real(batch.num_sequences),
                  shape.decode_pair_operations() * (batch.context + batch.window_pairs));
}

double RooflineTimes::pair_ns(const AttentionShape& shape) const {
    return kernel(0, shape.context_pair_operations()).ns - device_.kernel_ns;
}

double RooflineTimes::position_ns(const AttentionShape& shape) const {
    return kernel(kv_bytes(shape), shape.decode_pair_operations()).ns - device_.kernel_ns;
}

// 2 (N - 1) messages of bytes / N follow each other.
KernelPrice RooflineTimes::all_reduce(int32_t num_gpus, double bytes) const {
    const double messages = 2.0 * (num_gpus - 1);
    return {messages * message_ns(bytes / num_gpus), PriceSource::kRoofline};
}

KernelPrice RooflineTimes::all_gather(int32_t num_gpus, double bytes) const {
    return {(num_gpus - 1.0) * message_ns(bytes / num_gpus), PriceSource::kRoofline};
}

double RooflineTimes::message_ns(double bytes) const {
    CHECK(device_.link_bytes_per_s > 0, "device {} has no link", device_.name);
    return bytes / device_.link_bytes_per_s * kNsPerSecond + device_.link_latency_ns;
}

KernelPrice RooflineTimes::conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const {
    const double channels = real(shape.channels);
    const double windows = 2.0 * (shape.d_conv - 1) * channels * kFloatBytes;
    return kernel(real(num_sequences) * windows + 2 * real(num_tokens) * channels * kBf16Bytes,
                  2.0 * shape.d_conv * real(num_tokens) * channels);
}

}  // namespace verbatim
