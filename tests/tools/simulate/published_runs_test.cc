// Prices compared with runs that others published: docs/measurements/simulator.md, "Against published runs".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/loader/config_json.h"
#include "reference/loader/model_choice.h"
#include "simulator/deployment.h"
#include "simulator/device_file.h"
#include "simulator/kernel_tables.h"
#include "simulator/model_shape.h"
#include "simulator/shape_config.h"
#include "simulator/sharding.h"
#include "simulator/step_cost.h"
#include "tests/tools/program/run_program.h"

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

// Output tokens per second of the steady state, on one replica.
double saturated_tokens_per_s(StepCost& cost, const ModelShape& model, const Device& device, int64_t prompt,
                              int64_t answer, int64_t num_clients = 2048) {
    const auto room =
        0.95 * real(device.memory_bytes - model.weight_bytes - device.workspace_bytes) / real(model.kv_bytes_per_token);
    const auto batch = static_cast<int64_t>(std::min(real(num_clients), room / real(prompt + answer)));
    return real(batch) / steady_step_ns(cost, batch, {prompt, answer, 0, 0}) * 1e9;
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
    std::vector<double> errors;
    for (const PublishedRun& run : kPublished) {
        const double tokens_per_s = saturated_tokens_per_s(cost, model, device, run.prompt, run.answer);
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

constexpr const char* kLlama33With70B = R"({"model_type": "mistral", "hidden_size": 8192, "intermediate_size": 28672,
    "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072})";
constexpr const char* kLlama31With405B = R"({"model_type": "mistral", "hidden_size": 16384, "intermediate_size": 53248,
    "num_attention_heads": 128, "num_hidden_layers": 126, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 131072})";
constexpr const char* kLlama31With8BShapes = R"({"model_type": "mistral", "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072})";
constexpr const char* kQwen3With235B = R"({"model_type": "qwen3_moe", "hidden_size": 4096, "num_hidden_layers": 94,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 1536,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960})";
constexpr const char* kQwen3With30B = R"({"model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "moe_intermediate_size": 768,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "max_position_embeddings": 40960})";

struct Lengths {
    int64_t prompt;
    int64_t answer;
};
constexpr std::array<Lengths, 10> kLengths = {{{128, 128},
                                               {128, 2048},
                                               {128, 4096},
                                               {500, 2000},
                                               {1000, 1000},
                                               {1000, 2000},
                                               {2048, 128},
                                               {2048, 2048},
                                               {5000, 500},
                                               {20000, 2000}}};
// 0: the table has no figure.
struct QuantisedRuns {
    const char* what;
    const char* config;
    const char* device;
    Parallelism parallelism;
    WeightFormat weights;
    std::array<double, 10> published;
};
// TensorRT-LLM 1.0, docs/source/performance/perf-overview.md at 00f37686: FP8 and FP4 weights and activations.
const QuantisedRuns kQuantised[] = {
    {"Llama-3.1-8B FP8",
     kLlama31With8BShapes,
     "h200_sxm",
     {},
     WeightFormat::kFp8,
     {27911, 26221, 18027, 20770, 17744, 16828, 3538, 12194, 3902, 1804}},
    {"Llama-3.1-8B FP8",
     kLlama31With8BShapes,
     "h100_sxm",
     {},
     WeightFormat::kFp8,
     {28312, 22714, 14325, 17660, 15220, 13899, 3450, 9305, 3459, 1351}},
    {"Llama-3.3-70B FP8",
     kLlama33With70B,
     "h200_sxm",
     {},
     WeightFormat::kFp8,
     {3803, 4336, 2872, 3666, 2909, 2994, 442, 2003, 566, 283}},
    {"Llama-3.3-70B FP8",
     kLlama33With70B,
     "h100_sxm",
     {.tensor = 2},
     WeightFormat::kFp8,
     {6378, 6651, 4199, 5222, 4205, 4146, 762, 3082, 898, 437}},
    {"Llama-3.3-70B FP4",
     kLlama33With70B,
     "b200_sxm",
     {},
     WeightFormat::kNvfp4,
     {11147, 9922, 6831, 7762, 7007, 6271, 1339, 4783, 1459, 665}},
    {"Llama-3.1-405B FP8",
     kLlama31With405B,
     "h200_sxm",
     {.tensor = 8},
     WeightFormat::kFp8,
     {3814, 5348, 4741, 4724, 3330, 3722, 456, 2948, 650, 505}},
    {"Llama-3.1-405B FP8",
     kLlama31With405B,
     "h100_sxm",
     {.tensor = 8},
     WeightFormat::kFp8,
     {3627, 4340, 3116, 3994, 2919, 2895, 453, 2296, 610, 345}},
    {"Llama-3.1-405B FP4",
     kLlama31With405B,
     "b200_sxm",
     {.tensor = 4},
     WeightFormat::kNvfp4,
     {6281, 8020, 6345, 6244, 5209, 4933, 749, 4212, 1048, 672}},
    {"Qwen3-235B-A22B FP8",
     kQwen3With235B,
     "h200_sxm",
     {.tensor = 8, .experts = 8},
     WeightFormat::kFp8,
     {30429, 42821, 26852, 28026, 23789, 22061, 3331, 16672, 3623, 1876}},
    {"Qwen3-235B-A22B FP8",
     kQwen3With235B,
     "h100_sxm",
     {.tensor = 8, .experts = 8},
     WeightFormat::kFp8,
     {0, 19658, 12447, 18351, 14898, 15136, 0, 9924, 3225, 0}},
    {"Qwen3-235B-A22B FP4",
     kQwen3With235B,
     "b200_sxm",
     {.tensor = 8, .experts = 8},
     WeightFormat::kNvfp4,
     {63362, 66057, 39496, 57117, 42391, 34105, 7329, 26854, 8190, 4453}},
    {"Qwen3-30B-A3B FP4",
     kQwen3With30B,
     "b200_sxm",
     {},
     WeightFormat::kNvfp4,
     {39827, 37844, 24953, 27817, 25828, 22051, 6251, 17554, 6142, 2944}},
};

