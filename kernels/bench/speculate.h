// kernels/bench/speculate.h: `verbatim bench --speculate`: speculative decoding with windows against plain decoding.
//
//   Z1  every run of a round answers the same prompts: a run whose tokens differ from the plain one's is wrong
//   Z2  runs take turns, round by round; a figure is the median over the rounds, and ratios are within a round
//   Z3  time is that of the engine's steps, drafting included, after every request has its first token
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/request/request.h"
#include "engine/tokens/token_seq.h"
#include "kernels/bench/run.h"
#include "reference/model/model_config.h"
#include "reference/records/run_recording.h"

namespace verbatim::bench {

struct SpeculateConfig {
    std::vector<std::string> drafts = {"ngram", "int8", "fast"};  // kernels/executors/drafter_choice.h
    std::vector<double> mismatch_rates = {0, 0.2};                // of an adversary, in addition to `drafts`
    std::vector<int64_t> windows = {2, 4, 8};                     // 0 is always measured: paced windows
    int64_t output_tokens = 64;                                   // of a request
    std::string trace;  // the name of the requests' source; empty: prompts of random tokens
    // Requests with prompts, lengths and stops, each in a separate conversation; null: prompts of random tokens.
    std::function<Result<std::vector<ChatRequest>>(const reference::ModelConfig&, TokenStore&)> requests;
    // Starts the record of the run, whose description lacks the program and the machine; null: nothing is recorded.
    std::function<Result<std::unique_ptr<records::RunRecording>>(records::RunDescription)> start_recording;
    bool digests_heads = false;  // for the record
};

struct SpeculateRow {
    std::string draft;          // "none": plain decoding
    double mismatch_rate = -1;  // of "adversary"
    int64_t window = 1;         // 0: paced
    int64_t batch = 1;
    std::vector<double> tokens_per_s;  // by round: each has different requests
    std::vector<double> of_plain;      // by round: the plain run's time over this run's
    int64_t steps = 0;                 // of all rounds, as are the following
    int64_t windows = 0;
    int64_t drafted_tokens = 0;
    int64_t accepted_tokens = 0;
    bool wrong = false;  // Z1
};

struct SpeculateReport {
    BenchConfig config;
    std::string trace;  // of the prompts; empty: random tokens
    std::string isa;
    std::vector<SpeculateRow> rows;
    [[nodiscard]] bool wrong() const;
};

// Uses from config: model, threads, instruction set, seed, the first context, batches, repeats, block size; with a
// trace the context is ignored. A record holds all of the engine's work, including calibration and untimed rounds.
// Errors: a model or a trace that cannot be read, prompts that the model cannot take.
Result<SpeculateReport> run_speculate(const BenchConfig& config, const SpeculateConfig& speculate);

}  // namespace verbatim::bench
