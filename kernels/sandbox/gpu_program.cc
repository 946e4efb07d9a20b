#include "kernels/sandbox/gpu_program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include "engine/base/check.h"
#include "files/repository_path.h"
#include "kernels/sandbox/bound_call.h"
#include "kernels/sandbox/machine_code.h"

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kAroundBytes = 32;  // next to a tensor, on both sides: the board has more of known content
constexpr double kStartSeconds = 120;

// Of the driver's own header, cuda.h: CUdevice_attribute.
constexpr int kMajor = 75, kMinor = 76;

// The first GPU's compute capability times ten; 0 without one. Runs in a child process.
int ask_driver() {
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver == nullptr) return 0;
    const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    const auto get = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
    const auto attribute = reinterpret_cast<int (*)(int*, int, int)>(dlsym(driver, "cuDeviceGetAttribute"));
    if (init == nullptr || get == nullptr || attribute == nullptr) return 0;
    int gpu = 0, major = 0, minor = 0;
    if (init(0) != 0 || get(&gpu, 0) != 0) return 0;
    if (attribute(&major, kMajor, gpu) != 0 || attribute(&minor, kMinor, gpu) != 0) return 0;
    return major * 10 + minor;
}

// For this GPU alone, and from Hopper on with the instructions of one architecture (wgmma, setmaxnreg). nvcc's
// -arch=sm_90a would also compile the PTX of every architecture, which has none of them.
std::string architecture(const std::string& gpu) {
    const std::string number = gpu.substr(gpu.find('_') + 1);
    const std::string own = number.size() > 2 || number >= "90" ? number + "a" : number;
    return fmt::format("-gencode=arch=compute_{0},code=sm_{0}", own);
}

CallEnd end_of(GpuEnd end) {
    switch (end) {
        case GpuEnd::kDone: return CallEnd::kDone;
        case GpuEnd::kUnsupported: return CallEnd::kUnsupported;
        case GpuEnd::kFailed: return CallEnd::kFailed;
        case GpuEnd::kCrash: return CallEnd::kCrash;
        case GpuEnd::kOutside: return CallEnd::kOutside;
    }
    CHECK(false, "end {}", static_cast<int64_t>(end));
}

template <typename T>
void append(std::vector<std::byte>& bytes, const T& value) {
    const auto* const from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof value);
}

// The board's tensor, with what lies around it.
GpuTensor gpu_tensor(const Board& board, int64_t i) {
    const BoardTensor& tensor = board.tensors[i];
    GpuTensor sent{.lies_in = tensor.lies_in, .changes_in_place = static_cast<int64_t>(tensor.role == Role::kInOut)};
    if (tensor.data == nullptr) return sent;
    sent.offset = tensor.data - kAroundBytes - reinterpret_cast<const std::byte*>(&board);
    sent.num_bytes = tensor.num_bytes + 2 * kAroundBytes;
    sent.data_offset = kAroundBytes;
    return sent;
}

bool send_all(int socket, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t count = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return true;
}

enum class Received : uint8_t { kWhole, kEnded, kTooLate };
Received receive_all(int socket, std::span<std::byte> bytes, std::chrono::steady_clock::time_point until) {
    while (!bytes.empty()) {
        using std::chrono::milliseconds;
        const auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
        pollfd waited{socket, POLLIN, 0};
        const int ready = poll(&waited, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) return Received::kTooLate;
        const ssize_t count = recv(socket, bytes.data(), bytes.size(), 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return Received::kEnded;
        bytes = bytes.subspan(static_cast<size_t>(count));
    }
    return Received::kWhole;
}

}  // namespace

std::string find_gpu() {
    const pid_t child = fork();
    CHECK(child >= 0, "no process: {}", std::strerror(errno));
    if (child == 0) _exit(ask_driver());
    int status = 0;
    waitpid(child, &status, 0);
    const int capability = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return capability == 0 ? "" : fmt::format("sm_{}", capability);
}

Result<std::string> compile_for_gpu(const std::string& file, const std::vector<std::string>& flags,
                                    const std::string& gpu, const std::string& with, const ScratchFolder& folder) {
    std::vector<std::string> command = nvcc_command(fs::absolute(file).string(), flags);
    const auto is_arch = [](const std::string& word) { return word.starts_with("-arch="); };
    std::ranges::replace_if(command, is_arch, architecture(gpu));
    const std::string program = (folder.path() / fs::path(with).stem()).string();
    for (const std::string& word : {repository_path(with), std::string("-lineinfo"), std::string("-o"), program}) {
        command.push_back(word);
    }
    const fs::path words = folder.path() / "nvcc.txt";
    const int code = run_command(command, words);
    if (code == -1) return std::string();
    if (code != 0) return error("nvcc ends with {}: {}", code, last_line(said_in(words)));
    return program;
}

GpuProgram::~GpuProgram() { stop(); }

void GpuProgram::stop() {
    said_ = said();
    if (process_ > 0) {
        kill(-process_, SIGKILL);  // with whatever it has started
        waitpid(process_, nullptr, 0);
    }
    if (socket_ >= 0) close(socket_);
    if (output_ >= 0) close(output_);
    process_ = -1;
    socket_ = output_ = -1;
}

