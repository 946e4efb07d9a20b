// kernels/sandbox/gpu_serve.cu: owns the program that calls a kernel of kernels/sandbox/kernel.h on a GPU, and times
// it, for kernels/sandbox/gpu_program.h: nvcc links it with the kernel's file. kernels/sandbox/gpu_call.h defines what
// both send.
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <vector>

#include "kernels/sandbox/gpu_call.h"
#include "kernels/sandbox/kernel.h"

namespace {

using namespace verbatim::sandbox;

constexpr int64_t kGuardBytes = 256;  // around what the kernel asks for itself; also the alignment of an allocation
constexpr int kGuardValue = 0xA5;

bool receive(void* data, size_t num_bytes) {
    auto* at = static_cast<char*>(data);
    while (num_bytes > 0) {
        const ssize_t count = read(kGpuSocket, at, num_bytes);
        if (count <= 0) return false;
        at += count;
        num_bytes -= static_cast<size_t>(count);
    }
    return true;
}

void send(const void* data, size_t num_bytes) {
    const auto* at = static_cast<const char*>(data);
    while (num_bytes > 0) {
        const ssize_t count = write(kGpuSocket, at, num_bytes);
        if (count <= 0) _exit(0);  // the other end is closed
        at += count;
        num_bytes -= static_cast<size_t>(count);
    }
}

void answer(GpuEnd end, const char* detail, const std::vector<double>& numbers = {}) {
    GpuAnswer answer;
    answer.end = end;
    answer.num_numbers = static_cast<int64_t>(numbers.size());
    std::snprintf(answer.detail, sizeof answer.detail, "%s", detail);
    send(&answer, sizeof answer);
    send(numbers.data(), numbers.size() * sizeof(double));
}

// After an error of CUDA nothing more can be called: the process that asks starts another program.
void want(cudaError_t error) {
    if (error == cudaSuccess) return;
    answer(GpuEnd::kCrash, cudaGetErrorString(error));
    _exit(0);
}

// Device memory, freed at the end.
class DeviceBlock {
public:
    explicit DeviceBlock(int64_t num_bytes) {
        if (num_bytes > 0) want(cudaMalloc(&data_, static_cast<size_t>(num_bytes)));
    }
    ~DeviceBlock() { cudaFree(data_); }
    DeviceBlock(const DeviceBlock&) = delete;
    DeviceBlock& operator=(const DeviceBlock&) = delete;
    [[nodiscard]] char* data() const { return static_cast<char*>(data_); }

private:
    void* data_ = nullptr;
};

// Device memory with known bytes on both sides.
class GuardedDeviceBlock {
public:
    GuardedDeviceBlock(int64_t num_bytes, int fill) : num_bytes_(num_bytes), block_(num_bytes + 2 * kGuardBytes) {
        want(cudaMemset(block_.data(), kGuardValue, static_cast<size_t>(num_bytes + 2 * kGuardBytes)));
        if (num_bytes > 0) want(cudaMemset(data(), fill, static_cast<size_t>(num_bytes)));
    }
    [[nodiscard]] char* data() const { return block_.data() + kGuardBytes; }
    [[nodiscard]] bool is_intact() const {
        std::vector<unsigned char> around(2 * kGuardBytes);
        want(cudaMemcpy(around.data(), block_.data(), kGuardBytes, cudaMemcpyDeviceToHost));
        want(cudaMemcpy(around.data() + kGuardBytes, data() + num_bytes_, kGuardBytes, cudaMemcpyDeviceToHost));
        for (const unsigned char byte : around) {
            if (byte != kGuardValue) return false;
        }
        return true;
    }

private:
    int64_t num_bytes_;
    DeviceBlock block_;
};

// A tensor on the GPU, aligned as it is on the host.
class DeviceTensor {
public:
    DeviceTensor(char* memory, const GpuTensor& tensor)
        : tensor_(tensor),
          host_(memory + tensor.offset),
          shift_(static_cast<int64_t>(reinterpret_cast<uintptr_t>(host_) % kGuardBytes)),
          block_(tensor.num_bytes == 0 ? 0 : tensor.num_bytes + shift_),
          before_(tensor.changes_in_place != 0 ? tensor.num_bytes : 0) {
        if (tensor.num_bytes == 0) return;
        want(cudaMemcpy(begin(), host_, size(), cudaMemcpyHostToDevice));
        if (before_.data() != nullptr) want(cudaMemcpy(before_.data(), host_, size(), cudaMemcpyHostToDevice));
    }
    // Null: it is absent.
    [[nodiscard]] char* data() const { return tensor_.num_bytes == 0 ? nullptr : begin() + tensor_.data_offset; }
    [[nodiscard]] char* host_data() const { return tensor_.num_bytes == 0 ? nullptr : host_ + tensor_.data_offset; }
    void put_back() const {
        if (before_.data() != nullptr) want(cudaMemcpyAsync(begin(), before_.data(), size(), cudaMemcpyDeviceToDevice));
    }
    void bring_back() const {
        if (tensor_.num_bytes > 0) want(cudaMemcpy(host_, begin(), size(), cudaMemcpyDeviceToHost));
    }

private:
    [[nodiscard]] char* begin() const { return block_.data() + shift_; }
    [[nodiscard]] size_t size() const { return static_cast<size_t>(tensor_.num_bytes); }

