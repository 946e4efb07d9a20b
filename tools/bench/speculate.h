// tools/bench/speculate.h: `verbatim bench --speculate`: decoding with windows beside plain decoding.
//
//   Z1  every run of a round answers the same prompts: a run whose tokens differ from the plain one's is wrong
//   Z2  runs take turns, round by round; a figure is the median over the rounds, and a ratio is taken within a round
//   Z3  time is that of the engine's steps, drafting included, once every request has its first token
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "tools/bench/run.h"

namespace verbatim::tools {

struct SpeculateConfig {
    std::vector<std::string> drafts = {"ngram", "int8", "fast"};  // tools/program/drafter_choice.h
    std::vector<double> mismatch_rates = {0, 0.2};                // of an adversary, beside them
    std::vector<int64_t> windows = {2, 4, 8};                     // and 0: paced
    int64_t output_tokens = 64;                                   // of a request
    std::string trace;  // whose prompts, lengths and stops are used; empty: prompts of random tokens
};

struct SpeculateRow {
    std::string draft;          // "none": plain decoding
    double mismatch_rate = -1;  // of "adversary"
    int64_t window = 1;         // 0: paced
    int64_t batch = 1;
    std::vector<double> tokens_per_s;  // by round: each answers requests of its own
    std::vector<double> of_plain;      // by round: the plain run's time over its own
    int64_t steps = 0;                 // of all rounds, like the rest
    int64_t windows = 0;
    int64_t drafted_tokens = 0;
    int64_t accepted_tokens = 0;
    bool wrong = false;  // Z1
};

struct SpeculateReport {
    BenchConfig config;
    std::string trace;  // of the prompts; empty: made up
    std::string isa;
    std::vector<SpeculateRow> rows;
    [[nodiscard]] bool wrong() const;
};

// Of config: model, threads, instruction set, seed, the first context, batches, repeats, block size. With a trace the
// context is of no account. Its record holds everything that the engine did, price and rounds that are not timed
// included. Errors: a model or a trace that cannot be read, prompts that the model cannot take.
Result<SpeculateReport> run_speculate(const BenchConfig& config, const SpeculateConfig& speculate);

std::string speculate_table(const SpeculateReport& report);
nlohmann::ordered_json speculate_json(const SpeculateReport& report);

}  // namespace verbatim::tools
