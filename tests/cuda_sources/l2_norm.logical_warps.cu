// Heads by logical warps: cub::WarpReduce over as many lanes as a head needs, several heads in a warp, loads and stores
// through cub::WarpLoad and WarpStore, which transpose.
#include <cuda_runtime.h>
#include <cub/warp/warp_load.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_store.cuh>

#include "kernels/sandbox/kernel.h"

namespace {

constexpr int kBlockThreads = 128;

template <int LOGICAL_WARP, int ITEMS>
__global__ void l2norm_fwd_kernel(float* __restrict__ x, const int64_t stride, const int rows, const int heads,
                                  const int dim, const float scale, const float eps) {
    using WarpLoad = cub::WarpLoad<float, ITEMS, cub::WARP_LOAD_TRANSPOSE, LOGICAL_WARP>;
    using WarpStore = cub::WarpStore<float, ITEMS, cub::WARP_STORE_TRANSPOSE, LOGICAL_WARP>;
    using WarpReduce = cub::WarpReduce<float, LOGICAL_WARP>;
    constexpr int kWarps = kBlockThreads / LOGICAL_WARP;
    __shared__ typename WarpLoad::TempStorage load[kWarps];
    __shared__ typename WarpStore::TempStorage store[kWarps];
    __shared__ typename WarpReduce::TempStorage reduce[kWarps];

    const int warp = threadIdx.x / LOGICAL_WARP;
    const int item = blockIdx.x * kWarps + warp;
    // Logical warps behind the last head have no elements; their lanes meet the others.
    const int mine = min(item, rows * heads - 1), own = item < rows * heads ? dim : 0;
    float* const head = x + mine / heads * stride + mine % heads * dim;
    float values[ITEMS];
    WarpLoad(load[warp]).Load(head, values, own, 0.f);
    float square_sum = 0.f;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) square_sum = fmaf(values[i], values[i], square_sum);
    square_sum = WarpReduce(reduce[warp]).Sum(square_sum);
    square_sum = __shfl_sync(0xffffffff, square_sum, 0, LOGICAL_WARP);
    const float root = __fsqrt_rn(square_sum + eps);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) values[i] = __fdividef(values[i], root) * scale;
    WarpStore(store[warp]).Store(head, values, own);
}

template <int kLanes, int kItems>
void run_instance(const verbatim_l2_norm& op, cudaStream_t stream) {
    const int per_block = kBlockThreads / kLanes, heads = op.x.num_rows * op.n_heads;
    l2norm_fwd_kernel<kLanes, kItems><<<(heads + per_block - 1) / per_block, kBlockThreads, 0, stream>>>(
        op.x.data, op.x.stride, int(op.x.num_rows), int(op.n_heads), int(op.dim), op.scale, 1e-6f);
}

int32_t supports(const verbatim_kernel*, verbatim_args args) { return args.l2_norm->dim <= 512; }

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_l2_norm& op = *run->args.l2_norm;
    using Instance = void (*)(const verbatim_l2_norm&, cudaStream_t);
    static constexpr struct {
        int most;
        Instance instance;
    } kInstances[] = {
        {8, run_instance<4, 2>}, {32, run_instance<8, 4>}, {128, run_instance<16, 8>}, {512, run_instance<32, 16>}};
    for (const auto& [most, instance] : kInstances) {
        if (op.dim <= most) {
            instance(op, static_cast<cudaStream_t>(run->device));
            return 0;
        }
    }
    return 1;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "l2_norm",
    .profile = "fast",
    .machine = "cuda",
    .supports = supports,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
