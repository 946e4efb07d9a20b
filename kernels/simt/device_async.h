// kernels/simt/device_async.h: owns the barriers, bulk copies and warpgroup operations of simt/simt.h as PTX of
// sm_90 and sm_90a. On other architectures they compile to nothing, and no kernel that uses them is launched there.
#pragma once

#include "kernels/simt/device.h"
#include "kernels/simt/types.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define SIMT_COUNTS_BYTES 1
#else
#define SIMT_COUNTS_BYTES 0
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SIMT_WARPGROUPS 1
#else
#define SIMT_WARPGROUPS 0
#endif

#define SIMT_BARRIERS(name, count)                             \
    __shared__ __align__(16) uint64_t name##_storage[(count)]; \
    const ::verbatim::simt::Barriers name { name##_storage }

namespace verbatim::simt {
inline namespace SIMT_MACHINE {

SIMT_FUNCTION uint32_t shared_address(const void* data) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(data));
}

struct Barrier {
    uint32_t address;
    SIMT_FUNCTION void init(int arrivals) const {
#if SIMT_COUNTS_BYTES
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
#endif
    }
    SIMT_FUNCTION void arrive() const {
#if SIMT_COUNTS_BYTES
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
#endif
    }
    SIMT_FUNCTION void expect_bytes(int bytes) const {
#if SIMT_COUNTS_BYTES
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
#endif
    }
    SIMT_FUNCTION void wait(uint32_t parity) const {
#if SIMT_COUNTS_BYTES
        asm volatile(
            "{\n"
            ".reg .pred done;\n"
            "again:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
            "@done bra over;\n"
            "bra again;\n"
            "over:\n"
            "}" ::"r"(address),
            "r"(parity)
            : "memory");
#endif
    }
};
struct Barriers {
    uint64_t* data;
    SIMT_FUNCTION Barrier operator[](int i) const { return {shared_address(data + i)}; }
};

template <typename T, typename From>
SIMT_FUNCTION void bulk_copy(const Shared<T>& to, int64_t i, const Global<const From>& from, int64_t j, int64_t count,
                             const Barrier& barrier) {
#if SIMT_COUNTS_BYTES
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to.data + i)),
                 "l"(__cvta_generic_to_global(from.data + j)), "r"(static_cast<uint32_t>(count * sizeof(From))),
                 "r"(barrier.address)
                 : "memory");
#endif
}
template <typename T>
SIMT_FUNCTION void bulk_store(const Global<T>& to, int64_t i, const Shared<T>& from, int64_t j, int64_t count) {
#if SIMT_COUNTS_BYTES
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to.data + i)),
        "r"(shared_address(from.data + j)), "r"(static_cast<uint32_t>(count * sizeof(T)))
        : "memory");
