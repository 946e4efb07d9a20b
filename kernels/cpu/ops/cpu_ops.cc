#include "kernels/cpu/ops/cpu_ops.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/base/check.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/ops/avx2.h"
#include "kernels/cpu/ops/avx512.h"
#include "kernels/cpu/ops/portable.h"

namespace verbatim::cpu {
namespace {

std::vector<Isa> find_isas() {
    std::vector<Isa> isas = {Isa::kPortable};
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return isas;
    isas.push_back(Isa::kAvx2);
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
        return isas;
    }
    isas.push_back(Isa::kAvx512);
    if (__builtin_cpu_supports("avx512bf16")) isas.push_back(Isa::kAvx512Bf16);
#endif
    return isas;
}

// The shortest of a few runs over one panel that fits the caches.
int64_t panel_time_ns(const CpuOps& ops) {
    constexpr int64_t kNumRows = 12;
    constexpr int64_t kPairs = 256;
    AlignedArray<float> floats(kNumRows * kPairs * 2);
    AlignedArray<Pair> pairs(kNumRows * kPairs);
    AlignedArray<Pair> panel(kPairs * kPanelOutputs);
    AlignedArray<float> totals(kNumRows * kPanelOutputs);
    const PanelArgs args{{floats.data(), pairs.data(), kNumRows, kPairs}, panel.data(), totals.data()};
    int64_t best = INT64_MAX;
    for (int run = 0; run < 8; ++run) {
        const auto begin = std::chrono::steady_clock::now();
        ops.panel(args);
        const auto time = std::chrono::steady_clock::now() - begin;
        best = std::min<int64_t>(best, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    }
    return best;
}

}  // namespace

std::string_view isa_name(Isa isa) {
    switch (isa) {
        case Isa::kPortable: return "portable";
        case Isa::kAvx2: return "avx2";
        case Isa::kAvx512: return "avx512";
        case Isa::kAvx512Bf16: return "avx512_bf16";
    }
    return "unknown";
}

std::span<const Isa> supported_isas() {
    static const std::vector<Isa> isas = find_isas();
    return isas;
}

Isa best_isa() {
    static const Isa best = [] {
        const auto isas = supported_isas();
        return *std::min_element(isas.begin(), isas.end(),
                                 [](Isa a, Isa b) { return panel_time_ns(cpu_ops(a)) < panel_time_ns(cpu_ops(b)); });
    }();
    return best;
}

const CpuOps& cpu_ops(Isa isa) {
    const auto isas = supported_isas();
    CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end(), "{} is not supported here", isa_name(isa));
    static const CpuOps portable{false, panel_portable, attend_tile_portable, scan_portable};
#if defined(__x86_64__)
    static const CpuOps avx2{false, panel_avx2, attend_tile_portable, scan_portable};
    static const CpuOps avx512{false, panel_avx512, attend_tile_avx512, scan_avx512};
    static const CpuOps avx512_bf16{true, panel_avx512_bf16, attend_tile_avx512_bf16, scan_avx512};
    if (isa == Isa::kAvx2) return avx2;
    if (isa == Isa::kAvx512) return avx512;
    if (isa == Isa::kAvx512Bf16) return avx512_bf16;
#endif
    return portable;
}

}  // namespace verbatim::cpu
