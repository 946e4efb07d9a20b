// kernels/cpu/int8_panels.h: owns the repacking of weights in blocks for the profile exact.int8
// (kernels/cpu/ops/int8_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/ops/int8_layout.h"
#include "reference/model/weights.h"

namespace verbatim::cpu {

// Null: the type has no integers, and exact.int8 computes it as exact does.
const Int8Layout* find_int8_layout(const reference::BlockFormat& format);
// Of the matrix's panels; 0: it is bf16, or its type has no layout.
int64_t int8_bytes_of(const reference::MatrixView& weight);
// Writes the panel. Outputs beyond the matrix get scales of 0. REQUIRES: int8_bytes_of(blocks) > 0.
void pack_int8(const reference::MatrixView& blocks, int64_t panel, std::byte* out);

}  // namespace verbatim::cpu
