#include "tools/bench_load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "kernels/cpu/aligned_array.h"
#include "reference/model/load_model.h"
#include "reference/model/presets.h"
#include "reference/model/write_checkpoint.h"
#include "reference/worker_pool.h"
#include "tools/cli.h"

namespace verbatim::tools {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A folder that is removed with what is in it.
struct ScratchCheckpoint {
    fs::path folder;
    ~ScratchCheckpoint() {
        std::error_code ignored;
        if (!folder.empty()) fs::remove_all(folder, ignored);
    }
};

Status write_preset(const BenchConfig& config, ScratchCheckpoint& scratch) {
    std::error_code problem;
    const fs::path root = config.scratch.empty() ? fs::temp_directory_path(problem) : fs::path(config.scratch);
    if (problem) return error("there is no folder for scratch files: {}: name one with --scratch", problem.message());
    scratch.folder = root / fmt::format("verbatim-bench-{}", getpid());
    ASSIGN_OR_RETURN(const reference::ModelConfig model, reference::preset(config.model));
    const int64_t num_parameters = reference::geometry(model).num_parameters;
    ProgressBar progress(fmt::format("writing {}", config.model), static_cast<uint64_t>(num_parameters));
    return reference::write_random_checkpoint(model, config.seed, scratch.folder,
                                              [&](int64_t done) { progress.update(static_cast<uint64_t>(done)); });
}

// Calls `use(descriptor)` for each of the folder's safetensors files; false from it is an error.
template <typename Use>
Status for_each_file(const fs::path& folder, const Use& use) {
    std::error_code problem;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, problem)) {
        if (entry.path().extension() != ".safetensors") continue;
        const int file = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
        if (file < 0) return error("{}: cannot be opened", entry.path().string());
        const bool good = use(file);
        close(file);
        if (!good) return error("{}: cannot be read", entry.path().string());
    }
    if (problem) return error("{}: {}", folder.string(), problem.message());
    return {};
}

// Every byte, once, with plain reads. The bytes there were.
Result<int64_t> read_files(const fs::path& folder) {
    std::vector<char> buffer(size_t{4} << 20);
    int64_t bytes = 0;
    RETURN_IF_ERROR(for_each_file(folder, [&](int file) {
        ssize_t got = 0;
        while ((got = read(file, buffer.data(), buffer.size())) > 0) bytes += got;
        return got == 0;
    }));
    return bytes;
}

// The system forgets what it holds of the files, as far as it cares to.
Status drop_pages(const fs::path& folder) {
    return for_each_file(
        folder, [](int file) { return fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0; });
}

// Writes to each page of that much fresh memory: what comes before any copy of the weights.
double fresh_memory_s(int64_t bytes, int32_t num_threads) {
    constexpr int64_t kPageBytes = 4096;
    reference::WorkerPool threads(num_threads);
    const Clock::time_point begin = Clock::now();
    cpu::AlignedArray<std::byte> memory(bytes);
    threads.for_ranges(bytes / kPageBytes, 1, [&](int64_t first, int64_t last) {
        for (int64_t page = first; page < last; ++page) memory.data()[page * kPageBytes] = std::byte{1};
    });
    return seconds_since(begin);
}

int64_t pool_bytes(const reference::ModelConfig& model, const cpu::CpuExecutorConfig& pools) {
    const reference::ModelGeometry geometry = reference::geometry(model);
    return geometry.kv_bytes_per_token * pools.block_size * pools.num_blocks +
           geometry.state_bytes_per_row * pools.num_state_rows;
}

// Loads and packs once. The executor lives while its memory is looked at.
Status load_once(const fs::path& folder, const cpu::CpuExecutorConfig& pools, BenchRow& row) {
    const int64_t before = resident_bytes();
    const Clock::time_point begin = Clock::now();
    ASSIGN_OR_RETURN(const reference::Model model, reference::load_model(folder, pools.num_threads));
    const cpu::CpuExecutor executor(model.config, model.weights, pools);
    row.times_s.push_back(seconds_since(begin));
    row.load->resident_bytes = std::max(row.load->resident_bytes, resident_bytes() - before);
    row.load->wanted_bytes = row.load->file_bytes + pool_bytes(model.config, pools);
    return {};
}

Result<BenchRow> load_row(const BenchConfig& config, const fs::path& folder, const cpu::CpuExecutorConfig& pools,
                          bool cold) {
    BenchRow row;
    row.phase = cold ? "load_cold" : "load";
    row.check = "loaded";
    row.load.emplace();
    ASSIGN_OR_RETURN(row.load->file_bytes, read_files(folder));
    for (int64_t round = 0; round < config.repeats; ++round) {
        if (cold) RETURN_IF_ERROR(drop_pages(folder));
        const Clock::time_point begin = Clock::now();
        RETURN_IF_ERROR(read_files(folder));
        row.load->read_times_s.push_back(seconds_since(begin));
        row.load->fresh_times_s.push_back(fresh_memory_s(row.load->file_bytes, config.num_threads));
        if (cold) RETURN_IF_ERROR(drop_pages(folder));
        RETURN_IF_ERROR(load_once(folder, pools, row));
    }
    return row;
}

}  // namespace

Result<std::vector<BenchRow>> bench_load(const BenchConfig& config, const cpu::CpuExecutorConfig& pools) {
    ScratchCheckpoint scratch;
    fs::path folder = config.model;
    if (std::ranges::count(reference::preset_names(), config.model) > 0) {
        RETURN_IF_ERROR(write_preset(config, scratch));
        folder = scratch.folder;
    }
    std::vector<BenchRow> rows;
    for (const bool cold : {false, true}) {
        ASSIGN_OR_RETURN(rows.emplace_back(), load_row(config, folder, pools, cold));
    }
    return rows;
}

}  // namespace verbatim::tools
