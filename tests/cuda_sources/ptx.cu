// Inline PTX as authors write it, asserted by the kernel itself, and __device__ variables, before a plain RMSNorm.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <cassert>
#include <cmath>
#include <cstring>

#include "kernels/sandbox/kernel.h"

#define LDMATRIX_X2_T(R0, R1, addr) \
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n" : "=r"(R0), "=r"(R1) : "r"(addr))

#define ADD "add.s32"
#define SUFFIX " %0, %1, %2;"
#define R_IN(x) "r"(x)
#define OUT(x) "=r"(x)
#define INPUTS R_IN(3), R_IN(threadIdx.x)
#define BINARY(op, to, a, b) asm volatile("{ // a comment\n" #op ".s32 %0, %1, %2;\n}" : "=r"(to) : "r"(a), R_IN(b))
#define ADD_TWICE(to, a) BINARY(add, to, a, a)
#ifdef __x86_64__
#define WORD_CONSTRAINT "r"
#else
#define WORD_CONSTRAINT "h"
#endif
#define ALL_OF_IT "add.s32 %0, %0, 1;" : "+r"(sum)

__device__ unsigned long long rows_done = 0, unused_counter;
__device__ float factors[2][4];
__device__ __align__(16) unsigned rows_written[64];
__device__ volatile unsigned int blocks_done = 0;
__device__ unsigned int tickets;
__constant__ float divisor;

__device__ uint32_t pack(int low, int high) { return uint32_t(low) | uint32_t(high) << 16; }

__device__ void check_values() {
    uint32_t lane, low, high, word, chosen;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    assert(lane == threadIdx.x % 32);
    asm volatile(
        "{\n"
        "  .reg .b16 lo, hi;\n"
        "  mov.b32 {lo, hi}, %2;  // the halves\n"
        "  cvt.u32.u16 %0, lo;\n"
        "  cvt.u32.u16 %1, hi;\n"
        "}\n"
        : "=r"(low), "=r"(high)
        : "r"(0x12345678));
    assert(low == 0x5678 && high == 0x1234);
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(1.0f), "f"(-2.0f));
    assert(word == 0xC0003F80);
    asm("{ .reg .pred p; setp.lt.s32 p, %1, %2; selp.b32 %0, 7, 9, p; }" : "=r"(chosen) : "r"(-1), "r"(1));
    assert(chosen == 7);
    int nearest, cut;
    asm("cvt.rni.sat.s8.f32 %0, %2; cvt.rzi.u32.f32 %1, %3;" : "=r"(nearest), "=r"(cut) : "f"(-2.5f), "f"(3.9f));
    assert(nearest == -2 && cut == 3);
    asm("cvt.rni.sat.s8.f32 %0, %2; cvt.rmi.s32.f32 %1, %3;" : "=r"(nearest), "=r"(cut) : "f"(200.f), "f"(-3.1f));
    assert(nearest == 127 && cut == -4);
    asm("bfe.u32 %0, %2, 8, 12; bfe.s32 %1, %2, 12, 8;" : "=r"(low), "=r"(high) : "r"(0x8FEDCBA9));
    assert(low == 0xDCB && high == 0xFFFFFFDC);
    asm("bfe.s32 %0, %2, 28, 8; bfe.u32 %1, %2, 40, 4;" : "=r"(low), "=r"(high) : "r"(0x8FEDCBA9));
    assert(low == 0xFFFFFFF8 && high == 0);
    asm("bfi.b32 %0, %2, %3, 24, 16; bfi.b32 %1, %2, %3, 4, 0;" : "=r"(low), "=r"(high) : "r"(0x1234), "r"(0x56789ABC));
    assert(low == 0x34789ABC && high == 0x56789ABC);
    asm("shf.l.wrap.b32 %0, %2, %3, 40; shf.r.clamp.b32 %1, %2, %3, 40;"
        : "=r"(low), "=r"(high)
        : "r"(0x11223344), "r"(0x55667788));
    assert(low == 0x66778811 && high == 0x55667788);
    asm("dp4a.s32.u32 %0, %2, %3, %4; dp4a.u32.u32 %1, %2, %3, %4;"
        : "=r"(low), "=r"(high)
        : "r"(0x01FF02FE), "r"(0x02030405), "r"(7));
    assert(int(low) == 7 + 2 - 3 + 8 - 10 && high == 7 + 2 + 765 + 8 + 1270);
    unsigned long long product;
    asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(product) : "r"(-3), "r"(1 << 30), "l"(5ull));
    assert(product == 5ull - (3ull << 30));
    float signed_value;
    asm("copysign.f32 %0, %2, %3; abs.s32 %1, %4;" : "=f"(signed_value), "=r"(low) : "f"(-0.0f), "f"(2.5f), "r"(-9));
    assert(signed_value == -2.5f && low == 9);
    asm("mov.u32 %0, %%warpid; nanosleep.u32 20;" : "=r"(low));
    assert(low == threadIdx.x / 32);
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(word) : "r"(0xF0F0), "r"(0xFF00), "r"(0x000F));
    assert(word == ((0xF0F0 & 0xFF00) | 0x000F));
    asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(word) : "r"(0x33221100), "r"(0x77665544));
    assert(word == 0x55441100);
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(3.0f));
    assert(power == 8.0f);
    int64_t wide = 5;
    asm("add.s64 %0, %0, %1;" : "+l"(wide) : "l"(int64_t(-7)));
    assert(wide == -2);
    asm volatile("" ::: "memory");
}

