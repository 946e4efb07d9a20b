// kernels/bench/load.h: the time from a checkpoint to a ready executor, compared with reading its file, and the
// resident memory. Row "load" finds the file in the system's page cache, row "load_cold" on the disk; "load_packed" and
// "load_packed_cold" read the packed weights of an earlier load (kernels/cpu/packed_file.h).
#pragma once

#include <vector>

#include "engine/base/result.h"
#include "kernels/bench/run.h"
#include "kernels/cpu/cpu_executor.h"

namespace verbatim::bench {

// A preset's checkpoint with random weights is written below config.scratch and removed afterwards. Weights are packed
// for the profile of `pools`. Errors: the checkpoint cannot be written or loaded.
Result<std::vector<BenchRow>> bench_load(const BenchConfig& config, const cpu::CpuExecutorConfig& pools);

}  // namespace verbatim::bench