    GpuTensor tensor_;
    char* host_;
    int64_t shift_;
    DeviceBlock block_;
    DeviceBlock before_;
};

// The tasks that a kernel runs on CPU threads, one after another here.
void parallel(const verbatim_run*, int32_t num_tasks, void (*task)(void* mine, int32_t index), void* mine) {
    for (int32_t i = 0; i < num_tasks; ++i) task(mine, i);
}

int32_t attribute(cudaDeviceAttr which) {
    int value = 0;
    want(cudaDeviceGetAttribute(&value, which, 0));
    return value;
}

// Seconds of the stream's work between two events.
class Stopwatch {
public:
    Stopwatch() {
        want(cudaEventCreate(&begin_));
        want(cudaEventCreate(&end_));
    }
    ~Stopwatch() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
    }
    Stopwatch(const Stopwatch&) = delete;
    Stopwatch& operator=(const Stopwatch&) = delete;
    void start() { want(cudaEventRecord(begin_)); }
    double stop() {
        want(cudaEventRecord(end_));
        want(cudaEventSynchronize(end_));
        float milliseconds = 0;
        want(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return milliseconds * 1e-3;
    }

private:
    cudaEvent_t begin_{}, end_{};
};

// --- the limits

constexpr int kThreads = 256;
constexpr int kAccumulators = 16, kTurns = 4096;

__global__ void read_all(const uint4* from, int64_t count, uint32_t* out) {
    uint4 sum{};
    for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += int64_t{kThreads} * gridDim.x) {
        const uint4 four = from[i];
        sum = {sum.x ^ four.x, sum.y ^ four.y, sum.z ^ four.z, sum.w ^ four.w};
    }
    // It never holds, and the compiler does not know.
    if ((sum.x & sum.y & sum.z & sum.w) == 0x5A5A5A5AU) *out = sum.x;
}

__global__ void multiply_and_add(float factor, float* out) {
    float sums[kAccumulators];
    for (int i = 0; i < kAccumulators; ++i) sums[i] = static_cast<float>(threadIdx.x + i);
    for (int turn = 0; turn < kTurns; ++turn) {
        for (int i = 0; i < kAccumulators; ++i) sums[i] = __fmaf_rn(sums[i], factor, factor);
    }
    float sum = 0;
    for (int i = 0; i < kAccumulators; ++i) sum += sums[i];
    if (sum == -1.0F) *out = sum;
}

// The best of several rounds: disturbances make a limit lower, never higher.
template <typename Launch>
double least_seconds(const Launch& launch) {
    constexpr int kRounds = 8;
    double least = 0;
    Stopwatch watch;
    for (int i = 0; i < kRounds; ++i) {
        watch.start();
        launch();
        const double seconds = watch.stop();
        least = i == 0 || seconds < least ? seconds : least;
    }
    return least;
}

