// simulator/kernel_times.h: owns the interface for kernel times on a device, and how each time is known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "simulator/device.h"
#include "simulator/model_shape.h"

namespace verbatim {

inline constexpr double kBf16Bytes = 2;
inline constexpr double kFloatBytes = 4;
constexpr double real(int64_t value) { return static_cast<double>(value); }

enum class PriceSource : uint8_t {
    kMeasured,      // the table has exactly this kernel
    kInterpolated,  // between measured kernels
    kExtrapolated,  // beyond them: the nearest one's time, scaled by the roofline
    kRoofline,      // bytes over bandwidth or operations over peak, whichever takes longer
    kAssumed,       // not measured: the host's time between steps
    kCount,
};
inline constexpr size_t kNumPriceSources = static_cast<size_t>(PriceSource::kCount);
[[nodiscard]] const char* name(PriceSource source);

struct KernelPrice {
    double ns = 0;
    PriceSource source = PriceSource::kRoofline;
};

// A sum of prices, separated by how they are known.
struct Price {
    std::array<double, kNumPriceSources> ns{};
    void add(const KernelPrice& kernel, double times = 1) {
        ns[static_cast<size_t>(kernel.source)] += kernel.ns * times;
    }
    void add(const Price& other, double times = 1) {
        for (size_t i = 0; i < ns.size(); ++i) ns[i] += other.ns[i] * times;
    }
    [[nodiscard]] double total_ns() const {
        double sum = 0;
        for (const double part : ns) sum += part;
        return sum;
    }
};

// New tokens of one sequence whose last ones alone may draw: `num_new` query rows after `past` positions.
struct Chunk {
    int64_t num_new = 0;
    int64_t past = 0;
    [[nodiscard]] double pairs_among_new() const { return real(num_new) * real(num_new + 1) / 2; }
    [[nodiscard]] double pairs_with_past() const { return real(num_new) * real(past); }
};

// Sequences whose new tokens all draw: decodes of one token, and windows of several.
struct DecodeBatch {
    int64_t num_sequences = 0;
    double context = 0;       // sum of the positions that the last rows see, these included
    double longest = 0;       // the largest of them
    double window_pairs = 0;  // visible pairs of all rows but the last one of each sequence
};

// More work is never cheaper: no price falls when a count, a length or a width grows.
class KernelTimes {
public:
    virtual ~KernelTimes() = default;
    [[nodiscard]] virtual KernelPrice matmul(int64_t m, int64_t n, int64_t k) const = 0;
    // One kernel over all `chunks`; at least one.
    [[nodiscard]] virtual KernelPrice context_attention(const AttentionShape& shape,
                                                        std::span<const Chunk> chunks) const = 0;
    // One kernel over the whole batch; at least one sequence.
    [[nodiscard]] virtual KernelPrice decode_attention(const AttentionShape& shape, const DecodeBatch& batch) const = 0;
    // The causal convolution over `num_tokens` >= `num_sequences` tokens of so many sequences.
    [[nodiscard]] virtual KernelPrice conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const = 0;
    // The sum of vectors of `bytes` on each of `num_gpus` >= 2 GPUs. REQUIRES: the device has a link.
    [[nodiscard]] virtual KernelPrice all_reduce(int32_t num_gpus, double bytes) const = 0;
};

// Roofline times of all kernels:
//   max(bytes / (bandwidth * its efficiency), operations / (peak * its efficiency)) + kernel_ns
// Of collectives, those of a ring of N GPUs (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters
// of workstations, J. Parallel Distrib. Comput. 69, 2009; as NCCL's):
//   all-reduce  2 (N - 1) (bytes / N / link + its latency)
//   all-gather  (N - 1) (bytes / N / link + its latency), where `bytes` are those of the whole
// Bytes: a matmul's matrix and activations; K and V of all positions, q and the result; a conv's window in and out.
// Operations: 2 m n k; 4 head_dim per head, query and visible position.
class RooflineTimes final : public KernelTimes {
public:
    explicit RooflineTimes(const Device& device) : device_(device) {}

    [[nodiscard]] KernelPrice kernel(double bytes, double operations,
                                     ProductFormat format = ProductFormat::kBf16) const;
    // Whether the device multiplies in the format.
    [[nodiscard]] bool has(ProductFormat format) const { return peak_flops(format) > 0; }
    [[nodiscard]] KernelPrice matmul(int64_t m, int64_t n, int64_t k) const override;
    [[nodiscard]] KernelPrice context_attention(const AttentionShape& shape,
                                                std::span<const Chunk> chunks) const override;
    [[nodiscard]] KernelPrice decode_attention(const AttentionShape& shape, const DecodeBatch& batch) const override;
    // What one more visible pair of a chunk and one more position of a decode come to where there are many.
    [[nodiscard]] double pair_ns(const AttentionShape& shape) const;
    [[nodiscard]] double position_ns(const AttentionShape& shape) const;
    [[nodiscard]] double kernel_ns() const { return device_.kernel_ns; }
    [[nodiscard]] KernelPrice all_reduce(int32_t num_gpus, double bytes) const override;
    [[nodiscard]] KernelPrice all_gather(int32_t num_gpus, double bytes) const;
    [[nodiscard]] KernelPrice conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const override;

private:
    [[nodiscard]] double message_ns(double bytes) const;  // over a link
    [[nodiscard]] double peak_flops(ProductFormat format) const;
    Device device_;
};

}  // namespace verbatim
