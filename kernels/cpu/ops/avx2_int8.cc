// The products of exact.int8 with AVX2.
#include "kernels/cpu/ops/int8_panel.h"

#if defined(__x86_64__)

#include "kernels/cpu/ops/int8_layout.h"
#include "kernels/cpu/ops/loops_before.h"

// clang-format off
VERBATIM_TARGET_BEGIN("avx2,fma", "avx2,fma")
#include "kernels/cpu/ops/int8_loops.h"

namespace verbatim::cpu {
namespace {

struct Int8Avx2 {
    static constexpr int kCount = 8;
    static constexpr int kAccumulators = 4;
    static constexpr int kMaxRows = 4;
    using Ints = __m256i;
    using Floats = __m256;

    static Ints zero() { return _mm256_setzero_si256(); }
    static Ints broadcast(int32_t x) { return _mm256_set1_epi32(x); }
    static Ints broadcast_word(const std::byte* x) {
        int32_t word;
        std::memcpy(&word, x, sizeof(word));
        return _mm256_set1_epi32(word);
    }
    static Ints load(const std::byte* x) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)); }
    static Ints low_nibbles(Ints x) { return _mm256_and_si256(x, _mm256_set1_epi8(15)); }
    static Ints high_nibbles(Ints x) { return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15)); }
    // The sum of two products is at most 2 · 63 · 127, and 2 · 128 · 127 of wide bytes: VPMADDUBSW does not saturate.
    // Wide bytes get their sign back, and give it to the other factor.
    template <QuantKind kind>
    static constexpr bool has_zero() { return kind != QuantKind::kWideBytes; }
    template <QuantKind kind>
    static Ints dot(Ints acc, Ints quants, Ints a) {
        Ints two;
        if constexpr (kind == QuantKind::kWideBytes) {
            const Ints weights = _mm256_xor_si256(quants, _mm256_set1_epi8(-128));
            two = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(a, weights));
        } else {
            two = _mm256_maddubs_epi16(quants, a);
        }
        return _mm256_add_epi32(acc, _mm256_madd_epi16(two, _mm256_set1_epi16(1)));
    }
    static Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
    static Ints mul(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
    static Ints widen(const std::byte* x) {
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(x)));
    }
    static Ints widen_pairs(const std::byte* x) {
        return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    }
    static Ints dot_pairs(Ints a, Ints b) { return _mm256_madd_epi16(a, b); }
    // reference/numerics/half.h; F16C is another extension.
    static Floats halves(const std::byte* x) {
        const Ints words = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
        const Ints magnitude = _mm256_and_si256(words, _mm256_set1_epi32(0x7FFF));
        const Ints sign = _mm256_slli_epi32(_mm256_xor_si256(words, magnitude), 16);
        const Ints infinite = _mm256_and_si256(_mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7BFF)),
                                               _mm256_set1_epi32(0x7F800000));
        const Floats scaled = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 13)),
                                            _mm256_set1_ps(0x1p112F));
        return _mm256_castsi256_ps(_mm256_or_si256(_mm256_or_si256(_mm256_castps_si256(scaled), infinite), sign));
    }
    static Floats load_floats(const std::byte* x) { return _mm256_loadu_ps(reinterpret_cast<const float*>(x)); }
    static Floats zero_floats() { return _mm256_setzero_ps(); }
    static Floats splat(float x) { return _mm256_set1_ps(x); }
    static Floats broadcast_float(const std::byte* x) {
        float value;
        std::memcpy(&value, x, sizeof(value));
        return _mm256_set1_ps(value);
    }
    static Floats to_floats(Ints x) { return _mm256_cvtepi32_ps(x); }
    static Floats mul_floats(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    static void add_to(float* x, Floats v) { _mm256_storeu_ps(x, _mm256_add_ps(_mm256_loadu_ps(x), v)); }
};

VERBATIM_LOOP void int8_panel_in_avx2(const Int8PanelArgs& args) { int8_panel_of<Int8Avx2>(args); }

}  // namespace
}  // namespace verbatim::cpu
VERBATIM_TARGET_END
// clang-format on

namespace verbatim::cpu {

void int8_panel_avx2(const Int8PanelArgs& args) { int8_panel_in_avx2(args); }

}  // namespace verbatim::cpu

#endif
