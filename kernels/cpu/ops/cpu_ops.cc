#include "kernels/cpu/ops/cpu_ops.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "engine/base/check.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/ops/avx2.h"
#include "kernels/cpu/ops/avx512.h"
#include "kernels/cpu/ops/avx512_bf16.h"
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

// The shortest of a few runs of `num_rows` rows over one panel that fits the caches.
int64_t panel_time_ns(const CpuOps& ops, int64_t num_rows) {
    constexpr int64_t kPairs = 256;
    AlignedArray<float> floats(num_rows * kPairs * 2);
    AlignedArray<Pair> pairs(num_rows * kPairs);
    AlignedArray<Pair> panel(kPairs * kPanelOutputs);
    AlignedArray<float> out(num_rows * kPanelOutputs);
    const PanelArgs args{
        .rows = {floats.data(), pairs.data(), num_rows, kPairs}, .panel = panel.data(), .out = out.data()};
    int64_t best = INT64_MAX;
    for (int run = 0; run < 16; ++run) {
        const auto begin = std::chrono::steady_clock::now();
        ops.panel(args);
        const auto time = std::chrono::steady_clock::now() - begin;
        best = std::min<int64_t>(best, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    }
    return best;
}

Isa fastest_isa(int64_t num_rows) {
    const auto isas = supported_isas();
    return *std::min_element(isas.begin(), isas.end(), [&](Isa a, Isa b) {
        return panel_time_ns(cpu_ops(a), num_rows) < panel_time_ns(cpu_ops(b), num_rows);
    });
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

Isa best_isa() { return matmul_choice({}).many->isa; }

MatmulChoice matmul_choice(std::optional<Isa> isa) {
    if (isa) return {&cpu_ops(*isa), &cpu_ops(*isa), &cpu_ops(*isa)};
    static const MatmulChoice fastest{&cpu_ops(fastest_isa(1)), &cpu_ops(fastest_isa(4)), &cpu_ops(fastest_isa(12))};
    return fastest;
}

const CpuOps& cpu_ops(Isa isa) {
    const auto isas = supported_isas();
    CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end(), "{} is not supported here", isa_name(isa));
#if defined(__x86_64__)
    if (isa == Isa::kAvx2) return kAvx2Ops;
    if (isa == Isa::kAvx512) return kAvx512Ops;
    if (isa == Isa::kAvx512Bf16) return kAvx512Bf16Ops;
#endif
    return kPortableOps;
}

}  // namespace verbatim::cpu