void measure_limits() {
    const int64_t cache_bytes = attribute(cudaDevAttrL2CacheSize);
    const int64_t num_bytes = (8 * cache_bytes / 4096 + 1) * 4096;
    const unsigned num_blocks = 8U * static_cast<unsigned>(attribute(cudaDevAttrMultiProcessorCount));
    const GuardedDeviceBlock from(num_bytes, 0);
    const GuardedDeviceBlock out(sizeof(uint32_t), 0);
    const auto* const data = reinterpret_cast<const uint4*>(from.data());
    int64_t count = num_bytes / static_cast<int64_t>(sizeof(uint4));
    auto* whole = reinterpret_cast<uint32_t*>(out.data());
    auto* number = reinterpret_cast<float*>(out.data());
    float factor = 0.5F;
    const auto launch = [&](const void* kernel, void** arguments) {
        want(cudaLaunchKernel(kernel, dim3(num_blocks), dim3(kThreads), arguments, 0, nullptr));
    };
    void* read_arguments[] = {const_cast<uint4**>(&data), &count, &whole};
    void* multiply_arguments[] = {&factor, &number};
    const double reading = least_seconds([&] { launch(reinterpret_cast<const void*>(read_all), read_arguments); });
    const double multiplying =
        least_seconds([&] { launch(reinterpret_cast<const void*>(multiply_and_add), multiply_arguments); });
    const double flops = 2.0 * kAccumulators * kTurns * kThreads * num_blocks;
    answer(GpuEnd::kDone, "", {static_cast<double>(num_bytes) / reading, flops / multiplying});
}

// --- calls

struct Call {
    GpuQuestion question;
    std::vector<char> args, host_args;  // the operation's struct with device pointers, and with the host's for pack()
    std::deque<DeviceTensor> tensors;
};

std::vector<double> time_calls(const Call& call, const verbatim_kernel& kernel, const verbatim_run& run,
                               int32_t& code) {
    using Clock = std::chrono::steady_clock;
    constexpr int64_t kWarmups = 3;
    const int64_t other_bytes = call.question.is_cold != 0 ? 2 * int64_t{attribute(cudaDevAttrL2CacheSize)} : 0;
    const DeviceBlock other(other_bytes);
    const auto begin = Clock::now();
    const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    std::vector<double> times;
    Stopwatch watch;
    for (int64_t i = -kWarmups; i < call.question.max_calls; ++i) {
        for (const DeviceTensor& tensor : call.tensors) tensor.put_back();
        if (other_bytes > 0) {
            want(cudaMemsetAsync(other.data(), static_cast<int>(i & 0xFF), static_cast<size_t>(other_bytes)));
        }
        watch.start();
        code = kernel.run(&kernel, &run);
        if (code != 0) return times;
        const double passed = watch.stop();
        if (i >= 0) times.push_back(passed);
        if (i >= 0 && seconds() > call.question.max_seconds) break;
    }
    return times;
}

