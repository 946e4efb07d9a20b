#include "kernels/simt/ptx_conversions.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/simt/ptx_values.h"

namespace verbatim::simt {

// "cvt.rn.bf16x2.f32 d, upper, lower"
void convert_pair(PtxThread& thread, const PtxInstruction& one) {
    const std::string element = one.words[1].substr(0, one.words[1].find('x'));
    const uint64_t upper = ptx_from_float(element, ptx_float(thread.value(one.operands[1])));
    thread.set(one.operands[0], upper << 16 | ptx_from_float(element, ptx_float(thread.value(one.operands[2]))));
}
void convert_floats(PtxThread& thread, const PtxInstruction& one) {
    thread.set(one.operands[0],
               ptx_from_float(one.words[1], ptx_to_float(one.words[2], thread.value(one.operands[1]))));
}
void convert_integers(PtxThread& thread, const PtxInstruction& one) {
    const std::string &to = one.words[1], &from = one.words[2];
    const uint64_t bits = thread.value(one.operands[1]);
    const uint64_t wide =
        from[0] == 's' ? static_cast<uint64_t>(ptx_signed(bits, ptx_bits(from))) : ptx_cut(bits, ptx_bits(from));
    thread.set(one.operands[0], ptx_cut(wide, ptx_bits(to)));
}
void from_integer(PtxThread& thread, const PtxInstruction& one) {
    const uint64_t bits = thread.value(one.operands[1]);
    const bool is_signed = one.words[1][0] == 's';
    const int size = ptx_bits(one.words[1]);
    thread.set(one.operands[0], ptx_of(is_signed ? static_cast<float>(ptx_signed(bits, size))
                                                 : static_cast<float>(ptx_cut(bits, size))));
}

// Towards nearest even, zero, down or up; what is beyond the integers becomes the nearest one, a NaN zero.
void to_integer(PtxThread& thread, const PtxInstruction& one) {
    const auto x = static_cast<double>(ptx_float(thread.value(one.operands[1])));
    const std::string &how = one.words[1], &type = one.words[2];
    const int bits = ptx_bits(type);
    const bool is_signed = type[0] == 's';
    const double whole = how == "rni"   ? std::nearbyint(x)
                         : how == "rzi" ? std::trunc(x)
                         : how == "rmi" ? std::floor(x)
                                        : std::ceil(x);
    const double least = is_signed ? -std::ldexp(1.0, bits - 1) : 0;
    const double end = std::ldexp(1.0, is_signed ? bits - 1 : bits);
    uint64_t result = 0;
    if (whole >= end) {
        result = (is_signed ? uint64_t{1} << (bits - 1) : uint64_t{2} << (bits - 1)) - 1;
    } else if (!std::isnan(x)) {
        result = is_signed ? static_cast<uint64_t>(static_cast<int64_t>(std::max(whole, least)))
                           : static_cast<uint64_t>(std::max(whole, least));
    }
    thread.set(one.operands[0], ptx_cut(result, std::max(bits, 32)));  // narrow ones are extended
}

}  // namespace verbatim::simt
