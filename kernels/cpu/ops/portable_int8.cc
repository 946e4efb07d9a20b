// The products of exact.int8 in plain code, four outputs at a time.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/ops/int8_loops.h"
#include "kernels/cpu/ops/int8_panel.h"
#include "reference/numerics/half.h"
#include "reference/numerics/math.h"

namespace verbatim::cpu {
namespace {

struct PortableInts {
    static constexpr int kCount = 4;
    static constexpr int kAccumulators = 4;
    static constexpr int kMaxRows = 4;
    using Ints = int32_t __attribute__((vector_size(16)));
    using Floats = float __attribute__((vector_size(16)));

    static Ints zero() { return Ints{}; }
    static Ints broadcast(int32_t x) { return Ints{x, x, x, x}; }
    static Ints broadcast_word(const std::byte* x) {
        int32_t word;
        std::memcpy(&word, x, sizeof(word));
        return broadcast(word);
    }
    static Ints load(const std::byte* x) {
        Ints words;
        std::memcpy(&words, x, sizeof(words));
        return words;
    }
    static Ints low_nibbles(Ints x) { return x & 0x0F0F0F0F; }
    static Ints high_nibbles(Ints x) { return x >> 4 & 0x0F0F0F0F; }
    template <QuantKind kind>
    static constexpr bool has_zero() {
        return true;
    }
    template <QuantKind kind>
    static Ints dot(Ints acc, Ints quants, Ints a) {
        for (int i = 0; i < 4; ++i) acc += (quants >> (8 * i) & 0xFF) * (a << (24 - 8 * i) >> 24);
        return acc;
    }
    static Ints add(Ints a, Ints b) { return a + b; }
    static Ints mul(Ints a, Ints b) { return a * b; }
    static Ints widen(const std::byte* x) {
        Ints words;
        // NOLINTNEXTLINE(bugprone-signed-char-misuse): quants are signed
        for (int i = 0; i < kCount; ++i) words[i] = std::to_integer<int8_t>(x[i]);
        return words;
    }
    static Ints widen_pairs(const std::byte* x) {
        Ints words;
        for (int i = 0; i < kCount; ++i)
            words[i] = std::to_integer<int32_t>(x[2 * i]) | std::to_integer<int32_t>(x[2 * i + 1]) << 16;
        return words;
    }
    static Ints dot_pairs(Ints a, Ints b) { return (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16); }
    static Floats halves(const std::byte* x) {
        Floats values;
        for (int i = 0; i < kCount; ++i) {
            uint16_t half;
            std::memcpy(&half, x + 2 * i, sizeof(half));
            values[i] = reference::half_to_float(half);
        }
        return values;
    }
    static Floats load_floats(const std::byte* x) {
        Floats values;
        std::memcpy(&values, x, sizeof(values));
        return values;
    }
    static Floats zero_floats() { return Floats{}; }
    static Floats splat(float x) { return Floats{x, x, x, x}; }
    static Floats broadcast_float(const std::byte* x) {
        float value;
        std::memcpy(&value, x, sizeof(value));
        return splat(value);
    }
    static Floats to_floats(Ints x) { return __builtin_convertvector(x, Floats); }
    static Floats mul_floats(Floats a, Floats b) { return a * b; }
    static Floats fma(Floats a, Floats b, Floats c) {
        for (int i = 0; i < kCount; ++i) c[i] = reference::fma_f32(a[i], b[i], c[i]);
        return c;
    }
    static void add_to(float* x, Floats v) {
        for (int i = 0; i < kCount; ++i) x[i] += v[i];
    }
};

}  // namespace

void int8_panel_portable(const Int8PanelArgs& args) { int8_panel_of<PortableInts>(args); }

}  // namespace verbatim::cpu
