// Kernels of kernels/sandbox/naive/quantised_matmul.h: a row of weights is dequantised once and multiplied by all rows;
// two with faults that people make.
#include <math.h>

#include <vector>

#include "kernels/sandbox/naive/quantised_matmul.h"

namespace {

enum class Fault { kNone, kContracted, kTwoSums };

float dot(const float* x, float multiplier, const std::vector<float>& weights, bool in_two_sums) {
    float total = 0;
    const auto num_k = static_cast<int64_t>(weights.size());
    for (int64_t first = 0; first < num_k; first += kChunk) {
        float acc = 0;
        float odd = 0;
        for (int64_t k = first; k < first + kChunk && k < num_k; k += 2) {
            float& of_odd = in_two_sums ? odd : acc;
            of_odd = fmaf(verbatim_entering(x[k + 1] * multiplier), weights[static_cast<size_t>(k + 1)], of_odd);
            acc = fmaf(verbatim_entering(x[k] * multiplier), weights[static_cast<size_t>(k)], acc);
        }
        total = total + (in_two_sums ? acc + odd : acc);
    }
    return total;
}

// With one rounding where the contract has two.
float contracted(const struct verbatim_call* call, int64_t n, int64_t k) {
    const float* numbers = verbatim_numbers(call, n, k);
    if (call->sizes[kNumbers] == 1) return verbatim_weight(call, n, k);
    return fmaf(numbers[0], static_cast<float>(verbatim_quant(call, n, k)), -numbers[1]);
}

template <Fault fault>
int32_t run(const struct verbatim_kernel*, const struct verbatim_run* run) {
    const struct verbatim_call* call = run->args.call;
    std::vector<float> weights(static_cast<size_t>(kBlockWeights * call->sizes[kBlocks]));
    for (int64_t n = 0; n < call->sizes[kOutputs]; ++n) {
        for (int64_t k = 0; k < static_cast<int64_t>(weights.size()); ++k)
            weights[static_cast<size_t>(k)] =
                fault == Fault::kContracted ? contracted(call, n, k) : verbatim_weight(call, n, k);
        for (int64_t m = 0; m < call->num_rows; ++m) {
            const float total = dot(VERBATIM_UNIT(const float, call, kX, m), call->parameters[kInMultiplier], weights,
                                    fault == Fault::kTwoSums);
            VERBATIM_UNIT(float, call, kOut, m)[n] = total + VERBATIM_UNIT(const float, call, kBias, 0)[n];
        }
    }
    return 0;
}

template <Fault fault>
const struct verbatim_kernel kKernel = {VERBATIM_KERNEL_ABI,
                                        fault == Fault::kNone         ? "by_rows"
                                        : fault == Fault::kContracted ? "contracted"
                                                                      : "two_sums",
                                        "quantised_matmul",
                                        "exact",
                                        "cpu",
                                        nullptr,
                                        nullptr,
                                        nullptr,
                                        nullptr,
                                        nullptr,
                                        run<fault>};

}  // namespace

VERBATIM_EXPORT const struct verbatim_kernel* verbatim_kernel_at(int32_t index) {
    switch (index) {
        case 0: return &kKernel<Fault::kNone>;
        case 1: return &kKernel<Fault::kContracted>;
        case 2: return &kKernel<Fault::kTwoSums>;
        default: return nullptr;
    }
}
