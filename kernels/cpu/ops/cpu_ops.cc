#include "kernels/cpu/ops/cpu_ops.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

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

// Pseudo-random bf16 bits for the processor's test: `spread` exponents around 1, one step of SplitMix64 each.
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

// Does the processor's dot product follow NUMERICS N3? Tests values of one size (rounding at every step), of many sizes
// (lost bits), and so small that products approach the range that VDPBF16PS flushes.
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
        ops.panel({.rows = {.pairs = row.data(), .num_rows = 1, .num_pairs = kPairs},
                   .panel = panel.data(),
                   .out = out.data()});
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

#if defined(__x86_64__)
// __builtin_cpu_supports() of clang does not know it.
bool has_clflushopt() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_CLFLUSHOPT) != 0;
}

__attribute__((target("clflushopt"))) void flush_lines(void* memory, int64_t num_bytes) {
    for (int64_t i = 0; i < num_bytes; i += 64) _mm_clflushopt(static_cast<std::byte*>(memory) + i);
    _mm_sfence();
}
#endif

// The data of a race: rows, and the panels that they multiply. The loops take turns and the fastest turn counts, so an
// interruption by another process does not decide.
class Race {
public:
    Race(int64_t num_rows, int64_t num_panels, int num_turns)
        : num_rows_(num_rows),
          num_panels_(num_panels),
          num_turns_(num_turns),
          rows_(2 * kPairs * (num_rows + kMaxBandRows)),
          panels_(kPairs * kPanelOutputs * num_panels),
          out_(num_rows * kPanelOutputs) {
        std::fill_n(panels_.data(), panels_.size(), Pair{0x3F803F80});  // untouched pages would all map the zero page
    }

    MatmulLoop winner(std::span<const MatmulLoop> loops) {
        std::vector<int64_t> best(loops.size(), INT64_MAX);
        for (int turn = 0; turn < num_turns_; ++turn) {
            for (size_t i = 0; i < loops.size(); ++i) best[i] = std::min(best[i], time_ns(loops[i]));
        }
        return loops[std::ranges::min_element(best) - best.begin()];
    }

private:
    static constexpr int64_t kPairs = 384;  // three chunks: a panel of 96 KiB, as in a narrow model

    int64_t time_ns(const MatmulLoop& loop) {
        if (num_panels_ > 1) flush_caches();
        const auto begin = std::chrono::steady_clock::now();
        for (int64_t i = 0; i < num_panels_; ++i) {
            const auto* pairs = reinterpret_cast<const Pair*>(rows_.data());
            loop.run({.rows = {.floats = rows_.data(),
                               .pairs = pairs,
                               .bands = rows_.data(),
                               .pair_bands = pairs,
                               .num_rows = num_rows_,
                               .num_pairs = kPairs},
                      .panel = panels_.data() + i * kPairs * kPanelOutputs,
                      .out = out_.data()});
        }
        const auto time = std::chrono::steady_clock::now() - begin;
        return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    }

    // Flushes the panels, so that the next turn reads them from memory for any cache size.
    void flush_caches() {
#if defined(__x86_64__)
        if (!has_clflushopt()) return;
        flush_lines(panels_.data(), panels_.size() * int64_t{sizeof(Pair)});
#endif
    }

    int64_t num_rows_, num_panels_;
    int num_turns_;
    AlignedArray<float> rows_;
    AlignedArray<Pair> panels_;
    AlignedArray<float> out_;
};

constexpr int64_t kColdPanels = 32;  // 3 MiB: long enough that a race's start and end do not matter

// Few rows are bound by memory, many by computing.
MatmulLoop race_winner(std::span<const MatmulLoop> loops, int64_t num_rows) {
    const bool few = num_rows <= MatmulChoice::kFewRows;
    return Race(num_rows, few ? kColdPanels : 1, few ? 3 : 16).winner(loops);
}