__device__ void check_macros() {
    int sum = 0;
    asm volatile(ADD SUFFIX : "=r"(sum) : INPUTS);
    assert(sum == 3 + int(threadIdx.x));
    asm volatile("sub.s32" SUFFIX : OUT(sum) : R_IN(3), "r"(1));
    assert(sum == 2);
    BINARY(mul.lo, sum, 5, (6 + 1));
    assert(sum == 35);
    ADD_TWICE(sum, 4);
    ADD_TWICE(sum, sum);
    assert(sum == 16);
    asm("sub.s32 %0, %1, %2;" : "=" WORD_CONSTRAINT(sum) : WORD_CONSTRAINT(9), "r"(1));
    assert(sum == 8);
    asm(ALL_OF_IT);
    assert(sum == 9);
    asm("add.s32 %0, %0, "
#if __CUDA_ARCH__ >= 900
        "2;"
#else
        "none;"
#endif
        : "+r"(sum));
    assert(sum == 11);
}

__device__ void check_scopes_and_numbers() {
    int r, s = 7, low = 0, high = 0;
    asm("{.reg .pred p; setp.ne.f32 p, %1, %1; selp.b32 %0, 1, 0, p;}" : "=r"(r) : "f"(NAN));
    assert(r == 0);
    asm("{.reg .pred p; setp.neu.f32 p, %1, %1; selp.b32 %0, 1, 0, p;}" : "=r"(r) : "f"(NAN));
    assert(r == 1);
    asm volatile(
        "{ .reg .pred p; L: add.s32 %0, %0, 1; setp.lt.s32 p, %0, 5; @p bra L; }\n"
        "{ .reg .pred p; L: add.s32 %1, %1, 1; setp.lt.s32 p, %1, 3; @p bra L; }"
        : "+r"(low), "+r"(high));
    assert(low == 5 && high == 3);
    // One text, twice: the second has more operands.
    asm volatile("{.reg .b32 t; add.s32 t, %1, 1; mov.b32 %0, t;}" : "=r"(r) : "r"(1));
    asm volatile("{.reg .b32 t; add.s32 t, %1, 1; mov.b32 %0, t;}" : "=r"(low), "+r"(s), "+r"(high));
    assert(r == 2 && low == 8 && s == 7 && high == 3);
    asm("{.reg .b32 %%t; mov.b32 %%t, 0b101; mov.b32 %0, %%t;}" : "=r"(r));
    assert(r == 5);
    double one;
    asm("mov.f64 %0, 0d3FF0000000000000;" : "=d"(one));
    assert(one == 1.0);
    unsigned long long most;
    asm("max.u64 %0, %1, %2;" : "=l"(most) : "l"(0x8000000000000000ull), "l"(1ull));
    assert(most == 0x8000000000000000ull);
}

