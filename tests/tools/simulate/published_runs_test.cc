// Prices compared with runs that others published: docs/measurements/simulator.md, "Against published runs".
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "reference/loader/config_json.h"
#include "simulator/deployment.h"
#include "simulator/device_file.h"
#include "simulator/kernel_tables.h"
#include "simulator/model_shape.h"
#include "simulator/step_cost.h"
#include "tools/program/model_choice.h"

namespace verbatim::tools {
namespace {

constexpr const char* kLlama31With8B = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "hidden_act": "silu",
    "attention_bias": false, "mlp_bias": false, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "tie_word_embeddings": false, "bos_token_id": 128000, "eos_token_id": 128001})";

// Output tokens per second when all requests come at once, FP16, one GPU.
struct PublishedRun {
    int64_t prompt;
    int64_t answer;
    double h100;
    double a100;
};
// TensorRT-LLM v0.14, docs/source/performance/perf-overview.md, Llama v3.1 8B, TP 1.
constexpr PublishedRun kPublished[] = {
    {128, 128, 15571.6549, 6701.7958},  {128, 2048, 9150.7477, 4963.4443},  {128, 4096, 5368.9227, 3011.3335},
    {500, 2000, 7498.3331, 3945.1912},  {1000, 1000, 7054.5156, 3634.3886}, {2048, 128, 1904.3259, 795.389},
    {2048, 2048, 4159.6857, 2264.9513}, {5000, 500, 1708.0353, 790.6631},   {20000, 2000, 562.8735, 316.533}};

// A step that decodes for `batch` sequences and computes `chunks` as well.
double step_ns(StepCost& cost, int64_t batch, int64_t context, const std::vector<Chunk>& chunks) {
    StepWork work;
    work.chunks = chunks;
    work.num_tokens = batch;
    for (const Chunk& chunk : chunks) work.num_tokens += chunk.num_new;
    for (int64_t i = 0; i < batch; ++i) work.add_decode(context);
    work.num_logit_rows = batch + std::ssize(chunks);
    return cost.price(work).total_ns();
}

// The mean step of the steady state: of `batch` sequences, batch / answer end in each step, and as many prompts come.
double steady_step_ns(StepCost& cost, int64_t batch, const PublishedRun& run) {
    constexpr int64_t kStepTokens = 8192;
    const int64_t context = run.prompt + run.answer / 2;
    const int64_t most = kStepTokens - batch;
    const double prompts = real(batch) / real(run.answer);  // per step
    if (prompts < 1) {
        const int64_t num_chunks = (run.prompt + most - 1) / most;
        double with_chunk = 0;
        for (int64_t i = 0; i < num_chunks; ++i)
            with_chunk += step_ns(cost, batch, context, {{std::min(most, run.prompt - i * most), i * most}});
        return (1 - prompts * real(num_chunks)) * step_ns(cost, batch, context, {}) + prompts * with_chunk;
    }
    const double fewer = std::floor(prompts);
    std::vector<Chunk> chunks(static_cast<size_t>(fewer), Chunk{run.prompt, 0});
    const double with_fewer = step_ns(cost, batch, context, chunks);
    chunks.push_back({run.prompt, 0});
    return with_fewer + (prompts - fewer) * (step_ns(cost, batch, context, chunks) - with_fewer);
}

// Published over simulated step time, minus 1: how much too high the simulated throughput is.
std::vector<double> throughput_errors(const char* device_name, double PublishedRun::*published) {
    const Device device = *read_device(device_name);
    const auto config = reference::parse_config(kLlama31With8B, "llama-3.1-8b");
    EXPECT_TRUE(config.has_value()) << config.error().message;
    const ModelShape model = shape_of("llama-3.1-8b", *config);
    const auto tables = TableTimes::read(device.tables, device);
    EXPECT_TRUE(tables.has_value());
    StepCost cost(model, device, *tables);
    const auto room =
        0.95 * real(device.memory_bytes - model.weight_bytes - device.workspace_bytes) / real(model.kv_bytes_per_token);
    std::vector<double> errors;
    for (const PublishedRun& run : kPublished) {
        const auto batch = static_cast<int64_t>(std::min(2048.0, room / real(run.prompt + run.answer)));
        const double tokens_per_s = real(batch) / steady_step_ns(cost, batch, run) * 1e9;
        errors.push_back(tokens_per_s / (run.*published) - 1);
        fmt::print("{} {}/{}: {:.0f} tokens per second, published {:.0f}: {:+.1f} %\n", device_name, run.prompt,
                   run.answer, tokens_per_s, run.*published, 100 * errors.back());
    }
    return errors;
}

TEST(PublishedRuns, SaturatedThroughputIsNearWhatWasMeasured) {
    std::vector<double> errors = throughput_errors("h100_sxm", &PublishedRun::h100);
    const std::vector<double> of_a100 = throughput_errors("a100_sxm", &PublishedRun::a100);
    for (const double error : of_a100) EXPECT_LT(std::abs(error), 0.08);
    for (const double error : errors) EXPECT_LT(std::abs(error), 0.18);
    errors.insert(errors.end(), of_a100.begin(), of_a100.end());
    double sum = 0;
    for (const double error : errors) sum += std::abs(error);
    EXPECT_LT(sum / static_cast<double>(errors.size()), 0.055);
}

TEST(Deployment, StatesOfBinary32AreThoseOfTheModelAndOfBf16HalfOfTheRecurrentPart) {
    for (const char* name : {"granite-4.0-h-micro", "qwen3.5-4b", "nemotron-3-nano-30b", "llama-3.2-1b"}) {
        SCOPED_TRACE(name);
        const ModelShape shape = shape_of(name, *choose_config(name));
        EXPECT_EQ(with_state_values(shape, 4), shape);
        int64_t recurrent = 0;
        for (const StateShape& state : shape.states) recurrent += state.recurrent * state.count;
        const ModelShape halves = with_state_values(shape, 2);
        EXPECT_EQ(halves.state_bytes_per_row, shape.state_bytes_per_row - 2 * recurrent);
        EXPECT_EQ(halves.state_value_bytes, 2);
    }
}

}  // namespace
}  // namespace verbatim::tools
