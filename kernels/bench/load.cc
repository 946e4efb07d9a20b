#include "kernels/bench/load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "files/progress_bar.h"
#include "files/regular_file.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/packed_file.h"
#include "reference/loader/gguf.h"
#include "reference/loader/load_model.h"
#include "reference/loader/model_choice.h"
#include "reference/loader/write_checkpoint.h"
#include "reference/model/presets.h"
#include "reference/worker_pool.h"

namespace verbatim::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// A folder that is removed with what is in it.
class ScratchFolder {
public:
    static Result<ScratchFolder> create(const std::string& root_or_none) {
        std::error_code problem;
        const fs::path root = root_or_none.empty() ? fs::temp_directory_path(problem) : fs::path(root_or_none);
        ScratchFolder scratch(root / fmt::format("verbatim-bench-{}", getpid()));
        if (!problem) fs::create_directory(scratch.path_, problem);
        if (problem)
            return error("there is no folder for scratch files: {}: name one with --scratch", problem.message());
        return scratch;
    }
    ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    ~ScratchFolder() {
        std::error_code ignored;
        if (!path_.empty()) fs::remove_all(path_, ignored);
    }
    [[nodiscard]] const fs::path& path() const { return path_; }

private:
    explicit ScratchFolder(fs::path path) : path_(std::move(path)) {}
    fs::path path_;
};

// The preset as a checkpoint with random weights.
Status write_preset(const BenchConfig& config, const fs::path& folder) {
    ASSIGN_OR_RETURN(const reference::ModelConfig model, bench_shapes(config));
    const int64_t num_parameters = reference::geometry(model).num_parameters;
    ProgressBar progress(fmt::format("writing {}", config.model), static_cast<uint64_t>(num_parameters));
    return reference::write_random_checkpoint(model, config.seed, folder,
                                              [&](int64_t done) { progress.update(static_cast<uint64_t>(done)); });
}

// The loaded files: a checkpoint, or its packed weights.
struct LoadSource {
    fs::path checkpoint;
    std::vector<fs::path> weights;  // the checkpoint's safetensors files, or the parts of a GGUF file
    fs::path packed;                // empty: nothing is kept
};

Result<std::vector<fs::path>> weight_files(const fs::path& checkpoint) {
    if (reference::is_gguf(checkpoint)) {
        ASSIGN_OR_RETURN(reference::GgufFile file, reference::open_gguf(checkpoint));
        return std::move(file.paths);
    }
    std::vector<fs::path> files;
    std::error_code problem;
    for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint, problem)) {
        if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    if (problem) return error("{}: {}", checkpoint.string(), problem.message());
    return files;
}

// Every byte, once, with plain reads. The bytes there were.
Result<int64_t> read_files(const std::vector<fs::path>& files) {
    std::vector<std::byte> buffer(size_t{4} << 20);
    int64_t bytes = 0;
    for (const fs::path& path : files) {
        ASSIGN_OR_RETURN(const RegularFile file, RegularFile::open(path));
        ssize_t got = 0;
        while ((got = read(file.descriptor(), buffer.data(), buffer.size())) > 0) bytes += got;
        if (got < 0) return error("{}: cannot be read", path.string());
    }
    return bytes;
}

// The system forgets what it holds of the source's files, as far as it cares to.
Status drop_pages(const LoadSource& source) {
    std::vector<fs::path> files = source.weights;
    if (!source.packed.empty()) files.push_back(source.packed);
    for (const fs::path& path : files) {
        ASSIGN_OR_RETURN(const RegularFile file, RegularFile::open(path));
        if (fsync(file.descriptor()) != 0 || posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED) != 0)
            return error("{}: its pages cannot be dropped", path.string());
    }
    return {};
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

int64_t pool_bytes(const reference::ModelConfig& model, const PoolSizes& pools) {
    const reference::ModelGeometry geometry = reference::geometry(model);
    return geometry.kv_bytes_per_token * pools.block_size * pools.num_blocks +
           geometry.state_bytes_per_row * pools.num_state_rows;
}