__device__ void check_barrier() {
    __shared__ uint64_t barrier;
    const uint32_t at = __cvta_generic_to_shared(&barrier);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at));
        asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at));
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at));
    }
    __syncthreads();
    uint64_t state;
    uint32_t is_over;
    asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}"
                 : "=r"(is_over)
                 : "r"(at));
    assert(!is_over);
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at));
    asm volatile("{.reg .pred p; W: mbarrier.test_wait.shared.b64 p, [%0], %1; @!p bra W;}" ::"r"(at), "l"(state));
}

// The last block sees what the others wrote.
__device__ void check_last_block() {
    if (threadIdx.x == 0 && gridDim.x <= 64) {
        rows_written[blockIdx.x] = 1;
        __threadfence();
        if (atomicAdd(&tickets, 1u) == gridDim.x - 1) {
            for (unsigned i = 0; i < gridDim.x; ++i) {
                assert(rows_written[i] == 1);
                rows_written[i] = 0;
            }
            tickets = 0;
            blocks_done = gridDim.x;
        }
    }
}

// Matrix m's element at (row, col) is 1000m + 10 row + col.
__device__ void check_ldmatrix(uint16_t* shared) {
    for (int i = threadIdx.x; i < 256; i += 64) shared[i] = i / 64 * 1000 + i % 64 / 8 * 10 + i % 8;
    __syncthreads();
    const uint32_t base = __cvta_generic_to_shared(shared);
    const int lane = threadIdx.x % 32, row = lane / 4, col = lane % 4 * 2;
    uint32_t r0, r1, r2, r3;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(base + lane * 16));
    assert(r0 == pack(10 * row + col, 10 * row + col + 1));
    assert(r3 == pack(3000 + 10 * row + col, 3000 + 10 * row + col + 1));
    LDMATRIX_X2_T(r0, r1, base + lane % 16 * 16);
    assert(r0 == pack(10 * col + row, 10 * (col + 1) + row));
    assert(r1 == pack(1000 + 10 * col + row, 1000 + 10 * (col + 1) + row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(base + lane % 8 * 16 + 128));
    assert(r0 == pack(1000 + 10 * row + col, 1000 + 10 * row + col + 1));
    asm volatile("ldmatrix.sync.aligned.x1.trans.m8n8.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(base + lane % 8 * 16));
    assert(r0 == pack(10 * col + row, 10 * (col + 1) + row));
    __syncthreads();
}

// A(row, k) = row - k, B(k, col) = k + 2 col: exact in every format here.
__device__ int product(int row, int col, int depth) {
    int sum = 0;
    for (int k = 0; k < depth; ++k) sum += (row - k) * (k + 2 * col);
    return sum;
}
template <typename T>
__device__ uint32_t pair(int low, int high) {
    const T values[2] = {T(float(low)), T(float(high))};
    uint32_t word;
    memcpy(&word, values, 4);
    return word;
}
__device__ uint32_t bytes(int first, int step) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word |= uint32_t(uint8_t(first + i * step)) << (8 * i);
    return word;
}

