#include "tests/benchmarks/gpu_decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/base/result.h"
#include "kernels/cuda/cuda_executor.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {
namespace {

constexpr int32_t kBlockSize = 16;

// Sequences that decode together.
class DecodeRun {
public:
    DecodeRun(CudaExecutor& executor, const reference::ModelConfig& model, int64_t batch, int32_t context,
              int32_t blocks_each)
        : executor_(executor), plans_(model.vocab_size), batch_(batch), length_(context), state_(has_state(model)) {
        for (int32_t slot = 0; slot < batch; ++slot) {
            const auto tokens = tests::draw_tokens(context, model.vocab_size, 1 + static_cast<uint64_t>(slot));
            prompts_.push_back({.slot = slot, .tokens = tokens});
            blocks_.push_back(has_kv(model) ? tests::iota(slot * blocks_each, blocks_each) : std::vector<int32_t>{});
        }
    }
    // One prompt after another.
    Status prefill() {
        for (int32_t slot = 0; slot < batch_; ++slot) {
            plans_.next().start(prompts_[slot]);
            plans_.compute({.slot = slot,
                            .num_new_tokens = static_cast<int32_t>(length_),
                            .num_draws = 1,
                            .state_dst = state_ ? slot : -1,
                            .new_blocks = blocks_[slot]});
            RETURN_IF_ERROR(executor_.execute(plans_.plan(), result_));
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
                            .num_draws = 1,
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
    const auto most = static_cast<int32_t>(std::ranges::max(config.batches));
    const int32_t blocks_each = (config.context + config.num_steps + 2 + kBlockSize - 1) / kBlockSize;
    CudaExecutor executor(
        model.config, model.weights, device,
        {.pools = {.block_size = kBlockSize, .num_blocks = most * blocks_each, .num_state_rows = most}}, profile,
        static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency())));
    RETURN_IF_ERROR(device.synchronize());
    for (const int64_t batch : config.batches) {
        DecodeRun run(executor, model.config, batch, config.context, blocks_each);
        RETURN_IF_ERROR(run.prefill());
        RETURN_IF_ERROR(run.step());  // takes memory
        RETURN_IF_ERROR(run.step());  // records the graph
        const int64_t graphs = device.counts().graph_launches;
        double best = 1e9;
        for (int i = 0; i < config.num_steps; ++i) {
            ASSIGN_OR_RETURN(const double seconds, run.step());
            best = std::min(best, seconds);
        }
        const double rate = bytes_of_step(model.config, batch, config.context) / best;
        fmt::print("decode step of {}, {:<12} batch {:>2} {:>10.1f} us {:>8.0f} GB/s", model_name,
                   reference::name(profile), batch, best * 1e6, rate * 1e-9);
        if (config.copy_bytes_per_s > 0) fmt::print(", {:.0f} % of the copy", 100 * rate / config.copy_bytes_per_s);
        fmt::print(", {} of {} steps by a graph\n", device.counts().graph_launches - graphs, config.num_steps);
        RETURN_IF_ERROR(run.end());
    }
    return {};
}

}  // namespace verbatim::cuda
