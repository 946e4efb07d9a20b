// tools/bench/report.h: a benchmark's figures as a table, JSON and a picture.
//
// Of a row, with t the median time of a repetition:
//   tokens_per_s   num_tokens / t
//   gbps, gflops   what tools/bench/cost.h counts over t; of "load", the file's bytes over t
//   of_limit       limit / t: 1 means that the machine could not do it faster; of "load", the time to read the file
//                  over t
//   of_limit_nearby    the same against what the machine could do between the row's repetitions: on a machine with
//                  neighbours the limit changes within a run
//   of_limit_paired    the median over the repetitions of the limit, with the stream measured just before each, over
//                      its time
//   of_limit_at_best   of_limit of the fastest repetition
//   of_limit_by_processor   the limit over the median of the processor time that a repetition took of each thread in the
//                  mean: on a crowded machine what is left of the program itself. Waiting for memory is in it, waiting
//                  for another thread asleep is not
//   processor_share    of the threads' time on the clock, the part in which they had a processor: less where other
//                  programs run, or where threads wait for each other asleep
//   matmuls_of_limit   the same of the matmuls alone, in a repetition that was watched; null where none was
//   of_fast        of an exact row: the median over the repetitions of the time of the same row in the fast profile,
//                  which took turns with it, over its own; null where there is none
//   of_suffix      of "ttft_cached": the median over the repetitions of a turn's time over that of its suffix alone,
//                  the two one after the other
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tools/bench/run.h"

namespace verbatim::tools {

nlohmann::ordered_json bench_json(const BenchReport& report);
// `with_operations` adds a table of every operation's share in the watched repetition of each row.
std::string bench_table(const BenchReport& report, bool with_operations);
// Bars of of_limit, with tokens per second.
std::string bench_svg(const BenchReport& report);

// The figures that all three show.
struct RowFigures {
    Spread time_s;
    double tokens_per_s = 0;
    double gbps = 0;
    double gflops = 0;
    double of_limit = 0;
    double of_limit_nearby = 0;
    double of_limit_paired = 0;  // 0: the stream was not measured before each repetition
    double of_limit_at_best = 0;
    double of_limit_by_processor = 0;  // 0: not measured
    double matmuls_of_limit = 0;       // 0: not watched
    double of_suffix = 0;              // 0: not a cached turn
};
// As above, with bf16 weights in both; 0: there is no such row.
double of_fast(const BenchReport& report, const BenchRow& row);
RowFigures figures_of(const BenchRow& row, const MachineLimits& machine);

}  // namespace verbatim::tools
