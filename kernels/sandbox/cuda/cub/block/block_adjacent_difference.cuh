// kernels/sandbox/cuda/cub/block/block_adjacent_difference.cuh: owns a name that CUDA source
// includes. What is taken of it is in kernels/sandbox/cuda/source.h, which comes before every file.
#pragma once