#endif
}
SIMT_FUNCTION void commit_bulk() {
#if SIMT_COUNTS_BYTES
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
template <int kPending>
SIMT_FUNCTION void wait_bulk() {
#if SIMT_COUNTS_BYTES
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}
// Without a state space this would fence all memory: MEMBAR.ALL.GPU in machine code.
SIMT_FUNCTION void fence_async() {
#if SIMT_COUNTS_BYTES
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
SIMT_FUNCTION void named_barrier(int id, int num_threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(num_threads) : "memory");
}
SIMT_FUNCTION void wait_previous() {
#if SIMT_COUNTS_BYTES
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
SIMT_FUNCTION void release_next() {
#if SIMT_COUNTS_BYTES
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
template <int kRegisters>
SIMT_FUNCTION void setmaxnreg_inc() {
#if SIMT_WARPGROUPS
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}
template <int kRegisters>
SIMT_FUNCTION void setmaxnreg_dec() {
#if SIMT_WARPGROUPS
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

class Fragment {
public:
    SIMT_FUNCTION void load(const Shared<uint32_t>& view, int64_t i) { words = load4(view, i); }
    SIMT_FUNCTION void set(const Four<uint32_t>& four) { words = four; }
    Four<uint32_t> words;
};

// A wgmma matrix descriptor: 128-byte swizzle, eight rows every 1024 bytes.
struct SwizzledTile {
    uint64_t descriptor;
};
SIMT_FUNCTION SwizzledTile swizzled_tile(const Shared<uint32_t>& view, int64_t i) {
    const uint32_t address = shared_address(view.data + i);
    return {uint64_t{address >> 4 & 0x3FFF} | uint64_t{1} << 16 | uint64_t{kTileBytes >> 4} << 32 | uint64_t{1} << 62};
}

template <int kColumns>
class Accumulators {
public:
    static constexpr int kSums = kColumns / 2;  // per thread
    // The compiler does not know of asynchronous multiplications: this keeps it from reading a sum any earlier.
    SIMT_FUNCTION float operator[](int i) const {
        asm volatile("" : "+f"(sums[i])::"memory");
        return sums[i];
    }
    SIMT_FUNCTION void set(int i, float value) { sums[i] = value; }
    mutable float sums[kSums];
};

SIMT_FUNCTION void multiply_fence() {
#if SIMT_WARPGROUPS
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
SIMT_FUNCTION void commit_multiply() {
#if SIMT_WARPGROUPS
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int kPending>
SIMT_FUNCTION void wait_multiply() {
#if SIMT_WARPGROUPS
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

// The sums of 64 columns, starting at the given number: operands of one instruction.
#define SIMT_SUMS_8(sums, i)                                                                                      \
    "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
        "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SIMT_SUMS_32(sums, i) \
    SIMT_SUMS_8(sums, i), SIMT_SUMS_8(sums, i + 8), SIMT_SUMS_8(sums, i + 16), SIMT_SUMS_8(sums, i + 24)
#define SIMT_NAMES_0                                                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
    "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SIMT_NAMES_1                                                                                  \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
    "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SIMT_NAMES_2                                                                                  \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
    "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SIMT_NAMES_3                                                                               \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

template <int kColumns>
SIMT_FUNCTION void multiply_async(Accumulators<kColumns>& sums, Fragment& a, const SwizzledTile& tile, int group,
                                  bool from_zero) {
    static_assert(kColumns == 64 || kColumns == 128 || kColumns == 192 || kColumns == 256, "an instruction for each");
#if SIMT_WARPGROUPS
    const uint32_t(&w)[4] = a.words.values;
    const uint64_t descriptor = tile.descriptor + static_cast<uint64_t>(group * 2);  // 32 bytes further in each row
    const int adds = from_zero ? 0 : 1;
    if constexpr (kColumns == 64) {
        asm volatile(
            "{\n"
            ".reg .pred adds;\n"
            "setp.ne.b32 adds, %37, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" SIMT_NAMES_0
            "}, {%32, %33, %34, %35}, %36, adds, 1, 1, 0;\n"
            "}"
            : SIMT_SUMS_32(sums.sums, 0)
            : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(descriptor), "r"(adds));
    } else if constexpr (kColumns == 128) {
        asm volatile(
            "{\n"
            ".reg .pred adds;\n"
            "setp.ne.b32 adds, %69, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" SIMT_NAMES_0 ", " SIMT_NAMES_1
            "}, {%64, %65, %66, %67}, %68, adds, 1, 1, 0;\n"
            "}"
            : SIMT_SUMS_32(sums.sums, 0), SIMT_SUMS_32(sums.sums, 32)
            : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(descriptor), "r"(adds));
    } else if constexpr (kColumns == 192) {
        asm volatile(
            "{\n"
            ".reg .pred adds;\n"
            "setp.ne.b32 adds, %101, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" SIMT_NAMES_0 ", " SIMT_NAMES_1 ", " SIMT_NAMES_2
            "}, {%96, %97, %98, %99}, %100, adds, 1, 1, 0;\n"
            "}"
            : SIMT_SUMS_32(sums.sums, 0), SIMT_SUMS_32(sums.sums, 32), SIMT_SUMS_32(sums.sums, 64)
            : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(descriptor), "r"(adds));
    } else {
        asm volatile(
            "{\n"
            ".reg .pred adds;\n"
            "setp.ne.b32 adds, %133, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" SIMT_NAMES_0 ", " SIMT_NAMES_1 ", " SIMT_NAMES_2
            ", " SIMT_NAMES_3
            "}, {%128, %129, %130, %131}, %132, adds, 1, 1, 0;\n"
            "}"
            : SIMT_SUMS_32(sums.sums, 0), SIMT_SUMS_32(sums.sums, 32), SIMT_SUMS_32(sums.sums, 64),
              SIMT_SUMS_32(sums.sums, 96)
            : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(descriptor), "r"(adds));
    }
#endif
}

#undef SIMT_SUMS_8
#undef SIMT_SUMS_32
#undef SIMT_NAMES_0
#undef SIMT_NAMES_1
#undef SIMT_NAMES_2
#undef SIMT_NAMES_3

}  // namespace SIMT_MACHINE
}  // namespace verbatim::simt
