// tools/bench/report.h: a benchmark's results as a table, JSON and a picture.
//
// For a row, with t the median time of a repetition:
//   tokens_per_s   num_tokens / t
//   gbps, gflops   the cost of kernels/bench/cost.h over t; for "load", the file's bytes over t
//   of_limit       limit / t: at 1 the machine cannot be faster; for "load", the time to read the file over t
//   of_limit_nearby    the same against the machine's best between the row's repetitions: other programs on the
//                  machine change the limit within a run
//   of_limit_paired    the median over the repetitions of the limit, with the stream measured just before each, over
//                      its time
//   of_limit_at_best   of_limit of the fastest repetition
//   of_limit_by_processor   the limit over the median of a repetition's mean processor time per thread: on a busy
//                  machine the program's part alone. It includes waiting for memory, but not sleeping while another
//                  thread works
//   processor_share    processor time over wall time, of all threads: lower where other programs run, or where
//                  threads sleep while they wait for each other
//   matmuls_of_limit   the same of the matmuls alone, in an observed repetition; null without one
//   of_fast        for an exact row: the median over the repetitions of the fast profile's time for the same row, which
//                  took turns with it, over the exact time; null without a fast row
//   of_suffix      for "ttft_cached": the median over the repetitions of a turn's time over that of its suffix alone,
//                  measured directly after each other
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kernels/bench/dvr.h"
#include "kernels/bench/row_lag.h"
#include "kernels/bench/run.h"
#include "kernels/bench/speculate.h"

namespace verbatim::tools {

nlohmann::ordered_json bench_json(const bench::BenchReport& report);
// `with_operations` adds a table of every operation's share in the observed repetition of each row.
std::string bench_table(const bench::BenchReport& report, bool with_operations);
// Bars of of_limit, with tokens per second.
std::string bench_svg(const bench::BenchReport& report);

// The figures in all three forms.
struct RowFigures {
    bench::Spread time_s;
    double tokens_per_s = 0;
    double gbps = 0;
    double gflops = 0;
    double of_limit = 0;
    double of_limit_nearby = 0;
    double of_limit_paired = 0;  // 0: the stream was not measured before each repetition
    double of_limit_at_best = 0;
    double of_limit_by_processor = 0;  // 0: not measured
    double matmuls_of_limit = 0;       // 0: not observed
    double of_suffix = 0;              // 0: not a cached turn
};
// As above, with bf16 weights in both profiles; 0: there is no such row.
double of_fast(const bench::BenchReport& report, const bench::BenchRow& row);
RowFigures figures_of(const bench::BenchRow& row, const MachineLimits& machine);

std::string speculate_table(const bench::SpeculateReport& report);
nlohmann::ordered_json speculate_json(const bench::SpeculateReport& report);
std::string dvr_table(const bench::DvrReport& report);
nlohmann::ordered_json dvr_json(const bench::DvrReport& report);
std::string row_lag_table(const bench::RowLagReport& report);
nlohmann::ordered_json row_lag_json(const bench::RowLagReport& report);

}  // namespace verbatim::tools
