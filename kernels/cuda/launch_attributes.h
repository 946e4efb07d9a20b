// kernels/cuda/launch_attributes.h: owns the launch attributes that follow from a kernel's declarations (simt/simt.h):
//
//   L1  kDependent: programmatic dependent launch: the kernel may start before the previous kernels have ended, and its
//       code waits for them where it must
//   L2  kCooperative: cooperative launch: all CTAs are resident at once. CUDA refuses a grid that does not fit; without
//       the attribute the first CTAs would wait forever for the later ones
#pragma once

#include <cuda_runtime.h>

namespace verbatim::cuda {

template <typename Kernel>
constexpr bool is_dependent() {
    if constexpr (requires { Kernel::kDependent; }) return Kernel::kDependent;
    return false;
}
template <typename Kernel>
constexpr bool is_cooperative() {
    if constexpr (requires { Kernel::kCooperative; }) return Kernel::kCooperative;
    return false;
}

class LaunchAttributes {
public:
    // kernels_wait: the device's code contains wait_previous().
    template <typename Kernel>
    static LaunchAttributes of(bool kernels_wait) {
        static_assert(!is_dependent<Kernel>() || !is_cooperative<Kernel>(),
                      "blocks of one that begins early may not fit");
        LaunchAttributes attributes;
        if (is_dependent<Kernel>() && kernels_wait) {
            attributes.only_.id = cudaLaunchAttributeProgrammaticStreamSerialization;
            attributes.only_.val.programmaticStreamSerializationAllowed = 1;
            attributes.count_ = 1;
        } else if (is_cooperative<Kernel>()) {
            attributes.only_.id = cudaLaunchAttributeCooperative;
            attributes.only_.val.cooperative = 1;
            attributes.count_ = 1;
        }
        return attributes;
    }
    // Borrowed until the launch call returns.
    void put_into(cudaLaunchConfig_t& config) {
        config.attrs = count_ > 0 ? &only_ : nullptr;
        config.numAttrs = count_;
    }

private:
    cudaLaunchAttribute only_{};
    unsigned count_ = 0;
};

}  // namespace verbatim::cuda
