#include "kernels/sandbox/builtin_kernels.h"

#include <algorithm>

#include "kernels/sandbox/builtin_parts.h"

namespace verbatim::sandbox {

const std::vector<const verbatim_kernel*>& builtin_kernels() {
    static const std::vector<const verbatim_kernel*> kKernels = [] {
        std::vector<const verbatim_kernel*> kernels;
        add_reference_kernels(kernels);
        add_cpu_kernels(kernels);
        add_emulated_kernels(kernels);
        return kernels;
    }();
    return kKernels;
}

const verbatim_kernel* reference_kernel(std::string_view operation, std::string_view profile) {
    static const std::vector<const verbatim_kernel*> kKernels = [] {
        std::vector<const verbatim_kernel*> kernels;
        add_reference_kernels(kernels);
        return kernels;
    }();
    const auto is_meant = [&](const verbatim_kernel* kernel) {
        return kernel->operation == operation && kernel->profile == profile;
    };
    const auto found = std::ranges::find_if(kKernels, is_meant);
    return found == kKernels.end() ? nullptr : *found;
}

}  // namespace verbatim::sandbox
