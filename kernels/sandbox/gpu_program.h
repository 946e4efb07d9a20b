// kernels/sandbox/gpu_program.h: owns running a CUDA file's kernels on this machine's GPU: nvcc makes one program of
// the file and kernels/sandbox/gpu_serve.cu, which keeps running between calls, with tensors in the board's memory.
//
//   G1  a call that crashes or does not end in time ends the program; the next call starts it again
//   G2  the bytes next to every tensor, to the workspace and to packed weights are compared after a call
#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/machine.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/gpu_call.h"
#include "kernels/sandbox/kernel_board.h"

namespace verbatim::sandbox {

// "sm_90", the first GPU as its driver reports it; "" without one. Leaves no CUDA state in this process.
std::string find_gpu();

// nvcc's program of a .cu file and one of the sandbox's sources, for this GPU: its path in the folder; "" where nvcc
// cannot be started. Error: nvcc's last line.
Result<std::string> compile_for_gpu(const std::string& file, const std::vector<std::string>& flags,
                                    const std::string& gpu, const std::string& with, const ScratchFolder& folder);

class GpuProgram {
public:
    // gpu: the result of find_gpu(); program: of compile_for_gpu(..., kServe, ...).
    GpuProgram(std::string gpu, std::string program) : gpu_(std::move(gpu)), program_(std::move(program)) {}
    ~GpuProgram();
    GpuProgram(const GpuProgram&) = delete;
    GpuProgram& operator=(const GpuProgram&) = delete;
    static constexpr const char* kServe = "kernels/sandbox/gpu_serve.cu";

    // "sm_90 (NVIDIA H200)"; without the name before it has been started.
    [[nodiscard]] std::string name() const { return name_.empty() ? gpu_ : gpu_ + " (" + name_ + ")"; }
    // The board's call, or its timing, whose times are on the board then. Outputs are where its tensors lie.
    CallResult call(Board& board, double seconds);
    // Measured now: the rate at which the GPU reads its memory, and its fused multiply-adds.
    Result<MachineLimits> limits(const Board& board, double seconds);
    // The last lines that the program has printed; "": nothing.
    [[nodiscard]] std::string said() const;

private:
    struct Answer {
        CallResult result;
        std::vector<double> numbers;
    };
    [[nodiscard]] std::string start(const Board& board);  // "" or what is wrong
    void stop();
    Answer ask(const Board& board, const GpuQuestion& question, std::span<const std::byte> rest, double seconds);
    Answer read_answer(double seconds);
    CallResult ended();

    std::string gpu_, program_;
    std::string name_;  // of the GPU
    pid_t process_ = -1;
    int socket_ = -1;
    int output_ = -1;   // what it prints
    std::string said_;  // by the last one that has ended
};

}  // namespace verbatim::sandbox