__device__ void check_mma() {
    const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4 * 2;
    float d[4], zero = 0.0f;
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(pair<half>(g - c, g - c - 1)), "r"(pair<half>(g + 8 - c, g + 7 - c)),
          "r"(pair<half>(g - c - 8, g - c - 9)), "r"(pair<half>(g - c, g - c - 1)),
          "r"(pair<half>(c + 2 * g, c + 1 + 2 * g)), "r"(pair<half>(c + 8 + 2 * g, c + 9 + 2 * g)), "f"(zero));
    for (int i = 0; i < 4; ++i) assert(d[i] == float(product(g + i / 2 * 8, c + i % 2, 16)));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};\n"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(pair<nv_bfloat16>(g - c, g - c - 1)), "r"(pair<nv_bfloat16>(g + 8 - c, g + 7 - c)),
                   "r"(pair<nv_bfloat16>(c + 2 * g, c + 1 + 2 * g)), "f"(zero));
    for (int i = 0; i < 4; ++i) assert(d[i] == float(product(g + i / 2 * 8, c + i % 2, 8)));
    int s[4] = {1, 1, 1, 1};
    const int k = lane % 4 * 4;
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3])
        : "r"(bytes(g - k, -1)), "r"(bytes(g + 8 - k, -1)), "r"(bytes(g - k - 16, -1)), "r"(bytes(g - k - 8, -1)),
          "r"(bytes(k + 2 * g, 1)), "r"(bytes(k + 16 + 2 * g, 1)));
    for (int i = 0; i < 4; ++i) assert(s[i] == 1 + product(g + i / 2 * 8, c + i % 2, 32));
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.satfinite.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%7,%7,%7};"
        : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3])
        : "r"(bytes(1, 0)), "r"(bytes(-1, 0)), "r"(bytes(100, 0)), "r"(0x7fffff00));
    assert(s[0] == 0x7fffffff && s[2] == 0x7fffff00 - 1600);
}

__device__ void check_copies(float* shared, const float* x) {
    const uint32_t to = __cvta_generic_to_shared(shared + threadIdx.x);
    asm volatile(
        "{\n"
        "  .reg .pred p;\n"
        "  setp.ne.b32 p, %0, 0;\n"
        "  @p cp.async.ca.shared.global [%1], [%2], 4;\n"
        "  @!p cp.async.ca.shared.global [%1], [%2], 4, 0;\n"
        "}\n" ::"r"(int(threadIdx.x % 2)),
        "r"(to), "l"(x));
    asm volatile("cp.async.wait_all;");
    __pipeline_memcpy_async(shared + 64 + threadIdx.x, x, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    asm volatile("bar.sync 1, 64;");
    assert(shared[63 - threadIdx.x] == (threadIdx.x % 2 ? 0.0f : x[0]));
    assert(shared[64 + 63 - threadIdx.x] == x[0]);
    __syncthreads();
    asm volatile(
        "{.reg .pred ignore; setp.eq.b32 ignore, %2, 1; cp.async.ca.shared.global [%0], [%1], 4, ignore;}" ::"r"(to),
        "l"(x), "r"(int(threadIdx.x % 2)));
    asm volatile("cp.async.wait_all;");
    assert(shared[threadIdx.x] == (threadIdx.x % 2 ? 0.0f : x[0]));
    float4 four;
    asm volatile("st.shared.v2.f32 [%0+512], {%1, %2};" ::"r"(to + threadIdx.x * 4), "f"(1.0f), "f"(2.0f));
    asm volatile("bar.warp.sync 0xffffffff;");
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "r"(uint32_t(__cvta_generic_to_shared(shared)) + 512 + threadIdx.x / 2 * 16));
    assert(four.x == 1.0f && four.y == 2.0f && four.w == 2.0f);
    __syncthreads();
}

// Flags between warps of a block: a thread that waits lets the others run.
__device__ void check_flags() {
    __shared__ unsigned flag, data, turn;
    __shared__ float sum;
    const uint32_t at = __cvta_generic_to_shared(&flag), sum_at = __cvta_generic_to_shared(&sum);
    if (threadIdx.x == 0) {
        flag = turn = 0;
        sum = 0.5f;
    }
    __syncthreads();
    unsigned seen = 0;
    if (threadIdx.x == 63) {
        data = 7;
        asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(at), "r"(5) : "memory");
    }
    if (threadIdx.x == 0) {
        do {
            asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(at) : "memory");
        } while (seen != 5);
        assert(data == 7);
    }
    if (threadIdx.x == 0) {
        while (atomicAdd(&turn, 0) == 0) {
        }
    }
    if (threadIdx.x == 40) atomicExch(&turn, 1);
    __syncthreads();
    asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(at) : "memory");
    asm volatile("red.release.gpu.shared::cta.add.f32 [%0], %1;" ::"r"(sum_at), "f"(0.25f) : "memory");
    __syncthreads();
    assert(flag == 5 + 64 && sum == 16.5f);
    __syncthreads();
    asm volatile("atom.acq_rel.cta.shared.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(seen)
                 : "r"(at), "r"(69 + threadIdx.x), "r"(70 + threadIdx.x)
                 : "memory");
    __syncthreads();
    int least;
    asm volatile("atom.shared.min.s32 %0, [%1], %2;" : "=r"(least) : "r"(at), "r"(-int(threadIdx.x)) : "memory");
    __syncthreads();
    assert(int(flag) == -63 && seen >= 69 && least <= 133);
}

