// The products of exact.int8 by VPDPBUSD.
#include "kernels/cpu/ops/int8_panel.h"

#if defined(__x86_64__)

#include "kernels/cpu/ops/int8_layout.h"
#include "kernels/cpu/ops/loops_before.h"

// clang-format off
VERBATIM_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma",
                      "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,prefer-vector-width=512")
#include "kernels/cpu/ops/int8_loops.h"

namespace verbatim::cpu {
namespace {

// Masks of ones, because GCC 12 reports the plain intrinsics as reads of uninitialised values.
struct Vnni {
    static constexpr int kCount = 16;
    static constexpr int kAccumulators = 8;  // of dot products; as many of blocks, and registers left for the weights
    static constexpr int kMaxRows = 8;
    using Ints = __m512i;
    using Floats = __m512;

    static Ints zero() { return _mm512_setzero_si512(); }
    static Ints broadcast(int32_t x) { return _mm512_set1_epi32(x); }
    static Ints broadcast_word(const std::byte* x) {
        int32_t word;
        std::memcpy(&word, x, sizeof(word));
        return _mm512_set1_epi32(word);
    }
    static Ints load(const std::byte* x) { return _mm512_loadu_si512(x); }
    static Ints low_nibbles(Ints x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
    static Ints high_nibbles(Ints x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }
    template <QuantKind kind>
    static constexpr bool has_zero() { return true; }
    template <QuantKind kind>
    static Ints dot(Ints acc, Ints quants, Ints a) { return _mm512_dpbusd_epi32(acc, quants, a); }
    static Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
    static Ints mul(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
    static Ints widen(const std::byte* x) {
        return _mm512_maskz_cvtepi8_epi32(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    }
    static Ints widen_pairs(const std::byte* x) {
        return _mm512_maskz_cvtepu8_epi16(0xFFFFFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
    }
    static Ints dot_pairs(Ints a, Ints b) { return _mm512_madd_epi16(a, b); }
    static Floats halves(const std::byte* x) {
        return _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
    }
    static Floats load_floats(const std::byte* x) { return _mm512_loadu_ps(x); }
    static Floats zero_floats() { return _mm512_setzero_ps(); }
    static Floats splat(float x) { return _mm512_set1_ps(x); }
    static Floats broadcast_float(const std::byte* x) {
        float value;
        std::memcpy(&value, x, sizeof(value));
        return _mm512_set1_ps(value);
    }
    static Floats to_floats(Ints x) { return _mm512_maskz_cvtepi32_ps(0xFFFF, x); }
    static Floats mul_floats(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    static void add_to(float* x, Floats v) { _mm512_storeu_ps(x, _mm512_add_ps(_mm512_loadu_ps(x), v)); }
};

VERBATIM_LOOP void int8_panel_vnni(const Int8PanelArgs& args) { int8_panel_of<Vnni>(args); }

}  // namespace
}  // namespace verbatim::cpu
VERBATIM_TARGET_END
// clang-format on

namespace verbatim::cpu {

void int8_panel_avx512(const Int8PanelArgs& args) {
    static const bool has_vnni = __builtin_cpu_supports("avx512vnni") > 0;
    has_vnni ? int8_panel_vnni(args) : int8_panel_avx2(args);
}

}  // namespace verbatim::cpu

#endif
