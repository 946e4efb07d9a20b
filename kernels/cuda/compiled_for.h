// kernels/cuda/compiled_for.h: owns what follows from the compiled architectures, a comma-separated list as in CMake
// ("80", "90a", "90a-real").
//
//   A1  only code for 90a contains warpgroups: code for 80 or 90 compiles these kernels to nothing, and a device of
//       compute capability 9.0 would run the empty kernels without an error
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