// Matrix m's element at (row, col) is 1000m + 10 row + col, as in check_ldmatrix.
__device__ void check_stmatrix(uint16_t* shared) {
    const uint32_t base = __cvta_generic_to_shared(shared);
    const int lane = threadIdx.x % 32, row = lane / 4, col = lane % 4 * 2;
    const auto word = [&](int m) { return pack(1000 * m + 10 * row + col, 1000 * m + 10 * row + col + 1); };
    if (threadIdx.x < 32) {
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(base + lane * 16),
                     "r"(word(0)), "r"(word(1)), "r"(word(2)), "r"(word(3)));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 64) assert(shared[i] == i / 64 * 1000 + i % 64 / 8 * 10 + i % 8);
    __syncthreads();
    if (threadIdx.x < 32) {
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 [%0], {%1, %2};" ::"r"(base + lane % 16 * 16),
                     "r"(word(0)), "r"(word(1)));
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 64) assert(shared[i] == i / 64 * 1000 + i % 8 * 10 + i % 64 / 8);
    __syncthreads();
}

__device__ void check_lanes() {
    const int lane = threadIdx.x % 32;
    int got, there, lanes;
    asm volatile("{.reg .pred p; shfl.sync.down.b32 %0|p, %2, 3, 31, -1; selp.b32 %1, 1, 0, p;}"
                 : "=r"(got), "=r"(there)
                 : "r"(lane));
    assert(got == (lane < 29 ? lane + 3 : lane) && there == (lane < 29));
    // Segments of eight lanes.
    asm volatile("{.reg .pred p; shfl.sync.up.b32 %0|p, %2, 2, 0x1800, -1; selp.b32 %1, 1, 0, p;}"
                 : "=r"(got), "=r"(there)
                 : "r"(lane));
    assert(got == (lane % 8 < 2 ? lane : lane - 2) && there == (lane % 8 >= 2));
    asm volatile("shfl.sync.idx.b32 %0, %1, 11, 0x181f, 0xffffffff;" : "=r"(got) : "r"(lane));
    assert(got == lane / 8 * 8 + 3);
    asm volatile("shfl.sync.bfly.b32 %0, %1, 17, 31, 0xffffffff;" : "=r"(got) : "r"(lane));
    assert(got == (lane ^ 17));
    asm volatile("{.reg .pred p; setp.lt.s32 p, %1, 5; vote.sync.ballot.b32 %0, p, -1;}" : "=r"(lanes) : "r"(lane));
    assert(lanes == 31);
    asm volatile(
        "{.reg .pred p, q; setp.lt.s32 p, %2, 5; vote.sync.any.pred q, p, -1; selp.b32 %0, 1, 0, q;\n"
        " vote.sync.all.pred q, p, -1; selp.b32 %1, 1, 0, q;}"
        : "=r"(got), "=r"(there)
        : "r"(lane));
    assert(got == 1 && there == 0);
    asm("{.reg .pred p, q; setp.lt.s32 p, %1, 5; setp.gt.s32 q, %1, 1; and.pred p, p, q; not.pred p, p;\n"
        " selp.b32 %0, 0, 1, p;}"
        : "=r"(got)
        : "r"(lane));
    assert(got == (lane > 1 && lane < 5));
    int64_t wide;
    unsigned upper, ones, zeros, turned;
    asm("mul.wide.s32 %0, %1, %2;" : "=l"(wide) : "r"(-3), "r"(1 << 30));
    assert(wide == -3 * (int64_t(1) << 30));
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(upper) : "r"(3u << 30), "r"(8u));
    assert(upper == 6);
    asm("popc.b32 %0, %3; clz.b32 %1, %3; brev.b32 %2, %3;" : "=r"(ones), "=r"(zeros), "=r"(turned) : "r"(0x00F00001));
    assert(ones == 5 && zeros == 8 && turned == 0x80000F00u);
    asm volatile("redux.sync.min.s32 %0, %1, -1;" : "=r"(got) : "r"(lane - 7));
    assert(got == -7);
    asm volatile("redux.sync.min.u32 %0, %1, -1;" : "=r"(got) : "r"(lane - 7));
    assert(got == 0);
    asm volatile("match.any.sync.b32 %0, %1, -1;" : "=r"(lanes) : "r"(lane % 4));
    assert(unsigned(lanes) == 0x11111111u << lane % 4);
    if (lane % 2 == 1) {
        asm volatile("{.reg .pred p; elect.sync %0|p, 0xaaaaaaaa; selp.b32 %1, 1, 0, p;}" : "=r"(got), "=r"(there));
        assert(got == 1 && there == (lane == 1));
        asm volatile("activemask.b32 %0;" : "=r"(lanes));
        assert((unsigned(lanes) & 0xaaaaaaaau) == unsigned(lanes) && (lanes >> lane & 1) == 1);
    }
}

