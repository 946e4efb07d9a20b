#include "kernels/cpu/ops/cpu_ops.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "engine/base/check.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/ops/avx2.h"
#include "kernels/cpu/ops/avx512.h"
#include "kernels/cpu/ops/avx512_bf16.h"
#include "kernels/cpu/ops/portable.h"
#include "kernels/cpu/ops/tensor_panel.h"
#include "reference/ops/matmul.h"

namespace verbatim::cpu {
namespace {

// Pseudo-random bf16 bits for the processor's test: `spread` exponents around 1; a step of SplitMix64 for each.
std::vector<uint16_t> test_values(int64_t count, uint64_t seed, uint32_t spread) {
    std::vector<uint16_t> values;
    for (int64_t i = 0; i < count; ++i) {
        uint64_t word = seed += 0x9E3779B97F4A7C15U;
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9U;
        word = (word ^ word >> 27) * 0x94D049BB133111EBU;
        const auto exponent = static_cast<uint32_t>(127 - spread / 2 + (word >> 40) % (spread + 1));
        values.push_back(static_cast<uint16_t>((word & 1) << 15 | exponent << 7 | (word >> 8 & 0x7F)));
    }
    return values;
}

// Does the processor's dot product add as NUMERICS N3 says? Values of one size (rounding at every step), of many sizes
// (bits that are lost), and so small that products come near to what VDPBF16PS flushes.
[[maybe_unused]] bool has_bits_of_definition(const CpuOps& ops) {
    constexpr int64_t kPairs = 192;  // a chunk and a half
    constexpr int64_t kSize = 2 * kPairs;
    for (const uint32_t spread : {0U, 8U, 40U, 110U}) {
        const std::vector<uint16_t> a = test_values(kSize, 1 + spread, spread);
        const std::vector<uint16_t> b = test_values(kPanelOutputs * kSize, 1000 + spread, spread);
        AlignedArray<Pair> row(kPairs), panel(kPairs * kPanelOutputs);
        AlignedArray<float> out(kPanelOutputs);
        for (int64_t j = 0; j < kPairs; ++j) row.data()[j] = make_pair_of(a[2 * j], a[2 * j + 1]);
        pack_panel({b.data(), kPanelOutputs, kSize}, 0, panel.data());
        ops.panel({.rows = {nullptr, row.data(), 1, kPairs}, .panel = panel.data(), .out = out.data()});
        for (int64_t lane = 0; lane < kPanelOutputs; ++lane) {
            const float want = reference::dot_n3(a.data(), &b[lane * kSize], kSize);
            if (reference::bits_from_float(out.data()[lane]) != reference::bits_from_float(want)) return false;
        }
    }
    return true;
}

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
    if (__builtin_cpu_supports("avx512bf16") && has_bits_of_definition(kAvx512Bf16Ops)) {
        isas.push_back(Isa::kAvx512Bf16);
    }
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

// A table for each instruction set, made when the first one is asked for.
const CpuOps& tensor_ops(Isa isa) {
    static const std::vector<CpuOps> tables = [] {
        std::vector<CpuOps> made;
        for (const Isa one : supported_isas()) {
            CpuOps& table = made.emplace_back(cpu_ops(one));
            table.takes_pairs = true;
            table.panel = tensor_panel;
            table.attend_tile = attend_tile_tensor;
        }
        return made;
    }();
    return *std::ranges::find(tables, isa, &CpuOps::isa);
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

MatmulChoice matmul_choice(std::optional<Isa> isa, Profile profile) {
    static const std::array<Isa, 3> fastest{fastest_isa(1), fastest_isa(4), fastest_isa(12)};
    const auto of = [&](size_t i) { return &cpu_ops(isa ? *isa : fastest[i], profile); };
    return {of(0), of(1), of(2)};
}

const CpuOps& cpu_ops(Isa isa, Profile profile) {
    const auto isas = supported_isas();
    CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end(), "{} is not supported here", isa_name(isa));
    if (profile == Profile::kTensorSm90) return tensor_ops(isa);
#if defined(__x86_64__)
    const bool fast = profile == Profile::kFast;
    if (isa == Isa::kAvx2) return fast ? kFastAvx2Ops : kAvx2Ops;
    if (isa == Isa::kAvx512) return fast ? kFastAvx512Ops : kAvx512Ops;
    if (isa == Isa::kAvx512Bf16) return fast ? kFastAvx512Bf16Ops : kAvx512Bf16Ops;
#endif
    return kPortableOps;
}

}  // namespace verbatim::cpu
