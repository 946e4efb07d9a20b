// kernels/bench/row_lag.h: `verbatim bench --row-lag`: decoding that writes its state rows in every step, against
// decoding that defers the write and replays a state log (engine/step_plan.h), by batch and by maximum lag.
//
//   Y1  every lag computes the same tokens; logits that differ from those of rows written in every step are wrong
//   Y2  lags take turns, round by round; ratios are within a round, against lag 0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/bench/run.h"

namespace verbatim::bench {

struct RowLagRow {
    int64_t batch = 1;
    int64_t lag = 0;              // maximum tokens that the state row may lag
    std::vector<double> times_s;  // of a step, by round: over whole cycles of deferring and writing a row
    std::vector<double> speed;    // speedup over lag 0
    bool wrong = false;           // Y1
};

struct RowLagReport {
    BenchConfig config;
    std::string isa;
    std::vector<RowLagRow> rows;
    [[nodiscard]] bool wrong() const;
    // The lag with the shortest step at this batch.
    [[nodiscard]] int64_t best(int64_t batch) const;
};

// Uses from config: model, threads, instruction set, seed, the first context, batches, repeats. Lag 0 is always
// included. Errors: a model without Mamba layers, which has no state rows; sequences beyond the model's positions.
Result<RowLagReport> run_row_lag(const BenchConfig& config, std::vector<int64_t> lags);

}  // namespace verbatim::bench
