// simulator/kernel_times.h: owns the interface for kernel times on a device, and how each time is known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

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

class KernelTimes {
public:
    virtual ~KernelTimes() = default;
    [[nodiscard]] virtual KernelPrice matmul(int64_t m, int64_t n, int64_t k) const = 0;
    // One sequence: `num_new` query rows after `past` positions.
    [[nodiscard]] virtual KernelPrice context_attention(const AttentionShape& shape, int64_t num_new,
                                                        int64_t past) const = 0;
    // `batch` sequences of one query row each over `context` positions, including the row's position.
    [[nodiscard]] virtual KernelPrice decode_attention(const AttentionShape& shape, int64_t batch,
                                                       int64_t context) const = 0;
    // The causal convolution over `num_tokens` of `num_sequences` sequences.
    [[nodiscard]] virtual KernelPrice conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const = 0;
};

// Roofline times of all kernels:
//   max(bytes / (bandwidth * its efficiency), operations / (peak * its efficiency)) + kernel_ns
// Bytes: a matmul's matrix and activations; K and V of all positions, q and the result; a conv's window in and out.
// Operations: 2 m n k; 4 head_dim per head, query and visible position.
class RooflineTimes final : public KernelTimes {
public:
    explicit RooflineTimes(const Device& device) : device_(device) {}

    [[nodiscard]] KernelPrice kernel(double bytes, double operations) const;
    [[nodiscard]] KernelPrice matmul(int64_t m, int64_t n, int64_t k) const override;
    [[nodiscard]] KernelPrice context_attention(const AttentionShape& shape, int64_t num_new,
                                                int64_t past) const override;
    [[nodiscard]] KernelPrice decode_attention(const AttentionShape& shape, int64_t batch,
                                               int64_t context) const override;
    [[nodiscard]] KernelPrice conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const override;

private:
    Device device_;
};

}  // namespace verbatim