// Each race runs once, when first needed.
template <Profile profile>
const MatmulChoice& choice_of_all() {
    static const MatmulChoice choice = raced_choice(supported_isas(), profile, race_winner);
    return choice;
}
template <Profile profile, Isa isa>
const MatmulChoice& choice_of() {
    static constexpr Isa kIsa = isa;
    static const MatmulChoice choice = raced_choice({&kIsa, 1}, profile, race_winner);
    return choice;
}
template <Profile profile>
const MatmulChoice& choice_in(std::optional<Isa> isa) {
    if (!isa) return choice_of_all<profile>();
    switch (*isa) {
        case Isa::kPortable: return choice_of<profile, Isa::kPortable>();
        case Isa::kAvx2: return choice_of<profile, Isa::kAvx2>();
        case Isa::kAvx512: return choice_of<profile, Isa::kAvx512>();
        case Isa::kAvx512Bf16: return choice_of<profile, Isa::kAvx512Bf16>();
    }
    return choice_of_all<profile>();
}

// The instruction sets whose int8 products are the fastest of this processor's: the widest.
std::span<const Isa> int8_isas() {
    const std::span<const Isa> isas = supported_isas();
    const auto first =
        std::ranges::find_if(isas, [&](Isa isa) { return cpu_ops(isa).int8_panel == cpu_ops(isas.back()).int8_panel; });
    return isas.subspan(static_cast<size_t>(first - isas.begin()));
}
const MatmulChoice& int8_choice() {
    static const MatmulChoice choice = raced_choice(int8_isas(), Profile::kExactInt8, race_winner);
    return choice;
}

// A table per instruction set, made when the first one is requested.
const CpuOps& tensor_ops(Isa isa) {
    static const std::vector<CpuOps> tables = [] {
        std::vector<CpuOps> made;
        for (const Isa one : supported_isas()) {
            CpuOps& table = made.emplace_back(cpu_ops(one));
            table.takes_pairs = true;
            table.panel = tensor_panel;
            table.panel_of_bands = nullptr;
            table.single_pass = false;
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

Isa best_isa() { return matmul_choice({}).many.ops->isa; }

std::vector<MatmulLoop> matmul_loops(const CpuOps& ops, int64_t num_rows) {
    std::vector<MatmulLoop> loops = {{.ops = &ops}};
    if (num_rows > MatmulChoice::kFewRows) {
        if (ops.panel_of_bands != nullptr) loops.push_back({.ops = &ops, .bands = true});
    } else if (ops.single_pass) {
        loops.push_back({.ops = &ops, .reads_ahead = true});
    }
    return loops;
}

MatmulChoice raced_choice(std::span<const Isa> isas, Profile profile, const MatmulRace& race) {
    const auto winner = [&](int64_t num_rows) {
        std::vector<MatmulLoop> loops;
        for (const Isa isa : isas) {
            if (isa == Isa::kPortable && isas.size() > 1) continue;  // never wins, and is slow
            std::ranges::copy(matmul_loops(cpu_ops(isa, profile), num_rows), std::back_inserter(loops));
        }
        return loops.size() == 1 ? loops[0] : race(loops, num_rows);
    };
    return {winner(1), winner(4), winner(16)};
}

MatmulChoice matmul_choice(std::optional<Isa> isa, Profile profile) {
    CHECK(!isa || std::ranges::count(supported_isas(), *isa) > 0, "{} is not supported here", isa_name(*isa));
    if (profile == Profile::kFast) return choice_in<Profile::kFast>(isa);
    if (profile == Profile::kExactInt8 && !isa) return int8_choice();
    const MatmulChoice& exact = choice_in<Profile::kExact>(isa);
    if (profile != Profile::kTensorSm90) return exact;
    // All loops are equal in this profile: the exact winner decides which table does the rest.
    const auto in_profile = [&](const MatmulLoop& loop) { return MatmulLoop{&cpu_ops(loop.ops->isa, profile)}; };
    return {in_profile(exact.one), in_profile(exact.few), in_profile(exact.many)};
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
