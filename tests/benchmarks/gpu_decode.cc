#include "tests/benchmarks/gpu_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/result.h"
#include "kernels/cuda/cuda_executor.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {
namespace {

constexpr int32_t kBlockSize = 16;

// Sequences that decode together.
class DecodeRun {
public:
    DecodeRun(CudaExecutor& executor, const reference::ModelConfig& model, const DecodeShape& shape, uint64_t seed)
        : executor_(executor),
          plans_(model.vocab_size),
          batch_(shape.batch),
          length_(shape.context),
          state_(has_state(model)) {
        const int32_t blocks_each = blocks_of(shape.context);
        for (int32_t slot = 0; slot < batch_; ++slot) {
            const auto tokens = tests::draw_tokens(shape.context, model.vocab_size, seed + static_cast<uint64_t>(slot));
            prompts_.push_back({.slot = slot, .tokens = tokens});
            blocks_.push_back(has_kv(model) ? tests::iota(slot * blocks_each, blocks_each) : std::vector<int32_t>{});
        }
    }
    // With room for the steps that are timed and a few more.
    static int32_t blocks_of(int32_t context) { return (context + kMoreSteps + kBlockSize - 1) / kBlockSize; }
    static constexpr int32_t kMoreSteps = 64;

    // One prompt after another, a part of it at a time.
    Status prefill(int64_t most_rows) {
        for (int32_t slot = 0; slot < batch_; ++slot) {
            for (int64_t first = 0; first < length_; first += most_rows) {
                const int64_t rows = std::min(most_rows, length_ - first);
                plans_.next();
                if (first == 0) plans_.start(prompts_[slot]);
                plans_.compute({.slot = slot,
                                .num_computed_tokens = first,
                                .num_new_tokens = static_cast<int32_t>(rows),
                                .num_sampled_positions = first + rows == length_ ? 1 : 0,
                                .state_src = state_ && first > 0 ? slot : -1,
                                .state_dst = state_ ? slot : -1,
                                .new_blocks = first == 0 ? blocks_[slot] : std::vector<int32_t>{}});
                RETURN_IF_ERROR(executor_.execute(plans_.plan(), result_));
            }
            last_.push_back(token_of(result_, 0));
        }
        return {};
    }
    // Seconds of a step.
    Result<double> step() {
        plans_.next();
        for (int32_t slot = 0; slot < batch_; ++slot) {
            plans_.compute({.slot = slot,
                            .num_computed_tokens = length_,
                            .num_new_tokens = 1,
                            .num_sampled_positions = 1,
                            .state_src = state_ ? slot : -1,
                            .state_dst = state_ ? slot : -1,
                            .appended = {last_[slot]}});
        }
        const auto begin = std::chrono::steady_clock::now();
        RETURN_IF_ERROR(executor_.execute(plans_.plan(), result_));
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        for (int32_t slot = 0; slot < batch_; ++slot) last_[slot] = token_of(result_, slot);
        ++length_;
        return time.count();
    }
    Status end() {
        plans_.next();
        for (int32_t slot = 0; slot < batch_; ++slot) plans_.end(slot);
        return executor_.execute(plans_.plan(), result_);
    }

private:
    static bool has_kv(const reference::ModelConfig& model) {
        return reference::geometry(model).kv_bytes_per_token > 0;
    }
    static bool has_state(const reference::ModelConfig& model) {
        return reference::geometry(model).state_bytes_per_row > 0;
    }

    CudaExecutor& executor_;
    tests::PlanBuilder plans_;
    int64_t batch_;
    int64_t length_;
    bool state_;
    std::vector<tests::StartSpec> prompts_;
    std::vector<std::vector<int32_t>> blocks_;
    std::vector<TokenId> last_;
    StepResult result_;
};

// Weights once, every state there and back, all of K and V.
double bytes_of_step(const reference::ModelConfig& model, int64_t batch, int64_t length) {
    const reference::ModelGeometry g = reference::geometry(model);
    return 2.0 * static_cast<double>(g.num_parameters) +
           static_cast<double>(batch * (2 * g.state_bytes_per_row + length * g.kv_bytes_per_token));
}

}  // namespace

Status measure_decode(Device& device, const reference::Model& model, const std::string& model_name,
                      reference::Profile profile, const DecodeConfig& config) {
    CHECK(config.num_steps > 0 && config.num_steps + 2 <= DecodeRun::kMoreSteps, "{} steps", config.num_steps);
    int32_t most = 0;
    int32_t most_blocks = 0;
    for (const DecodeShape& shape : config.shapes) {
        most = std::max(most, static_cast<int32_t>(shape.batch));
        most_blocks = std::max(most_blocks, static_cast<int32_t>(shape.batch) * DecodeRun::blocks_of(shape.context));
    }
    CudaExecutor executor(model.config, model.weights, device,
                          {.pools = {.block_size = kBlockSize, .num_blocks = most_blocks, .num_state_rows = most}},
                          profile, static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency())));
    RETURN_IF_ERROR(device.synchronize());
    for (const DecodeShape& shape : config.shapes) {
        DecodeRun run(executor, model.config, shape, config.seed);
        RETURN_IF_ERROR(run.prefill(config.prefill_rows));
        RETURN_IF_ERROR(run.step());  // takes memory
        RETURN_IF_ERROR(run.step());  // records the graph
        const int64_t graphs = device.counts().graph_launches;
        std::vector<double> times;
        for (int i = 0; i < config.num_steps; ++i) {
            ASSIGN_OR_RETURN(times.emplace_back(), run.step());
        }
        std::ranges::nth_element(times, times.begin() + std::ssize(times) / 2);
        const double median = times[times.size() / 2];
        const double rate = bytes_of_step(model.config, shape.batch, shape.context) / median;
        fmt::print("decode step of {}, {:<12} batch {:>2} context {:>5} {:>10.1f} us {:>8.0f} GB/s", model_name,
                   reference::name(profile), shape.batch, shape.context, median * 1e6, rate * 1e-9);
        if (config.copy_bytes_per_s > 0) fmt::print(", {:.0f} % of the copy", 100 * rate / config.copy_bytes_per_s);
        fmt::print(", {} of {} steps by a graph\n", device.counts().graph_launches - graphs, config.num_steps);
        RETURN_IF_ERROR(run.end());
    }
    return {};
}

}  // namespace verbatim::cuda
