#include "kernels/machine.h"

#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/check.h"

namespace verbatim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kMinCacheBytes = int64_t{32} << 20;
constexpr int64_t kStepBytes = 512;  // one turn of a read loop; of a thread's share, too
constexpr int64_t kPeakSteps = 1 << 20;

// Seconds from the moment when all threads have started until the last one is done.
double time_together(int32_t num_threads, const std::function<void(int32_t thread)>& work) {
    std::barrier gate(num_threads);
    std::vector<Clock::time_point> begins(num_threads);
    std::vector<Clock::time_point> ends(num_threads);
    const auto run = [&](int32_t thread) {
        gate.arrive_and_wait();
        begins[thread] = Clock::now();
        work(thread);
        ends[thread] = Clock::now();
    };
    std::vector<std::thread> threads;
    for (int32_t i = 1; i < num_threads; ++i) threads.emplace_back(run, i);
    run(0);
    for (std::thread& thread : threads) thread.join();
    const auto time = *std::max_element(ends.begin(), ends.end()) - *std::min_element(begins.begin(), begins.end());
    return std::chrono::duration<double>(time).count();
}

// Results go here, so that no loop is left out.
std::atomic<float> sink;

// --- reading: every function reads [begin, end) once, kStepBytes a turn

float read_portable(const std::byte* begin, const std::byte* end, bool) {
    uint64_t sums[8] = {};
    for (; begin < end; begin += 64) {
        const auto* words = reinterpret_cast<const uint64_t*>(begin);
        for (int i = 0; i < 8; ++i) sums[i] ^= words[i];
    }
    uint64_t all = 0;
    for (const uint64_t sum : sums) all ^= sum;
    return static_cast<float>(all);
}

// --- arithmetic: `steps` turns of sixteen independent accumulators

constexpr int kAccumulators = 16;

// Returns the operations that were done.
double peak_portable(int64_t steps) {
    const int64_t turns = steps / 16;
    float acc[kAccumulators] = {};
    for (int64_t s = 0; s < turns; ++s) {
        for (float& a : acc) a = a * 0.5F + 1.0F;
    }
    for (const float a : acc) sink = a;
    return static_cast<double>(turns) * kAccumulators * 2;
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) float read_avx2(const std::byte* begin, const std::byte* end, bool prefetch) {
    constexpr int kVectors = kStepBytes / 32;
    __m256i sums[8] = {};
    for (; begin < end; begin += kStepBytes) {
        if (prefetch) {
            for (int64_t line = 0; line < kStepBytes; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(begin) + 4096 + line, _MM_HINT_T0);
        }
        const auto* vectors = reinterpret_cast<const __m256i*>(begin);
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) sums[i % 8] = _mm256_xor_si256(sums[i % 8], _mm256_load_si256(vectors + i));
    }
    __m256i all = sums[0];
    for (int i = 1; i < 8; ++i) all = _mm256_xor_si256(all, sums[i]);
    return static_cast<float>(_mm256_extract_epi32(all, 0));
}

__attribute__((target("avx512f"))) float read_avx512(const std::byte* begin, const std::byte* end, bool prefetch) {
    constexpr int kVectors = kStepBytes / 64;
    __m512i sums[kVectors] = {};
    for (; begin < end; begin += kStepBytes) {
        if (prefetch) {
            for (int64_t line = 0; line < kStepBytes; line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(begin) + 4096 + line, _MM_HINT_T0);
        }
        const auto* vectors = reinterpret_cast<const __m512i*>(begin);
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) sums[i] = _mm512_xor_si512(sums[i], _mm512_load_si512(vectors + i));
    }
    __m512i all = sums[0];
    for (int i = 1; i < kVectors; ++i) all = _mm512_xor_si512(all, sums[i]);
    return static_cast<float>(_mm512_cvtsi512_si32(all));
}

// AVX2 has sixteen registers: twelve accumulators and two operands.
__attribute__((target("avx2,fma"))) double peak_fma_avx2(int64_t steps) {
    constexpr int kFit = 12;
    const __m256 half = _mm256_set1_ps(0.5F);
    const __m256 one = _mm256_set1_ps(1.0F);
    __m256 acc[kFit];
    for (__m256& a : acc) a = _mm256_setzero_ps();
    for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 12
        for (int i = 0; i < kFit; ++i) acc[i] = _mm256_fmadd_ps(acc[i], half, one);
    }
    __m256 all = acc[0];
    for (int i = 1; i < kFit; ++i) all = _mm256_add_ps(all, acc[i]);
    sink = _mm256_cvtss_f32(all);
    return static_cast<double>(steps) * kFit * 8 * 2;
}

__attribute__((target("avx512f"))) double peak_fma_avx512(int64_t steps) {
    const __m512 half = _mm512_set1_ps(0.5F);
    const __m512 one = _mm512_set1_ps(1.0F);
    __m512 acc[kAccumulators];
    for (__m512& a : acc) a = _mm512_setzero_ps();
    for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 16
        for (int i = 0; i < kAccumulators; ++i) acc[i] = _mm512_fmadd_ps(acc[i], half, one);
    }
    __m512 all = acc[0];
    for (int i = 1; i < kAccumulators; ++i) all = _mm512_add_ps(all, acc[i]);
    sink = _mm512_cvtss_f32(all);
    return static_cast<double>(steps) * kAccumulators * 16 * 2;
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) double peak_dpbf16(int64_t steps) {
    const auto value = (__m512bh)_mm512_set1_epi32(0x2F802F80);  // two bf16 of 2^-32
    __m512 acc[kAccumulators];
    for (__m512& a : acc) a = _mm512_setzero_ps();
    for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 16
        for (int i = 0; i < kAccumulators; ++i) acc[i] = _mm512_dpbf16_ps(acc[i], value, value);
    }
    __m512 all = acc[0];
    for (int i = 1; i < kAccumulators; ++i) all = _mm512_add_ps(all, acc[i]);
    sink = _mm512_cvtss_f32(all);
    return static_cast<double>(steps) * kAccumulators * 16 * 4;
}

