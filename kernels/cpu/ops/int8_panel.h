// kernels/cpu/ops/int8_panel.h: owns the products of exact.int8 for each instruction set. All give the same bits.
#pragma once

#include "kernels/cpu/ops/int8_layout.h"

namespace verbatim::cpu {

void int8_panel_portable(const Int8PanelArgs& args);
#if defined(__x86_64__)
void int8_panel_avx2(const Int8PanelArgs& args);
// By VPDPBUSD; with AVX2 on processors without AVX-512 VNNI.
void int8_panel_avx512(const Int8PanelArgs& args);
#endif

}  // namespace verbatim::cpu
