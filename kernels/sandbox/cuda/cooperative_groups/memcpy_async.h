// kernels/sandbox/cuda/cooperative_groups/memcpy_async.h: owns a name that CUDA source includes. What is taken of
// it is in kernels/sandbox/cuda/source_libcu.h, which comes before every file.
#pragma once
