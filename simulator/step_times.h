// simulator/step_times.h: owns the times of whole steps of one model on one machine's executor, by their parts
// (simulator/step_table.h).
#pragma once

#include <string>
#include <vector>

namespace verbatim {

struct StepTimes {
    std::string model;            // the measured model
    std::vector<double> tokens;   // per step; ascending, from 1
    std::vector<double> base_ns;  // per entry of `tokens`
    double sequence_ns = 0;
    double chunk_pair_ns = 0;   // sequences with several new tokens: per new token and visible position
    double decode_pair_ns = 0;  // sequences with one
    double logit_row_ns = 0;
    double state_write_ns = 0;

    [[nodiscard]] bool empty() const { return tokens.empty(); }
};

}  // namespace verbatim
