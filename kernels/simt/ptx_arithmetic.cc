#include "kernels/simt/ptx_arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "kernels/simt/ptx_values.h"

namespace verbatim::simt {

int64_t ptx_of_integers(const std::string& what, int64_t a, int64_t b, int bits, bool is_signed) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    if (what == "add") return static_cast<int64_t>(x + y);
    if (what == "sub") return static_cast<int64_t>(x - y);
    if (what == "mul" || what == "mad") return static_cast<int64_t>(x * y);
    if (what == "and") return a & b;
    if (what == "or") return a | b;
    if (what == "xor") return a ^ b;
    const bool is_less = is_signed ? a < b : x < y;
    if (what == "min") return is_less ? a : b;
    if (what == "max") return is_less ? b : a;
    if (what == "not") return ~a;
    if (what == "abs") return a < 0 ? static_cast<int64_t>(0 - x) : a;
    if (what == "neg") return static_cast<int64_t>(0 - x);
    const auto by = static_cast<int64_t>(std::min<uint64_t>(ptx_cut(y, 32), 64));
    if (what == "shl") return by >= bits ? 0 : static_cast<int64_t>(x << by);
    if (is_signed) return by >= bits ? (a < 0 ? -1 : 0) : a >> by;
    return by >= bits ? 0 : static_cast<int64_t>(x >> by);
}

uint64_t ptx_extracted(uint64_t from, uint32_t first, uint32_t length, int bits, bool is_signed) {
    const auto size = static_cast<uint32_t>(bits);
    if (length == 0) return 0;
    const uint32_t last = std::min(first + length, size) - 1;  // may be before the first one
    const uint64_t sign = is_signed ? from >> std::min(last, size - 1) & 1U : 0;
    uint64_t result = 0;
    for (uint32_t i = 0; i < size; ++i) {
        const bool is_inside = i < length && first + i < size;
        result |= (is_inside ? from >> (first + i) & 1U : sign) << i;
    }
    return result;
}

uint64_t ptx_inserted(uint64_t from, uint64_t to, uint32_t first, uint32_t length, int bits) {
    for (uint32_t i = 0; i < length && first + i < static_cast<uint32_t>(bits); ++i) {
        const uint64_t bit = uint64_t{1} << (first + i);
        to = (from >> i & 1U) != 0 ? to | bit : to & ~bit;
    }
    return to;
}

float ptx_of_floats(const std::string& what, float a, float b, float c) {
    if (what == "add") return a + b;
    if (what == "sub") return a - b;
    if (what == "mul") return a * b;
    if (what == "fma") return std::fma(a, b, c);
    if (what == "min") return std::fmin(a, b);
    if (what == "max") return std::fmax(a, b);
    if (what == "neg") return -a;
    if (what == "abs") return std::fabs(a);
    if (what == "copysign") return std::copysign(b, a);
    if (what == "ex2") return std::exp2(a);
    if (what == "lg2") return std::log2(a);
    if (what == "rcp") return 1.0F / a;
    if (what == "sqrt") return std::sqrt(a);
    if (what == "rsqrt") return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a)));
    if (what == "tanh") return std::tanh(a);
    if (what == "div") return a / b;
    return what == "sin" ? std::sin(a) : std::cos(a);
}

uint64_t ptx_changed(const std::string& how, const std::string& type, uint64_t before, uint64_t with) {
    const int bits = ptx_bits(type);
    if (how == "exch") return with;
    if (how == "inc") return before >= with ? 0 : before + 1;
    if (how == "dec") return before == 0 || before > with ? with : before - 1;
    if (type == "f64") return std::bit_cast<uint64_t>(std::bit_cast<double>(before) + std::bit_cast<double>(with));
    if (type[0] == 'f' || type.starts_with("bf")) {
        const std::string element = type.substr(0, type.find('x'));
        uint64_t result = 0;
        for (int half = 0; half < (type.ends_with("x2") ? 2 : 1); ++half) {
            const float sum = ptx_of_floats(how, ptx_to_float(element, before >> (16 * half)),
                                            ptx_to_float(element, with >> (16 * half)), 0);
            result |= ptx_cut(ptx_from_float(element, sum), element == "f32" ? 32 : 16) << (16 * half);
        }
        return result;
    }
    const bool is_signed = type[0] == 's';
    const auto of = [&](uint64_t value) { return is_signed ? ptx_signed(value, bits) : static_cast<int64_t>(value); };
    return ptx_cut(static_cast<uint64_t>(ptx_of_integers(how, of(before), of(with), bits, is_signed)), bits);
}

}  // namespace verbatim::simt
