#include "tools/simulate/perfetto.h"

#include "tools/program/chrome_trace.h"

namespace verbatim::tools {

std::string perfetto_json(const SimulateRun& run) {
    ChromeTrace trace(run.model.name + " on " + run.device.name);
    for (const StepSample& step : run.result.steps) {
        const int64_t begin_ns = step.end_ns - step.elapsed_ns;
        trace.slice(1, step.num_decodes == step.num_sequences ? "decode" : "prefill", begin_ns, step.elapsed_ns,
                    {{"sequences", step.num_sequences}, {"tokens", step.num_tokens}});
        trace.counter("requests", begin_ns, {{"running", step.num_sequences}, {"waiting", step.num_waiting}});
        trace.counter("memory, bytes", begin_ns,
                      {{"KV", step.used_blocks * run.memory.block_bytes},
                       {"states", step.used_state_rows * run.memory.row_bytes}});
    }
    return trace.json();
}

}  // namespace verbatim::tools
