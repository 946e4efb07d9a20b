#include "kernels/bench/row_lag.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/bench/sequences.h"
#include "kernels/cpu/cpu_executor.h"
#include "kernels/median.h"
#include "reference/loader/model_choice.h"

namespace verbatim::bench {
namespace {

constexpr int64_t kLeastSteps = 8;  // of a round, at every lag

// Whole cycles: so many steps that leave the row, and one that writes it.
int64_t steps_of(int64_t lag) { return (kLeastSteps + lag) / (lag + 1) * (lag + 1); }

// Sequences of one batch that decode under one lag after the other.
class LagRun {
public:
    LagRun(const BenchConfig& config, const reference::Model& model, std::span<const int64_t> lags, int64_t batch)
        : config_(config), batch_(static_cast<int32_t>(batch)), context_(config.contexts.front()) {
        int64_t steps = 0;
        for (const int64_t lag : lags) steps += steps_of(lag);
        const SequencePools pools{.num_slots = batch_, .tokens_per_slot = context_ + (1 + config.repeats) * steps};
        cpu::CpuExecutorConfig cpu{.num_threads = config.num_threads, .isa = config.isa};
        cpu.pools = {.block_size = config.block_size,
                     .num_blocks = static_cast<int32_t>(pools.num_blocks(config.block_size)),
                     .num_state_rows = pools.num_state_rows()};
        cpu.max_log_tokens = static_cast<int32_t>(std::ranges::max(lags));
        executor_ = std::make_unique<cpu::CpuExecutor>(model.config, model.weights, cpu);
        sequences_ = std::make_unique<BenchSequences>(*executor_, config.seed);
        sequences_->divide(pools);
        for (int32_t slot = 0; slot < batch_; ++slot) {
            sequences_->start(slot, sequences_->fresh_tokens(pools.tokens_per_slot), context_);
        }
        prefill();
    }

    [[nodiscard]] cpu::Isa isa() const { return executor_->isa(); }

    // The same tokens again, from nothing.
    void restart() {
        for (int32_t slot = 0; slot < batch_; ++slot) sequences_->start(slot, sequences_->tokens(slot), context_);
        prefill();
    }

    // Runs `num_steps` steps of all sequences; the row is written in the step after `lag` others. The time of a step.
    double decode(int64_t num_steps, int64_t lag) {
        double time = 0;
        for (int64_t step = 0; step < num_steps; ++step) {
            const bool leaves_row = step % (lag + 1) < lag;
            for (int32_t slot = 0; slot < batch_; ++slot) sequences_->compute(slot, 1, true, {}, leaves_row);
            time += sequences_->step();
        }
        return time / static_cast<double>(num_steps);
    }
    // Digests of the logits that each sequence last sampled from.
    [[nodiscard]] std::vector<Digest> digests() const {
        std::vector<Digest> all;
        for (int32_t slot = 0; slot < batch_; ++slot) all.push_back(sequences_->logits_digest(slot));
        return all;
    }

private:
    void prefill() {
        for (int32_t slot = 0; slot < batch_; ++slot) {
            while (sequences_->length(slot) < context_) {
                const int64_t count = std::min(config_.step_tokens, context_ - sequences_->length(slot));
                sequences_->compute(slot, count, sequences_->length(slot) + count == context_);
                sequences_->step();
            }
        }
    }

    const BenchConfig& config_;
    int32_t batch_;
    int64_t context_;
    std::unique_ptr<cpu::CpuExecutor> executor_;
    std::unique_ptr<BenchSequences> sequences_;
};

void run_rounds(LagRun& run, const BenchConfig& config, std::span<RowLagRow> rows) {
    std::vector<std::vector<Digest>> right;  // by row, with every row written
    for (const RowLagRow& row : rows) {
        run.decode(steps_of(row.lag), 0);
        right.push_back(run.digests());
    }
    run.restart();
    for (int64_t round = 0; round <= config.repeats; ++round) {  // the first one is not timed
        double plain = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
            RowLagRow& row = rows[i];
            const double time = run.decode(steps_of(row.lag), row.lag);
            if (round == 0) row.wrong = run.digests() != right[i];
            if (row.lag == 0) plain = time;
            if (round == 0) continue;
            row.times_s.push_back(time);
            row.speed.push_back(plain / time);
        }
    }
}

}  // namespace

bool RowLagReport::wrong() const { return std::ranges::any_of(rows, &RowLagRow::wrong); }

int64_t RowLagReport::best(int64_t batch) const {
    int64_t best = 0;
    double best_speed = 1;
    for (const RowLagRow& row : rows) {
        if (row.batch != batch || median(row.speed) <= best_speed) continue;
        best = row.lag;
        best_speed = median(row.speed);
    }
    return best;
}

Result<RowLagReport> run_row_lag(const BenchConfig& config, std::vector<int64_t> lags) {
    ASSIGN_OR_RETURN(const reference::Model model,
                     reference::choose_model(config.model, config.seed, {.num_threads = config.num_threads}));
    if (reference::geometry(model.config).state_bytes_per_row == 0) {
        return error("bench --row-lag: {} has no Mamba layers, and no state rows", config.model);
    }
    lags.push_back(0);
    std::ranges::sort(lags);
    lags.erase(std::unique(lags.begin(), lags.end()), lags.end());
    int64_t tokens = config.contexts.front();
    for (const int64_t lag : lags) tokens += (1 + config.repeats) * steps_of(lag);
    if (tokens > model.config.max_position_embeddings) {
        return error("bench --row-lag: {} tokens are more than the model's {} positions: fewer --repeats or lags?",
                     tokens, model.config.max_position_embeddings);
    }
    RowLagReport report{.config = config, .isa = {}, .rows = {}};
    for (const int64_t batch : config.batches) {
        std::vector<RowLagRow> rows;
        for (const int64_t lag : lags) rows.push_back({.batch = batch, .lag = lag, .times_s = {}, .speed = {}});
        LagRun run(config, model, lags, batch);
        report.isa = cpu::isa_name(run.isa());
        run_rounds(run, config, rows);
        report.rows.insert(report.rows.end(), rows.begin(), rows.end());
    }
    return report;
}

}  // namespace verbatim::bench
