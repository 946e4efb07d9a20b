// simulator/step_times.h: what whole steps of one model take on one machine's executor, by their parts
// (simulator/step_table.h).
#pragma once

#include <string>
#include <vector>

namespace verbatim {

struct StepTimes {
    std::string model;            // whose steps they are
    std::vector<double> tokens;   // of a step; ascending, from 1
    std::vector<double> base_ns;  // per entry of `tokens`
    double sequence_ns = 0;
    double chunk_pair_ns = 0;   // sequences with several new tokens: per new token and position that it sees
    double decode_pair_ns = 0;  // sequences with one
    double logit_row_ns = 0;
    double state_write_ns = 0;

    [[nodiscard]] bool empty() const { return tokens.empty(); }
};

}  // namespace verbatim
