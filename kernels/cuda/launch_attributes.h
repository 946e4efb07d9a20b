// kernels/cuda/launch_attributes.h: owns what a launch tells CUDA of a kernel beside its size, by what the kernel says
// of itself (simt/simt.h):
//
//   L1  kDependent: it may begin before the kernels before it have ended, where its code waits for them
//   L2  kBlocksMeet: all of its blocks are there at once. CUDA refuses a grid of more blocks than it can hold; without
//       being told, it would let the first ones wait for the others for ever
#pragma once

#include <cuda_runtime.h>

namespace verbatim::cuda {

template <typename Kernel>
constexpr bool is_dependent() {
    if constexpr (requires { Kernel::kDependent; }) return Kernel::kDependent;
    return false;
}
template <typename Kernel>
constexpr bool blocks_meet() {
    if constexpr (requires { Kernel::kBlocksMeet; }) return Kernel::kBlocksMeet;
    return false;
}

class LaunchAttributes {
public:
    // kernels_wait: the device's code has wait_previous().
    template <typename Kernel>
    static LaunchAttributes of(bool kernels_wait) {
        static_assert(!is_dependent<Kernel>() || !blocks_meet<Kernel>(), "blocks of one that begins early may not fit");
        LaunchAttributes attributes;
        if (is_dependent<Kernel>() && kernels_wait) {
            attributes.only_.id = cudaLaunchAttributeProgrammaticStreamSerialization;
            attributes.only_.val.programmaticStreamSerializationAllowed = 1;
            attributes.count_ = 1;
        } else if (blocks_meet<Kernel>()) {
            attributes.only_.id = cudaLaunchAttributeCooperative;
            attributes.only_.val.cooperative = 1;
            attributes.count_ = 1;
        }
        return attributes;
    }
    // Borrowed: until the launch is asked for.
    void put_into(cudaLaunchConfig_t& config) {
        config.attrs = count_ > 0 ? &only_ : nullptr;
        config.numAttrs = count_;
    }

private:
    cudaLaunchAttribute only_{};
    unsigned count_ = 0;
};

}  // namespace verbatim::cuda