// Packed now, or read from where they are kept.
Result<cpu::PackedWeights> packed_weights(const reference::Model& model, const LoadSource& source,
                                          const cpu::CpuExecutorConfig& pools) {
    reference::WorkerPool threads(pools.num_threads);
    const cpu::WeightFormat format = cpu::format_of(pools);
    if (source.packed.empty()) return cpu::PackedWeights(model.config, model.weights, threads, format);
    return cpu::keep_packed(source.packed, model, threads, format).map([](cpu::KeptWeights&& kept) {
        return std::move(kept.weights);
    });
}

// Loads once. The executor lives while its memory is looked at.
Status load_once(const LoadSource& source, const cpu::CpuExecutorConfig& pools, BenchRow& row) {
    const int64_t before = resident_bytes();
    const Clock::time_point begin = Clock::now();
    reference::LoadOptions load{.num_threads = pools.num_threads};
    ASSIGN_OR_RETURN(load.known_canonical, cpu::known_canonical(source.packed));
    ASSIGN_OR_RETURN(const reference::Model model, reference::load_model(source.checkpoint, load));
    ASSIGN_OR_RETURN(cpu::PackedWeights packed, packed_weights(model, source, pools));
    const cpu::CpuExecutor executor(model.config, model.weights, pools, std::move(packed));
    row.times_s.push_back(seconds_since(begin));
    row.load->resident_bytes = std::max(row.load->resident_bytes, resident_bytes() - before);
    row.load->wanted_bytes = row.load->file_bytes + pool_bytes(model.config, pools.pools);
    return {};
}

// As long as it takes from where `source` lies: in the page cache or, if `cold`, on the disk.
Result<BenchRow> load_row(const BenchConfig& config, const LoadSource& source, const cpu::CpuExecutorConfig& pools,
                          bool cold) {
    BenchRow row;
    row.phase = fmt::format("load{}{}", source.packed.empty() ? "" : "_packed", cold ? "_cold" : "");
    row.check = "loaded";
    row.load.emplace();
    ASSIGN_OR_RETURN(row.load->file_bytes, read_files(source.weights));
    for (int64_t round = 0; round < config.repeats; ++round) {
        if (cold) RETURN_IF_ERROR(drop_pages(source));
        const Clock::time_point begin = Clock::now();
        RETURN_IF_ERROR(read_files(source.weights));
        row.load->read_times_s.push_back(seconds_since(begin));
        row.load->fresh_times_s.push_back(fresh_memory_s(row.load->file_bytes, config.num_threads));
        if (cold) RETURN_IF_ERROR(drop_pages(source));
        RETURN_IF_ERROR(load_once(source, pools, row));
    }
    return row;
}

// Makes the file of packed weights.
Status keep_packed(const LoadSource& source, const cpu::CpuExecutorConfig& pools) {
    ASSIGN_OR_RETURN(const reference::Model model, reference::load_model(source.checkpoint, {pools.num_threads}));
    return packed_weights(model, source, pools).map([](const auto&) {});
}

}  // namespace

Result<std::vector<BenchRow>> bench_load(const BenchConfig& config, const cpu::CpuExecutorConfig& pools) {
    ASSIGN_OR_RETURN(const ScratchFolder scratch, ScratchFolder::create(config.scratch));
    LoadSource source;
    source.checkpoint = reference::is_preset(config.model) ? scratch.path() / "checkpoint" : fs::path(config.model);
    if (reference::is_preset(config.model)) RETURN_IF_ERROR(write_preset(config, source.checkpoint));
    ASSIGN_OR_RETURN(source.weights, weight_files(source.checkpoint));
    LoadSource kept = source;
    kept.packed = scratch.path() / "packed";
    RETURN_IF_ERROR(keep_packed(kept, pools));
    std::vector<BenchRow> rows;
    for (const LoadSource* from : {&source, &kept}) {
        for (const bool cold : {false, true}) {
            ASSIGN_OR_RETURN(rows.emplace_back(), load_row(config, *from, pools, cold));
        }
    }
    return rows;
}

}  // namespace verbatim::bench
