// A norm whose shared memory is a struct: pairs of a sum and its thread, bytes that threads write into words of others,
// and halves that cub::BlockExchange brings to stripes; a row that these find changed becomes NaN.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cub/cub.cuh>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kThreads = 64, kItems = 3;

struct Partial {
    float sum;
    int thread;
};
struct Later {
    __device__ Partial operator()(const Partial& a, const Partial& b) const { return a.thread > b.thread ? a : b; }
};
template <typename T, int N>
struct Tile {
    T data[N];
    __device__ T& operator[](int i) { return data[i]; }
};

__global__ void __launch_bounds__(kThreads)
    norm_kernel(const float* __restrict__ x, const float* __restrict__ weight, float* __restrict__ out,
                int64_t x_stride, int64_t out_stride, int width, float eps) {
    using Exchange = cub::BlockExchange<__half, kThreads, kItems>;
    using Reduce = cub::BlockReduce<Partial, kThreads>;
    __shared__ struct {
        Partial partials[kThreads];
        Tile<unsigned char, kThreads> marks;
        Tile<__half, kThreads> numbers;
        Partial last;
        union {
            typename Exchange::TempStorage exchange;
            typename Reduce::TempStorage reduce;
        };
    } shared;
    __shared__ unsigned packed[kThreads / 4 > 1 ? kThreads / 4 : 1];
    const int thread = threadIdx.x, other = kThreads - 1 - thread;
    const float* const row = x + blockIdx.x * x_stride;
    float mine = 0.f;
    for (int i = thread; i < width; i += kThreads) mine = fmaf(row[i], row[i], mine);
    shared.partials[thread] = Partial{mine, thread};
    shared.marks[thread] = thread;
    shared.numbers[thread] = __int2half_rn(thread);
    reinterpret_cast<unsigned char*>(packed)[thread] = thread;
    __syncthreads();

    const Partial theirs = shared.partials[other];
    bool is_right = theirs.thread == other && shared.marks[other] == other &&
                    __half2int_rn(shared.numbers[other]) == other &&
                    packed[thread / 4] == 0x03020100u + thread / 4 * 0x04040404u;
    __half items[kItems];
    for (int i = 0; i < kItems; ++i) items[i] = __int2half_rn(thread * kItems + i);
    Exchange(shared.exchange).BlockedToStriped(items, items);
    for (int i = 0; i < kItems; ++i) is_right &= __half2int_rn(items[i]) == i * kThreads + thread;
    __syncthreads();
    const Partial last = Reduce(shared.reduce).Reduce(shared.partials[thread], Later());
    if (thread == 0) shared.last = last;
    is_right = __syncthreads_and(is_right);
    float sum = 0.f;
    for (int i = 0; i < kThreads; ++i) sum += shared.partials[i].sum;
    const float scale = is_right && shared.last.thread == kThreads - 1 ? rsqrtf(sum / width + eps) : NAN;
    for (int i = thread; i < width; i += kThreads) out[blockIdx.x * out_stride + i] = row[i] * scale * weight[i];
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    norm_kernel<<<op.x.num_rows, kThreads, 0, static_cast<cudaStream_t>(run->device)>>>(
        op.x.data, op.weight, op.out.data, op.x.stride, op.out.stride, int(op.x.width), op.eps);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "rms_norm",
    .profile = "fast",
    .machine = "cuda",
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
