// reference/numerics/host_device.h: functions marked VERBATIM_HOST_DEVICE are compiled by the host's compiler and by
// nvcc, and give the same bits (NUMERICS N1).
//
// VERBATIM_CLONES, before a function with plain loops, compiles copies of it for wider x86 levels; the loader chooses
// one. They differ in speed alone: vector lanes are different outputs, and __builtin_fmaf is the fused operation
// everywhere (an instruction from x86-64-v3 on, libm's correctly rounded fmaf below it). Sanitizers run the default,
// since they do not work before the loader's choice.
#pragma once

#if defined(__CUDACC__)
#define VERBATIM_HOST_DEVICE __host__ __device__
#else
#define VERBATIM_HOST_DEVICE
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__OPTIMIZE__) && \
    !defined(__CUDACC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VERBATIM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define VERBATIM_CLONES
#endif
