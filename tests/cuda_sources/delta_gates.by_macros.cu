// Elementwise kernels that macros write, one for each function, as frameworks have them: a name is pasted together, and
// a table of launchers chooses.
#include <cuda_runtime.h>

#include "kernels/sandbox/kernel.h"

namespace {

#define DEVICE_INLINE __device__ __forceinline__
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define CUDA_KERNEL_LOOP(i, n) \
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)

DEVICE_INLINE float sigmoid_of(float v, float, float) { return 1.f / (1.f + expf(-v)); }
DEVICE_INLINE float softplus(float v) { return v > 20.f ? v : log1pf(expf(v)); }
DEVICE_INLINE float decay_of(float v, float bias, float rate) { return expf(softplus(v + bias) * rate); }

#define ELEMENTWISE(name)                                                                                   \
    __global__ void name##_kernel(float* x, int64_t stride, int rows, int width, const float* bias,         \
                                  const float* rate) {                                                      \
        CUDA_KERNEL_LOOP(i, int64_t(rows) * width) {                                                        \
            const int column = i % width;                                                                   \
            float& value = x[i / width * stride + column];                                                  \
            value = name##_of(value, __ldg(bias + column), __ldg(rate + column));                           \
        }                                                                                                   \
    }                                                                                                       \
    void launch_##name(float* x, int64_t stride, int rows, int width, const float* bias, const float* rate, \
                       cudaStream_t stream) {                                                               \
        name##_kernel<<<CEIL_DIV(rows* width, 128), 128, 0, stream>>>(x, stride, rows, width, bias, rate);  \
    }

ELEMENTWISE(sigmoid)
ELEMENTWISE(decay)

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_delta_gates& op = *run->args.delta_gates;
    const auto stream = static_cast<cudaStream_t>(run->device);
    for (const auto& [launch, tensor] : {std::pair{&launch_sigmoid, op.b}, std::pair{&launch_decay, op.a}})
        launch(tensor.data, tensor.stride, tensor.num_rows, tensor.width, op.dt_bias, op.rate, stream);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "delta_gates",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