std::string GpuProgram::start(const Board& board) {
    CHECK(process_ < 0 && socket_ < 0, "process {} runs", process_);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return std::strerror(errno);
    socket_ = ends[0];
    output_ = memfd_create("gpu", MFD_CLOEXEC);
    // Copies, so that none of them has the number that another one gets in the program.
    constexpr int kAboveAll = 16;
    const std::array<std::pair<int, int>, 4> descriptors = {
        std::pair(output_, STDOUT_FILENO), std::pair(output_, STDERR_FILENO), std::pair(ends[1], kGpuSocket),
        std::pair(board.memory_fd, kGpuMemory)};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    std::array<int, descriptors.size()> copies{};
    for (size_t i = 0; i < descriptors.size(); ++i) {
        copies[i] = fcntl(descriptors[i].first, F_DUPFD_CLOEXEC, kAboveAll);
        posix_spawn_file_actions_adddup2(&actions, copies[i], descriptors[i].second);
    }
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    char* argv[] = {program_.data(), nullptr};
    const int failed = posix_spawn(&process_, program_.c_str(), &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    for (const int copy : copies) close(copy);
    close(ends[1]);
    if (failed != 0) process_ = -1;
    if (failed != 0) return fmt::format("its program cannot be started: {}", std::strerror(failed));
    const Answer first = read_answer(kStartSeconds);
    if (first.result.end != CallEnd::kDone) return first.result.detail;
    name_ = first.result.detail;
    return "";
}

// Of a program that has closed its end.
CallResult GpuProgram::ended() {
    CHECK(process_ > 0, "no process has been started");
    CallResult result{.end = CallEnd::kCrash};
    int status = 0;
    waitpid(process_, &status, 0);
    const std::string said = last_line(this->said());
    process_ = -1;
    result.detail = WIFSIGNALED(status) ? std::string(strsignal(WTERMSIG(status)))
                                        : fmt::format("the process ends with code {}", WEXITSTATUS(status));
    if (!said.empty()) result.detail += ": " + said;
    return result;
}

GpuProgram::Answer GpuProgram::read_answer(double seconds) {
    const auto until =
        std::chrono::steady_clock::now() +
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    GpuAnswer read;
    Answer answer;
    Received received = receive_all(socket_, std::as_writable_bytes(std::span(&read, 1)), until);
    if (received == Received::kWhole) {
        answer.numbers.resize(static_cast<size_t>(std::clamp<int64_t>(read.num_numbers, 0, kMaxTimes)));
        received = receive_all(socket_, std::as_writable_bytes(std::span(answer.numbers)), until);
    }
    switch (received) {
        case Received::kWhole: answer.result = {.end = end_of(read.end), .detail = read.detail}; break;
        case Received::kEnded: answer.result = ended(); break;
        case Received::kTooLate:
            answer.result = {.end = CallEnd::kHang, .detail = fmt::format("no answer after {:g} s", seconds)};
            break;
    }
    return answer;
}

GpuProgram::Answer GpuProgram::ask(const Board& board, const GpuQuestion& question, std::span<const std::byte> rest,
                                   double seconds) {
    if (process_ < 0) {
        if (const std::string problem = start(board); !problem.empty()) {
            stop();
            return {{.end = CallEnd::kFailed, .detail = fmt::format("{}: {}", gpu_, problem)}, {}};
        }
    }
    const bool is_sent = send_all(socket_, std::as_bytes(std::span(&question, 1))) && send_all(socket_, rest);
    Answer answer = is_sent ? read_answer(seconds) : Answer{ended(), {}};
    // What CUDA reports after a crash ends the program, too.
    if (answer.result.end == CallEnd::kCrash || answer.result.end == CallEnd::kHang) stop();
    return answer;
}

CallResult GpuProgram::call(Board& board, double seconds) {
    CHECK(board.question != Question::kDescribe && board.kernel >= 0, "kernel {}: no call of a file's", board.kernel);
    const BoundCall bound = bound_call(*board.operation, board.placed);
    const CallOptions& options = board.options;
    const bool is_timed = board.question == Question::kTime;
    const GpuQuestion question{.kind = is_timed ? GpuQuestionKind::kTime : GpuQuestionKind::kCall,
                               .kernel = board.kernel,
                               .struct_bytes = sizeof bound.abi,
                               .num_tensors = board.num_tensors,
                               .num_pointers = std::ssize(bound.pointers),
                               .num_threads = options.num_threads,
                               .block_threads = options.block_threads,
                               .workspace_fill = options.workspace_poison == 0 ? 0xFF : 0x3C,
                               .max_calls = std::min<int64_t>(board.timing.max_calls, kMaxTimes),
                               .max_seconds = board.timing.max_seconds,
                               .is_cold = static_cast<int64_t>(board.timing.cold)};
    std::vector<std::byte> rest;
    append(rest, bound.abi);
    for (int64_t i = 0; i < board.num_tensors; ++i) append(rest, gpu_tensor(board, i));
    for (const BoundPointer& pointer : bound.pointers) append(rest, GpuPointer{pointer.at, pointer.tensor});
    Answer answer = ask(board, question, rest, seconds);
    board.num_times = is_timed ? std::ssize(answer.numbers) : 0;
    if (is_timed) std::ranges::copy(answer.numbers, board.times_s.begin());
    return std::move(answer.result);
}

Result<MachineLimits> GpuProgram::limits(const Board& board, double seconds) {
    const Answer answer = ask(board, {.kind = GpuQuestionKind::kLimits}, {}, seconds);
    if (answer.result.end != CallEnd::kDone || answer.numbers.size() != 2)
        return error("{}: its limits cannot be measured: {}", name(), answer.result.detail);
    return MachineLimits{.stream_bytes_per_s = answer.numbers[0], .fma_flops = answer.numbers[1]};
}

std::string GpuProgram::said() const { return output_ < 0 ? said_ : last_lines(output_); }

}  // namespace verbatim::sandbox
