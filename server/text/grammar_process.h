// server/text/grammar_process.h: owns the child process that computes which tokens a grammar allows
// (server/text/run_grammars.py).
//
//   G1  every call ends: a process that takes too long is killed, and the sequence that it was busy with has failed
//   G2  the process has limited memory, writes no files, and dies with its parent
//   G3  after a process has ended, a fresh one goes on where the sequences are. A sequence with which it ends again has
//       failed
//   G4  masks follow from the grammar, the vocabulary and the tokens so far alone
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/request/token_mask.h"
#include "server/text/child_process.h"
#include "server/text/tokenizer.h"

namespace verbatim::text {

// What the masks are of: a model's ids and what they spell, and the tokens that end its answers.
struct GrammarVocabulary {
    int32_t vocab_size = 0;
    std::vector<TokenId> end_tokens;  // at least one
    std::string description;          // as the script reads it
};
[[nodiscard]] GrammarVocabulary grammar_vocabulary(const Tokenizer& tokenizer, int32_t vocab_size,
                                                   std::vector<TokenId> end_tokens);

struct GrammarLimits {
    int64_t start_ms = 20'000;                  // for Python's start and the vocabulary
    int64_t mask_ms = 3'000;                    // for a grammar and its first mask, or for another mask
    uint64_t memory_bytes = uint64_t{2} << 30;  // of address space
};

// How grammars are run.
struct GrammarRunner {
    ChildProgram program;                           // its script is run_grammars.py
    const GrammarVocabulary* vocabulary = nullptr;  // borrowed; null: no grammar can be run
    GrammarLimits limits;
};

// The next mask of a sequence, or why there is none.
struct NextMask {
    int64_t sequence = 0;
    TokenMask mask;
    std::string problem;       // empty: none
    bool is_grammars = false;  // the problem is the grammar's; else it is this process's
};

// For one thread. The process is started with the first sequence.
class GrammarProcess {
public:
    explicit GrammarProcess(GrammarRunner runner);  // REQUIRES: a vocabulary

    // Each of these owes a mask of the sequence: in the order of its tokens. REQUIRES: a number from 0 that is free; a
    // sequence that runs.
    void start(int64_t sequence, std::string grammar);
    void take(int64_t sequence, TokenId token);
    // What take() has left goes out now: the process computes while its caller does something else.
    void send();
    // Nothing more of the sequence comes.
    void stop(int64_t sequence);

    [[nodiscard]] size_t num_owed() const { return owed_.size(); }
    // Whether the masks that are owed can be expected soon: the process runs, and each is of a sequence of which it has
    // answered before. A grammar's first mask takes what the grammar takes.
    [[nodiscard]] bool is_quick() const;
    // Waits for up to `wait_ms` until all masks are there that are owed, and returns those that are.
    [[nodiscard]] std::vector<NextMask> collect(int64_t wait_ms);
    // The first mask of a grammar, in one call.
    [[nodiscard]] NextMask first_mask(const std::string& grammar);

private:
    using TimePoint = std::chrono::steady_clock::time_point;
    struct Running {
        std::string grammar;
        std::vector<TokenId> tokens;
        bool is_begun = false;     // in this process
        bool is_answered = false;  // by this process
    };
    void owe(int64_t sequence);
    void begin(int64_t number, size_t num_owed);
    [[nodiscard]] bool has_process(std::vector<NextMask>& masks);
    [[nodiscard]] bool receive(TimePoint until, std::vector<NextMask>& masks);
    void take_answer(const ChildProcess::Answer& answer, std::vector<NextMask>& masks);
    [[nodiscard]] NextMask read(int64_t sequence, const ChildProcess::Answer& answer) const;
    void end_process(std::vector<NextMask>& masks);
    void forget_answers();
    void fail_all(const std::string& problem, std::vector<NextMask>& masks);
    void set_deadline();

    GrammarRunner runner_;
    std::unique_ptr<ChildProcess> child_;  // null: none was started, or it has ended
    bool is_ready_ = false;                // it has the vocabulary
    int num_failed_starts_ = 0;            // in a row
    std::map<int64_t, Running> sequences_;
    std::deque<int64_t> owed_;        // in the order of the answers; some may have stopped
    std::vector<int64_t> taken_;      // whose last tokens are to be sent
    TimePoint deadline_{};            // of the next answer
    std::optional<int64_t> suspect_;  // the process ended with it once
    int64_t next_check_ = -1;         // the sequences of first_mask() count down
};

}  // namespace verbatim::text