// No kernel of FP8 or FP4 is in the tables: docs/published-runs.md.
TEST(PublishedRuns, QuantisedRunsAreWithinTheRangeOfThePage) {
    std::map<WeightFormat, std::vector<double>> ratios;
    for (const QuantisedRuns& runs : kQuantised) {
        const Device device = *read_device(runs.device);
        const auto parsed = parse_shape(runs.what, runs.config, "config.json");
        ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
        const ModelShape model =
            sharded(with_kv_values(with_weight_format(*parsed, runs.weights), 1), runs.parallelism);
        const auto tables = TableTimes::read(device.tables, device);
        ASSERT_TRUE(tables.has_value());
        StepCost cost(model, device, *tables);
        for (size_t i = 0; i < kLengths.size(); ++i) {
            if (runs.published[i] == 0) continue;
            const double tokens_per_s =
                saturated_tokens_per_s(cost, model, device, kLengths[i].prompt, kLengths[i].answer);
            const double ratio = tokens_per_s / runs.published[i];
            fmt::print("| {} | {} x {} | {} / {} | {:.0f} | {:.0f} | {:+.1f} % |\n", runs.what,
                       runs.parallelism.num_gpus(), runs.device, kLengths[i].prompt, kLengths[i].answer,
                       runs.published[i], tokens_per_s, 100 * (ratio - 1));
            EXPECT_GT(ratio, 0.35);
            EXPECT_LT(ratio, 1.75);
            ratios[runs.weights].push_back(ratio);
        }
    }
    for (auto& [format, sorted] : ratios) {
        std::ranges::sort(sorted);
        const auto percentile = [&](double share) {
            return sorted.at(static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size()))) - 1);
        };
        EXPECT_NEAR(format_error(format).fast, percentile(0.1), 0.006) << "the bounds are those of these runs";
        EXPECT_NEAR(format_error(format).slow, percentile(0.9), 0.006);
    }
}

// No kernel of FP8 or FP4 is in the tables: what published runs were off by is in the interval.
// NVIDIA NIM 1.8.0, docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance: each client sends its next request when the
// last one is answered. 5000 / 500 tokens; two GPUs, FP8.
TEST(PublishedRuns, AClosedLoopOfClientsIsNearWhatWasMeasured) {
    constexpr double kMsPerToken = 18.58;     // of one client
    constexpr double kTokensPerSecond = 920;  // of 250
    constexpr Lengths kSent = {5000, 500};
    const Device device = *read_device("h100_sxm");
    const ModelShape model = sharded(
        with_kv_values(
            with_weight_format(*parse_shape("llama-3.3-70b", kLlama33With70B, "config.json"), WeightFormat::kFp8), 1),
        {.tensor = 2});
    const auto tables = TableTimes::read(device.tables, device);
    ASSERT_TRUE(tables.has_value());
    StepCost cost(model, device, *tables);
    const double ms = step_ns(cost, 1, kSent.prompt + kSent.answer / 2, {}) * 1e-6;
    const double tokens_per_s = saturated_tokens_per_s(cost, model, device, kSent.prompt, kSent.answer, 250);
    fmt::print("1 client: {:.2f} ms a token, published {:.2f}: {:+.1f} %\n", ms, kMsPerToken,
               100 * (ms / kMsPerToken - 1));
    fmt::print("250 clients: {:.0f} tokens per second, published {:.0f}: {:+.1f} %\n", tokens_per_s, kTokensPerSecond,
               100 * (tokens_per_s / kTokensPerSecond - 1));
    EXPECT_NEAR(ms / kMsPerToken, 1, 0.2);
    EXPECT_NEAR(tokens_per_s / kTokensPerSecond, 1, 0.1);
}

TEST(PublishedRuns, TheirErrorsAreTheIntervalOfWeightsOfFewerBytes) {
    const auto simulated = [](const char* weights, const char* format) {
        return run_verbatim({"simulate", "--trace",
                             VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz", "--limit", "100",
                             "--weights", weights, "--format", format})
            .out;
    };
    const auto fp8 = nlohmann::json::parse(simulated("fp8", "json"));
    EXPECT_EQ(fp8["bounds"]["roofline_factors"], nlohmann::json({0.7, 2.08}));
    EXPECT_EQ(fp8["bounds"]["other_factors"], nlohmann::json({0.7, 1.22}));
    const auto int4 = nlohmann::json::parse(simulated("int4", "json"));
    EXPECT_EQ(int4["bounds"]["other_factors"], nlohmann::json({0.48, 1.27}));
    const double mean = fp8["tpot_s"]["mean"];
    EXPECT_LT(fp8["bounds"]["tpot_s"]["mean"][0].get<double>(), 0.95 * mean);
    EXPECT_GT(fp8["bounds"]["tpot_s"]["mean"][1].get<double>(), 1.05 * mean);
    EXPECT_THAT(simulated("fp8", "table"),
                ::testing::HasSubstr("rooflines x 0.7 ... 2.08, other kernels x 0.7 ... 1.22"));
}

TEST(Deployment, StatesOfBinary32AreThoseOfTheModelAndOfBf16HalfOfTheRecurrentPart) {
    for (const char* name : {"granite-4.0-h-micro", "qwen3.5-4b", "nemotron-3-nano-30b", "llama-3.2-1b"}) {
        SCOPED_TRACE(name);
        const ModelShape shape = shape_of(name, *reference::choose_config(name));
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
