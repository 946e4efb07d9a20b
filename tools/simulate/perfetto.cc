#include "tools/simulate/perfetto.h"

#include "files/chrome_trace.h"
#include "files/gzip.h"

namespace verbatim::tools {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20u;

Status write_piece(const std::string& text, bool compressed, files::OutputFile& file) {
    if (!compressed) return file.write(text);
    ASSIGN_OR_RETURN(const std::string bytes, files::gzipped(text));
    return file.write(bytes);
}

}  // namespace

Status write_perfetto(const SimulateRun& run, bool compressed, files::OutputFile& file) {
    ChromeTrace trace(run.model.name + " on " + run.device.name);
    for (const StepSample& step : run.result.steps) {
        const int64_t begin_ns = step.end_ns - step.elapsed_ns;
        trace.slice(1, step.num_decodes == step.num_sequences ? "decode" : "prefill", begin_ns, step.elapsed_ns,
                    {{"sequences", step.num_sequences}, {"tokens", step.num_tokens}});
        trace.counter("requests", begin_ns, {{"running", step.num_sequences}, {"waiting", step.num_waiting}});
        trace.counter("memory, bytes", begin_ns,
                      {{"KV", step.used_blocks * run.memory.block_bytes},
                       {"states", step.used_state_rows * run.memory.row_bytes}});
        if (trace.size() >= kPieceBytes) RETURN_IF_ERROR(write_piece(trace.take(), compressed, file));
    }
    RETURN_IF_ERROR(write_piece(trace.json(), compressed, file));
    return file.finish();
}

}  // namespace verbatim::tools
