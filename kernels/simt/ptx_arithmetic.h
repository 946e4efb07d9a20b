// kernels/simt/ptx_arithmetic.h: owns what PTX's integer, float and atomic operations compute, without registers and
// memory.
#pragma once

#include <cstdint>
#include <string>

namespace verbatim::simt {

// "add", "shl", ...; `mad` without its addend. Operands are extended from `bits` by their sign.
[[nodiscard]] int64_t ptx_of_integers(const std::string& what, int64_t a, int64_t b, int bits, bool is_signed);
// `bfe`: `length` bits of `from` from bit `first` on, extended by its last one if it is signed. `bfi`: the same bits of
// `to` are the lowest ones of `from`.
[[nodiscard]] uint64_t ptx_extracted(uint64_t from, uint32_t first, uint32_t length, int bits, bool is_signed);
[[nodiscard]] uint64_t ptx_inserted(uint64_t from, uint64_t to, uint32_t first, uint32_t length, int bits);
// "add", "fma", "ex2", ... in binary32; an operation takes as many operands as it has.
[[nodiscard]] float ptx_of_floats(const std::string& what, float a, float b, float c);
// What an atomic operation leaves ("add", "exch", "inc", ...), of a type ("u32", "f32", "bf16x2", ...) in its bits.
[[nodiscard]] uint64_t ptx_changed(const std::string& how, const std::string& type, uint64_t before, uint64_t with);

}  // namespace verbatim::simt
