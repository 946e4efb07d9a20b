// tools/program/isa_option.h: the instruction set of a command's --isa. The bits do not depend on it.
#pragma once

#include <optional>
#include <string_view>

#include "engine/base/result.h"
#include "kernels/cpu/ops/cpu_ops.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace verbatim::tools {

// "auto": none, the executor chooses. "avx512": with VDPBF16PS or two fma, whichever is faster here; "avx512_bf16"
// requires VDPBF16PS. "avx2", "portable". Errors: no such name, or this processor lacks it.
Result<std::optional<cpu::Isa>> parse_isa(std::string_view name);

// --isa; an error of parse_isa is a usage error.
CLI::Option* add_isa_option(CLI::App& command, std::optional<cpu::Isa>& isa);

}  // namespace verbatim::tools
