// kernels/sandbox/cuda/cub/thread/thread_reduce.cuh: owns a name that CUDA source includes. What is taken of it is
// in kernels/sandbox/cuda/source.h, which comes before every file.
#pragma once
