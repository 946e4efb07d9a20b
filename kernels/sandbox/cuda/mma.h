// kernels/sandbox/cuda/mma.h: owns a name that CUDA source includes. What is taken of it is in
// kernels/sandbox/cuda/source_wmma.h, which comes before every file.
#pragma once
