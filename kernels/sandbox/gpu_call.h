// kernels/sandbox/gpu_call.h: owns what a verb's process (kernels/sandbox/gpu_program.h) and the program that calls
// kernels on a GPU (kernels/sandbox/gpu_serve.cu) send each other, both on one machine, in its byte order. nvcc and g++
// compile it.
//
//   question: a GpuQuestion, then its struct, its GpuTensors and its GpuPointers; contents are in shared memory
//   answer:   a GpuAnswer, then its numbers (double). The program sends one before any question: how it has started
#pragma once

#include <cstdint>

namespace verbatim::sandbox {

enum class GpuQuestionKind : int64_t {
    kCall,
    kTime,   // the answer's numbers: seconds of each call
    kLimits  // the answer's numbers: bytes per second that are read, operations per second of fused multiply-adds
};

struct GpuQuestion {
    GpuQuestionKind kind = GpuQuestionKind::kCall;
    int64_t kernel = 0;  // its index in the file
    int64_t struct_bytes = 0, num_tensors = 0, num_pointers = 0;
    int64_t num_threads = 0;  // multiprocessors to fill, as many as there are at most; 0: all
    int64_t block_threads = 0;
    int64_t workspace_fill = 0;  // a byte
    // Of kTime.
    int64_t max_calls = 0;
    double max_seconds = 0;
    int64_t is_cold = 0;  // other data fill the cache before every call
};

// A tensor with the bytes around it, as it lies in shared memory, and as it shall lie in the GPU's.
struct GpuTensor {
    int64_t offset = 0;     // of the first byte around it, from the beginning of shared memory
    int64_t num_bytes = 0;  // with those around it; 0: the tensor is absent, or lies in another one
    int64_t data_offset = 0;
    int64_t lies_in = -1;
    int64_t changes_in_place = 0;  // timed calls begin with its first content
};

// An address in the struct.
struct GpuPointer {
    int64_t at = 0;  // bytes from its beginning
    int64_t tensor = 0;
};

enum class GpuEnd : int64_t { kDone, kUnsupported, kFailed, kCrash, kOutside };

struct GpuAnswer {
    GpuEnd end = GpuEnd::kDone;
    int64_t num_numbers = 0;
    char detail[496] = {};  // why; of the first answer, the GPU's name
};

// The program's descriptors: a socket for questions and answers, and the shared memory.
inline constexpr int kGpuSocket = 3, kGpuMemory = 4;

}  // namespace verbatim::sandbox
