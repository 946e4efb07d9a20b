// tools/bench_load.h: a checkpoint becomes an executor that can compute: how long, beside reading its file, and how much
// memory stays. The file is read before, so that both find it in the system's page cache.
#pragma once

#include "engine/base/result.h"
#include "kernels/cpu/cpu_executor.h"
#include "tools/bench_run.h"

namespace verbatim::tools {

// A preset's checkpoint with random weights is written below config.scratch and removed again. Errors: the checkpoint
// cannot be written or loaded.
Result<BenchRow> bench_load(const BenchConfig& config, const cpu::CpuExecutorConfig& pools);

}  // namespace verbatim::tools
