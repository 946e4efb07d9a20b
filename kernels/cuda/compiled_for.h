// kernels/cuda/compiled_for.h: owns what follows from the architectures that the kernels are compiled for, as CMake
// names them ("80", "90a", "90a-real"), separated by commas.
//
//   A1  warpgroups are in code for 90a alone: the same kernels for 80 or 90 compile them to nothing, and a device of
//       capability 9.0 would run those without a word
#pragma once

#include <string_view>

namespace verbatim::cuda {

[[nodiscard]] constexpr bool has_warpgroup_code(std::string_view architectures) {
    while (!architectures.empty()) {
        const size_t end = architectures.find(',');
        const std::string_view one = architectures.substr(0, end);
        if (one.substr(0, one.find('-')) == "90a") return true;
        architectures = end == std::string_view::npos ? std::string_view() : architectures.substr(end + 1);
    }
    return false;
}

}  // namespace verbatim::cuda
