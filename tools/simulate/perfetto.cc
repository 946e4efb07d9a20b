#include "tools/simulate/perfetto.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace verbatim::tools {
namespace {

std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

}  // namespace

std::string perfetto_json(const SimulateRun& run) {
    std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    const nlohmann::json process = {{"ph", "M"},
                                    {"pid", 1},
                                    {"name", "process_name"},
                                    {"args", {{"name", run.model.name + " on " + run.device.name}}}};
    text += process.dump();
    for (const StepSample& step : run.result.steps) {
        const std::string begin = microseconds(step.end_ns - step.elapsed_ns);
        const char* kind = step.num_decodes == step.num_sequences ? "decode" : "prefill";
        text += fmt::format(
            ",\n"
            R"({{"ph":"X","pid":1,"tid":1,"name":"{}","ts":{},"dur":{},"args":{{"sequences":{},"tokens":{}}}}})",
            kind, begin, microseconds(step.elapsed_ns), step.num_sequences, step.num_tokens);
        text += fmt::format(
            ",\n"
            R"({{"ph":"C","pid":1,"name":"requests","ts":{},"args":{{"running":{},"waiting":{}}}}})",
            begin, step.num_sequences, step.num_waiting);
        text += fmt::format(
            ",\n"
            R"({{"ph":"C","pid":1,"name":"memory, bytes","ts":{},"args":{{"KV":{},"states":{}}}}})",
            begin, step.used_blocks * run.memory.block_bytes, step.used_state_rows * run.memory.row_bytes);
    }
    return text + "\n]}\n";
}

}  // namespace verbatim::tools
