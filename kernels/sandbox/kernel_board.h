// kernels/sandbox/kernel_board.h: owns the memory that the parent and the process that runs kernels share: one
// question, one answer, and the tensors after them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/sandbox/kernel_host.h"
#include "kernels/sandbox/python_function.h"
#include "kernels/sandbox/task_watch.h"
#include "kernels/simt/access_counter.h"

namespace verbatim::sandbox {

inline constexpr int64_t kPage = 4096;

enum class Question : uint8_t { kDescribe, kCall, kTime };
enum class Answer : uint8_t { kYes, kNotLoaded };
// Outside of run() no tensor may be touched.
enum class Moment : uint8_t { kRun, kSupports, kAfterRun };

template <size_t size>
struct BoardText {
    char text[size];

    void set(std::string_view from) {
        const size_t count = from.size() < size ? from.size() : size - 1;
        from.copy(text, count);
        text[count] = '\0';
    }
    [[nodiscard]] std::string get() const { return text; }
};

// A tensor at the child's addresses.
struct BoardTensor {
    std::byte* data = nullptr;  // null: absent
    int64_t num_bytes = 0;      // from the first element to the end of the last
    int64_t element_bytes = 0;
    Role role = Role::kIn;
    int64_t lies_in = -1;                      // the tensor whose memory this one shares; then data is null
    int64_t unit_bytes = 0, stride_bytes = 0;  // of a row: what belongs to it, and how far the next one is
};
inline constexpr size_t kMaxGuards = 2 * kMaxTensors;
inline constexpr size_t kBoardFindings = 16;
inline constexpr size_t kBoardKernels = 64;
inline constexpr size_t kBoardPlaces = 256;
inline constexpr size_t kMaxTimes = 1 << 14;

struct Board {
    // The question.
    Question question;
    const Operation* operation;  // it was there before the process was started
    int32_t kernel;              // of the library; -1: builtin
    const verbatim_kernel* builtin;
    const PythonFunction* python;  // null: none
    int memory_fd;                 // of this memory
    Placed placed;
    std::array<BoardTensor, kMaxTensors> tensors;
    int64_t num_tensors;
    std::array<std::byte*, kMaxGuards> guards;  // inaccessible pages
    int64_t num_guards;
    // The part of this memory that the kernel can access: tensors only.
    std::byte *board_end, *tensors_begin, *tensors_end, *shared_end;
    CallOptions options;
    TimingRequest timing;
    // The answer.
    Answer answer;
    CallEnd end;
    BoardText<2048> detail;
    int32_t fault_signal;
    uintptr_t fault_address;
    bool fault_is_write;
    Moment moment;                               // of a CPU kernel's call
    std::byte* early_args;                       // a page: of supports(), workspace_bytes() and pack(), not of run()
    bool in_launch;                              // of the emulator, while a kernel's threads run
    std::array<uint64_t, kFrames> fault_places;  // in the library, innermost first; 0: none
    std::array<std::byte*, kMaxTensors> device;  // addresses that the kernel holds of hidden tensors; null: none
    std::array<BoardTensor, 2> device_memory;    // likewise, of its workspace and its packed weights
    std::byte *library_begin, *library_end;      // writable memory of the library
    uintptr_t library_base;                      // where it was loaded
    std::optional<TaskClash> clash;              // of tasks
    std::array<uint64_t, 2> clash_places;        // in the library, of its accesses
    std::array<BoardTensor, 2> child_memory;
    int64_t num_findings;
    std::array<simt::FindingKind, kBoardFindings> finding_kinds;
    std::array<BoardText<512>, kBoardFindings> findings;
    std::array<std::array<uint64_t, kFrames>, kBoardFindings> frames;
    simt::AccessCounts counts;
    int64_t num_notes;
    std::array<BoardText<512>, kBoardFindings> notes;
    int64_t num_places;
    struct Place {
        BoardText<16> what;
        BoardText<4096> file;
        uint32_t line, column;
    };
    std::array<Place, kBoardPlaces> places;
    int64_t num_kernels;
    struct Kernel {
        BoardText<96> name;
        BoardText<32> operation, profile, machine;
    };
    std::array<Kernel, kBoardKernels> kernels;
    int64_t num_times;
    std::array<double, kMaxTimes> times_s;
};

// The child: answers until the question pipe is closed. Never returns; an exception from a kernel ends it.
struct BoardPipes {
    int questions = -1;  // one byte each
    int answers = -1;
};
[[noreturn]] void run_kernel_child(Board& board, const std::string& library, const HostLimits& limits,
                                   BoardPipes pipes) noexcept;

}  // namespace verbatim::sandbox