#endif

using ReadLoop = float (*)(const std::byte*, const std::byte*, bool);
using PeakLoop = double (*)(int64_t);

ReadLoop read_loop() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return read_avx512;
    if (__builtin_cpu_supports("avx2")) return read_avx2;
#endif
    return read_portable;
}

PeakLoop fma_loop() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return peak_fma_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return peak_fma_avx2;
#endif
    return peak_portable;
}

PeakLoop dpbf16_loop() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl")) return peak_dpbf16;
#endif
    return nullptr;
}

double peak_round(int32_t num_threads, PeakLoop loop) {
    std::vector<double> flops(num_threads);
    const double time = time_together(num_threads, [&](int32_t thread) { flops[thread] = loop(kPeakSteps); });
    double all = 0;
    for (const double some : flops) all += some;
    return all / time;
}

std::string first_line(const std::filesystem::path& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

// Caches of the highest level that sysfs lists, each counted once.
int64_t sysfs_cache_bytes() {
    int best_level = 0;
    int64_t bytes = 0;
    std::set<std::string> seen;
    const std::filesystem::path root = "/sys/devices/system/cpu";
    for (int cpu = 0; std::filesystem::exists(root / fmt::format("cpu{}/cache", cpu)); ++cpu) {
        for (int i = 0;; ++i) {
            const auto cache = root / fmt::format("cpu{}/cache/index{}", cpu, i);
            if (!std::filesystem::exists(cache)) break;
            const int level = std::atoi(first_line(cache / "level").c_str());
            if (level < best_level) continue;
            if (level > best_level) {
                bytes = 0;
                seen.clear();
                best_level = level;
            }
            if (!seen.insert(first_line(cache / "shared_cpu_list")).second) continue;
            bytes += std::atoll(first_line(cache / "size").c_str()) * 1024;  // "32768K"
        }
    }
    return bytes;
}

// The number of KiB behind `key` in a file of lines "Key:  123 kB", in bytes; -1: none.
int64_t kib_field(const char* path, const std::string& key) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with(key + ":")) return std::atoll(line.c_str() + key.size() + 1) * 1024;
    }
    return -1;
}

}  // namespace

MachineLimits best_of(const MachineLimits& a, const MachineLimits& b) {
    return {std::max(a.stream_bytes_per_s, b.stream_bytes_per_s), std::max(a.fma_flops, b.fma_flops),
            std::max(a.dpbf16_flops, b.dpbf16_flops)};
}

int64_t last_level_cache_bytes() {
    int64_t bytes = sysfs_cache_bytes();
#if defined(_SC_LEVEL3_CACHE_SIZE)
    // The C library's number may be of a whole package, of which a virtual machine has a few cores.
    if (bytes == 0) bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return std::max(kMinCacheBytes, bytes);
}

int64_t available_memory_bytes() {
    const int64_t bytes = kib_field("/proc/meminfo", "MemAvailable");
    return bytes < 0 ? std::numeric_limits<int64_t>::max() : bytes;
}

int64_t resident_bytes() { return std::max<int64_t>(0, kib_field("/proc/self/status", "VmRSS")); }

double processor_time_s() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

MachineProbe::MachineProbe(int32_t num_threads, int64_t buffer_bytes) : num_threads_(num_threads) {
    CHECK(num_threads > 0 && buffer_bytes >= 0);
    const int64_t unit = kStepBytes * num_threads;
    const int64_t wanted =
        std::min(buffer_bytes > 0 ? buffer_bytes : 4 * last_level_cache_bytes(), available_memory_bytes() / 4);
    buffer_bytes_ = (wanted + unit - 1) / unit * unit;
    void* memory =
        mmap(nullptr, static_cast<size_t>(buffer_bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED, "no memory for {} bytes", buffer_bytes_);
    (void)madvise(memory, static_cast<size_t>(buffer_bytes_), MADV_HUGEPAGE);
    buffer_ = static_cast<std::byte*>(memory);
    time_together(num_threads_, [&](int32_t thread) {
        const int64_t share = buffer_bytes_ / num_threads_;
        std::fill_n(buffer_ + thread * share, share, std::byte{1});
    });
}

MachineProbe::~MachineProbe() { munmap(buffer_, static_cast<size_t>(buffer_bytes_)); }

double MachineProbe::stream_round(bool prefetch) {
    static const ReadLoop loop = read_loop();
    const int64_t share = buffer_bytes_ / num_threads_;
    const double time = time_together(num_threads_, [&](int32_t thread) {
        const std::byte* begin = buffer_ + thread * share;
        sink = loop(begin, begin + share, prefetch);
    });
    return static_cast<double>(buffer_bytes_) / time;
}

MachineLimits MachineProbe::measure(int32_t num_rounds) {
    MachineLimits best;
    for (int32_t round = 0; round < num_rounds; ++round) {
        MachineLimits one;
        one.stream_bytes_per_s = std::max(stream_round(false), stream_round(true));
        one.fma_flops = peak_round(num_threads_, fma_loop());
        if (dpbf16_loop() != nullptr) one.dpbf16_flops = peak_round(num_threads_, dpbf16_loop());
        best = best_of(best, one);
    }
    return best;
}

}  // namespace verbatim
