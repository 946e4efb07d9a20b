#include "tests/gpu/device_numerics.h"

#include <cuda_runtime.h>

#include "reference/numerics/math.h"

namespace verbatim::cuda {
namespace {

__device__ uint32_t bits(float x) { return reference::bits_from_float(x); }

__global__ void fma_kernel(const FloatTriple* in, uint32_t* out, uint32_t count) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = bits(reference::fma_f32(in[i].a, in[i].b, in[i].c));
}

__global__ void unary_kernel(UnaryFunction function, Inputs inputs, uint32_t* out) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= inputs.count) return;
    const float x = reference::float_from_bits(inputs.first + i * inputs.step);
    switch (function) {
        case UnaryFunction::kExp: out[i] = bits(reference::exp_f32(x)); break;
        case UnaryFunction::kSilu: out[i] = bits(reference::silu_f32(x)); break;
        case UnaryFunction::kSoftplus: out[i] = bits(reference::softplus_f32(x)); break;
        case UnaryFunction::kSqrt: out[i] = bits(reference::sqrt_f32(x)); break;
        case UnaryFunction::kReciprocal: out[i] = bits(1.0F / x); break;
    }
}

__device__ uint32_t pair(const uint16_t* at) { return at[0] | static_cast<uint32_t>(at[1]) << 16; }

// One warp per tile; the fragments' places are PTX's for m16n8k16.
__global__ void mma_kernel(const TensorTile* in, TensorSums* out) {
    const TensorTile& tile = in[blockIdx.x];
    const int row = static_cast<int>(threadIdx.x) / 4;
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    const uint32_t a0 = pair(&tile.a[row][column]);
    const uint32_t a1 = pair(&tile.a[row + 8][column]);
    const uint32_t a2 = pair(&tile.a[row][column + 8]);
    const uint32_t a3 = pair(&tile.a[row + 8][column + 8]);
    const uint32_t b0 = pair(&tile.b[row][column]);
    const uint32_t b1 = pair(&tile.b[row][column + 8]);
    float d0 = tile.c[row][column];
    float d1 = tile.c[row][column + 1];
    float d2 = tile.c[row + 8][column];
    float d3 = tile.c[row + 8][column + 1];
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    TensorSums& result = out[blockIdx.x];
    result.d[row][column] = d0;
    result.d[row][column + 1] = d1;
    result.d[row + 8][column] = d2;
    result.d[row + 8][column + 1] = d3;
}

// `in` to the device, `run(in, out)` there, `out` back.
template <typename In, typename Out, typename Run>
std::string on_device(const std::vector<In>& in, std::vector<Out>& out, const Run& run) {
    cudaGetLastError();  // errors of before
    In* device_in = nullptr;
    Out* device_out = nullptr;
    cudaError_t status = cudaMalloc(&device_in, in.size() * sizeof(In));
    if (status == cudaSuccess) status = cudaMalloc(&device_out, out.size() * sizeof(Out));
    if (status == cudaSuccess) {
        status = cudaMemcpy(device_in, in.data(), in.size() * sizeof(In), cudaMemcpyHostToDevice);
    }
    if (status == cudaSuccess) {
        run(device_in, device_out);
        status = cudaGetLastError();
    }
    if (status == cudaSuccess) {
        status = cudaMemcpy(out.data(), device_out, out.size() * sizeof(Out), cudaMemcpyDeviceToHost);
    }
    cudaFree(device_in);
    cudaFree(device_out);
    return status == cudaSuccess ? "" : cudaGetErrorString(status);
}

constexpr uint32_t kThreads = 256;
uint32_t blocks_for(uint32_t count) { return (count + kThreads - 1) / kThreads; }

}  // namespace

std::string device_fma(const std::vector<FloatTriple>& in, std::vector<uint32_t>& out) {
    const auto count = static_cast<uint32_t>(in.size());
    out.resize(count);
    return on_device(in, out, [&](const FloatTriple* from, uint32_t* to) {
        fma_kernel<<<blocks_for(count), kThreads>>>(from, to, count);
    });
}

std::string device_unary(UnaryFunction function, const Inputs& inputs, std::vector<uint32_t>& out) {
    out.resize(inputs.count);
    const std::vector<uint32_t> nothing(1);
    return on_device(nothing, out, [&](const uint32_t*, uint32_t* to) {
        unary_kernel<<<blocks_for(inputs.count), kThreads>>>(function, inputs, to);
    });
}

std::string device_mma(const std::vector<TensorTile>& in, std::vector<TensorSums>& out) {
    out.resize(in.size());
    return on_device(in, out, [&](const TensorTile* from, TensorSums* to) {
        mma_kernel<<<static_cast<unsigned>(in.size()), 32>>>(from, to);
    });
}

}  // namespace verbatim::cuda