void run_call(const Call& call, const verbatim_kernel& kernel) {
    verbatim_args given{}, given_host{};
    given.matmul = reinterpret_cast<const verbatim_matmul*>(call.args.data());  // every member points to its struct
    given_host.matmul = reinterpret_cast<const verbatim_matmul*>(call.host_args.data());
    if (kernel.supports != nullptr && kernel.supports(&kernel, given) == 0) return answer(GpuEnd::kUnsupported, "");
    verbatim_run run{};
    run.args = given;
    run.parallel = parallel;
    const int32_t num_all = attribute(cudaDevAttrMultiProcessorCount);
    const auto num_wanted = static_cast<int32_t>(call.question.num_threads);
    run.num_threads = num_wanted == 0 || num_wanted > num_all ? num_all : num_wanted;
    run.block_threads = static_cast<int32_t>(call.question.block_threads);
    const int64_t workspace_bytes =
        kernel.workspace_bytes != nullptr ? kernel.workspace_bytes(&kernel, given, run.num_threads) : 0;
    const int64_t packed_bytes =
        kernel.pack != nullptr && kernel.packed_bytes != nullptr ? kernel.packed_bytes(&kernel, given) : 0;
    if (workspace_bytes < 0 || packed_bytes < 0) {
        return answer(GpuEnd::kFailed, "workspace_bytes() or packed_bytes() is negative");
    }
    const GuardedDeviceBlock workspace(workspace_bytes, static_cast<int>(call.question.workspace_fill));
    const GuardedDeviceBlock packed(packed_bytes, 0xFF);
    if (kernel.pack != nullptr) {
        std::vector<char> host(static_cast<size_t>(packed_bytes) + 1);
        kernel.pack(&kernel, given_host, host.data());
        want(cudaMemcpy(packed.data(), host.data(), static_cast<size_t>(packed_bytes), cudaMemcpyHostToDevice));
        run.packed = packed.data();
    }
    run.workspace = workspace.data();
    int32_t code = 0;
    std::vector<double> times;
    if (call.question.kind == GpuQuestionKind::kTime) {
        times = time_calls(call, kernel, run, code);
    } else {
        code = kernel.run(&kernel, &run);
    }
    if (code != 0) {
        char text[64];
        std::snprintf(text, sizeof text, "run() returns %d", static_cast<int>(code));
        return answer(GpuEnd::kFailed, text);
    }
    // A launch that CUDA refuses is no error of the device, and the program goes on.
    const cudaError_t refused = cudaGetLastError();
    want(cudaDeviceSynchronize());
    if (refused != cudaSuccess) return answer(GpuEnd::kFailed, cudaGetErrorString(refused));
    for (const DeviceTensor& tensor : call.tensors) tensor.bring_back();
    if (!workspace.is_intact()) return answer(GpuEnd::kOutside, "writes outside of its workspace");
    if (!packed.is_intact()) return answer(GpuEnd::kOutside, "writes outside of its packed weights");
    answer(GpuEnd::kDone, "", times);
}

// False: the questions have ended.
bool answer_next(char* memory) {
    Call call;
    if (!receive(&call.question, sizeof call.question)) return false;
    const GpuQuestion& question = call.question;
    call.args.resize(static_cast<size_t>(question.struct_bytes));
    std::vector<GpuTensor> tensors(static_cast<size_t>(question.num_tensors));
    std::vector<GpuPointer> pointers(static_cast<size_t>(question.num_pointers));
    const bool is_whole = receive(call.args.data(), call.args.size()) &&
                          receive(tensors.data(), tensors.size() * sizeof(GpuTensor)) &&
                          receive(pointers.data(), pointers.size() * sizeof(GpuPointer));
    if (!is_whole) return false;
    if (question.kind == GpuQuestionKind::kLimits) {
        measure_limits();
        return true;
    }
    call.host_args = call.args;
    for (const GpuTensor& tensor : tensors) call.tensors.emplace_back(memory, tensor);
    for (const GpuPointer& pointer : pointers) {
        const GpuTensor& named = tensors[static_cast<size_t>(pointer.tensor)];
        const DeviceTensor& tensor =
            call.tensors[static_cast<size_t>(named.lies_in < 0 ? pointer.tensor : named.lies_in)];
        char* const device = tensor.data();
        char* const host = tensor.host_data();
        std::memcpy(call.args.data() + pointer.at, &device, sizeof device);
        std::memcpy(call.host_args.data() + pointer.at, &host, sizeof host);
    }
    run_call(call, *verbatim_kernel_at(static_cast<int32_t>(question.kernel)));
    return true;
}

}  // namespace

int main() {
    struct stat memory_file {};
    if (fstat(kGpuMemory, &memory_file) != 0) {
        std::fprintf(stderr, "gpu_serve: a verb of `verbatim kernel` starts this program\n");
        return 2;
    }
    void* const memory =
        mmap(nullptr, static_cast<size_t>(memory_file.st_size), PROT_READ | PROT_WRITE, MAP_SHARED, kGpuMemory, 0);
    if (memory == MAP_FAILED) return 2;
    int device = 0;
    want(cudaGetDevice(&device));
    want(cudaFree(nullptr));  // the context is made now, and not in the first call's time
    cudaDeviceProp properties{};
    want(cudaGetDeviceProperties(&properties, device));
    answer(GpuEnd::kDone, properties.name);
    while (answer_next(static_cast<char*>(memory))) {
    }
    return 0;
}
