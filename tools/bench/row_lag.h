// tools/bench/row_lag.h: `verbatim bench --row-lag`: decoding that writes its state rows in every step, beside decoding
// that leaves them behind and replays its log (engine/step_plan.h), by batch and by how far behind they may lie.
//
//   Y1  every lag computes the same tokens; logits that differ from those of rows written in every step are wrong
//   Y2  lags take turns, round by round; a ratio is taken within a round, beside lag 0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "tools/bench/run.h"

namespace verbatim::tools {

struct RowLagRow {
    int64_t batch = 1;
    int64_t lag = 0;              // tokens that the row may lie behind
    std::vector<double> times_s;  // of a step, by round: over whole cycles of a row that is left and written
    std::vector<double> speed;    // times as fast as lag 0
    bool wrong = false;           // Y1
};

struct RowLagReport {
    BenchConfig config;
    std::string isa;
    std::vector<RowLagRow> rows;
    [[nodiscard]] bool wrong() const;
    // The lag whose steps take least at this batch.
    [[nodiscard]] int64_t best(int64_t batch) const;
};

// Of config: model, threads, instruction set, seed, the first context, batches, repeats. Lag 0 is always among them.
// Error: a model without Mamba layers has no rows; sequences that are longer than the model's positions.
Result<RowLagReport> run_row_lag(const BenchConfig& config, std::vector<int64_t> lags);

std::string row_lag_table(const RowLagReport& report);
nlohmann::ordered_json row_lag_json(const RowLagReport& report);

}  // namespace verbatim::tools
