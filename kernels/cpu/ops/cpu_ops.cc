#include "kernels/cpu/ops/cpu_ops.h"

#include <algorithm>
#include <vector>

#include "engine/base/check.h"
#include "kernels/cpu/ops/portable.h"

namespace verbatim::cpu {

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
    static const std::vector<Isa> isas = {Isa::kPortable};
    return isas;
}

const CpuOps& cpu_ops(Isa isa) {
    static const CpuOps portable{false, panel_portable, attend_tile_portable, scan_token_portable};
    const auto isas = supported_isas();
    CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end(), "{} is not supported here", isa_name(isa));
    return portable;
}

}  // namespace verbatim::cpu