__global__ void __launch_bounds__(64, 2) norm_kernel(float* out, const float* x, const float* weight,
                                                     int64_t out_stride, int64_t stride, float eps, int width) {
    __shared__ alignas(16) float shared[256];
    __shared__ alignas(16) uint16_t matrices[256];
    __shared__ float partials[64];
    if (blockIdx.x == 0) {
        check_values();
        check_macros();
        check_scopes_and_numbers();
        check_barrier();
        check_ldmatrix(matrices);
        check_mma();
        check_copies(shared, x);
        check_flags();
        check_stmatrix(matrices);
        check_lanes();
    }
    if (threadIdx.x == 0) atomicAdd(&rows_done, 1ull);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < width; i += 64) sum += x[blockIdx.x * stride + i] * x[blockIdx.x * stride + i];
    partials[threadIdx.x] = sum;
    __syncthreads();
    for (int half_size = 32; half_size > 0; half_size /= 2) {
        if (threadIdx.x < half_size) partials[threadIdx.x] += partials[threadIdx.x + half_size];
        __syncthreads();
    }
    const float scale = 1.0f / sqrtf(partials[0] / divisor + eps) * factors[1][2];
    check_last_block();
    for (int i = threadIdx.x; i < width; i += 64) {
        out[blockIdx.x * out_stride + i] = x[blockIdx.x * stride + i] * scale * weight[i];
    }
}

static int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_rms_norm& op = *run->args.rms_norm;
    const float width = float(op.x.width), one = 1.0f;
    cudaMemcpyToSymbol(divisor, &width, sizeof(width));
    if (cudaMemcpyToSymbol(factors, &one, sizeof(one), 6 * sizeof(float)) != cudaSuccess) return 1;
    if (cudaMemcpyToSymbol(factors, &one, sizeof(one), 8 * sizeof(float)) == cudaSuccess) return 2;
    const unsigned long long none = 0;
    cudaMemcpyToSymbol(rows_done, &none, sizeof(none));
    norm_kernel<<<op.x.num_rows, 64>>>(op.out.data, op.x.data, op.weight, op.out.stride, op.x.stride, op.eps,
                                       int(op.x.width));
    unsigned long long done = 0;
    cudaMemcpyFromSymbol(&done, rows_done, sizeof(done));
    return done == static_cast<unsigned long long>(op.x.num_rows) ? 0 : 3;
}

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {
    static const verbatim_kernel kernel = {
        VERBATIM_KERNEL_ABI, "ptx", "rms_norm", "fast", "cuda", nullptr, nullptr, nullptr, nullptr, nullptr, run};
    return index == 0 ? &kernel : nullptr;
}
