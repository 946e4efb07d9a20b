// tests/support/hash_executor.h: an executor without arithmetic that detects every mistake of an engine.
//
// It has a paged KV pool and a pool of state rows like a real one, but a KV slot holds (position, hash of the token
// prefix that ends there) and a state row (length, hash of the prefix). The sampled token is a hash of the KV and state
// that were *read*: a wrong block, a short copy of a tail, a stale row or a wrong length changes tokens and digests. It
// also knows what it should have read:
//   X1  plans keep the rules of engine/slot_tables.h
//   X2  every KV slot and row it reads was written, by a sequence with the same tokens, at the same position
//   X3  what a start attaches (blocks, tail, row) was materialised when the plan came; a slot that branches off from
//       another one of its request reads what earlier steps have written
//   X4  a log's entries have the positions and tokens of their replay
//   X5  a block that is new in a table has lost its old contents
//   X6  a deterministic sequence reads no data made in ordinary arithmetic, and no head with such data is called
//       deterministic
// A violation is kept in violations() and, unless the config disables it, makes the executor fail.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/executor.h"
#include "engine/pool_sizes.h"
#include "engine/slot_tables.h"

namespace verbatim::tests {

struct HashExecutorConfig {
    int32_t vocab_size = 1000;
    PoolSizes pools = {.block_size = 16, .num_blocks = 64, .num_state_rows = 16};
    int32_t max_log_tokens = 0;  // see engine/slot_tables.h
    int32_t lag_steps = 0;       // materialised_through_step = step - lag_steps
    bool fail_on_violation = true;
    TokenId fault_token = -1;         // a sequence that samples after this token has a fault in layer 0
    int64_t fail_at_step = -1;        // execute() of this step returns an error
    uint64_t wrong_draft_one_in = 0;  // of a draft path's tokens; 0: all are correct
    std::string numerics_id = "hash/1";
    // Of ordinary requests, which sometimes sample a different token in it; empty: one arithmetic.
    std::string ordinary_numerics_id;
    uint64_t draws = 0;  // executors with different values sample different tokens from the same bytes
    bool takes_late_masks = false;
    uint64_t fail_one_in = 0;  // this share of steps fails, by step number; 0: none
};

class HashExecutor final : public Executor {
public:
    explicit HashExecutor(HashExecutorConfig config);

    Status execute(const StepPlan& plan, StepResult& result) override;
    // It samples without masks: only whether they have come is of interest.
    [[nodiscard]] bool complete_masks_with(std::function<void()> complete) override {
        complete_masks_ = std::move(complete);
        return config_.takes_late_masks;
    }
    std::optional<Digest> head_digest(const HeadImage& image) override;
    // The state row's cell, then that of each token: kCellBytes each.
    std::optional<std::vector<std::byte>> head_bytes(const HeadImage& image) override;
    [[nodiscard]] Status check_head(int64_t length, std::span<const std::byte> bytes,
                                    const Digest& digest) const override;
    Status write_head(const HeadImage& image, std::span<const std::byte> bytes) override;
    static constexpr int64_t kCellBytes = 24;
    [[nodiscard]] std::string numerics_id() const override { return config_.numerics_id; }
    [[nodiscard]] std::string ordinary_numerics_id() const override {
        return has_two_arithmetics() ? config_.ordinary_numerics_id : config_.numerics_id;
    }

    [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
    [[nodiscard]] int64_t num_computed_tokens() const { return num_computed_tokens_; }  // over all steps

    // A correct engine's result after `tokens`: the next token, and the digest of a head of exactly these tokens.
    [[nodiscard]] TokenId expected_token(std::span<const TokenId> tokens, const SamplingParams& sampling,
                                         Arithmetic arithmetic = Arithmetic::kDeterministic) const;
    [[nodiscard]] Digest expected_digest(std::span<const TokenId> tokens) const;
    // The numerics id of a head's bytes, from the arithmetic of each slot.
    [[nodiscard]] std::string numerics_of(const HeadImage& image);

private:
    using Makers = uint8_t;  // a set of Arithmetic, a bit each
    struct Cell {
        int64_t position = -1;  // of a KV slot; the length of a state row; -1: never written
        uint64_t prefix = 0;
        int64_t step = -1;   // of the last write
        Makers made_by = 0;  // for a state row: the row and everything before it
    };
    // Of a cell, in a violation's text.
    struct Reader {
        const char* what = "";
        int64_t number = 0;
    };
    // A logged token of a slot.
    struct Logged {
        int64_t position = -1;
        TokenId token = 0;
    };
    void violate(std::string what);
    [[nodiscard]] bool fails_at(int64_t step) const;
    [[nodiscard]] bool has_two_arithmetics() const { return !config_.ordinary_numerics_id.empty(); }
    [[nodiscard]] Makers maker(Arithmetic arithmetic) const;
    [[nodiscard]] std::string numerics_of(Makers makers) const;
    [[nodiscard]] uint64_t read_by(Arithmetic arithmetic, const Cell& cell) const;
    [[nodiscard]] std::vector<Cell*> cells_of(const HeadImage& image);
    [[nodiscard]] std::vector<BlockId> blocks_of(const HeadImage& image) const;
    [[nodiscard]] bool is_branch(SequenceSlot slot) const;
    [[nodiscard]] Cell& cell(std::span<const BlockId> blocks, int64_t position);
    void clear_new_blocks(const StepPlan& plan);
    void check_attached(const StepPlan& plan);
    void copy_tails(const StepPlan& plan);
    void compute(const StepPlan& plan, const ScheduledSequence& sequence);
    [[nodiscard]] Cell replay(const ScheduledSequence& sequence);
    void log(const ScheduledSequence& sequence);
    void draw(const ScheduledSequence& sequence, StepResult& result);
    [[nodiscard]] std::optional<TokenId> draw_at(const ScheduledSequence& sequence, int64_t end);
    void check_cell(const Cell& cell, int64_t position, uint64_t prefix, Reader reader);
    [[nodiscard]] TokenId draw(uint64_t read_hash, int64_t position, const SamplingParams& sampling,
                               Arithmetic arithmetic) const;

    HashExecutorConfig config_;
    std::function<void()> complete_masks_;  // null: plans have all their masks
    SlotTables tables_;
    std::vector<Cell> kv_;                   // [num_blocks, block_size]
    std::vector<Cell> states_;               // [num_state_rows]
    std::vector<std::vector<Logged>> logs_;  // by slot
    std::vector<Cell> draw_states_;          // of the current sequence, after each sampled row
    std::vector<std::string> violations_;
    std::vector<uint64_t> prefixes_;                      // of the current sequence, by position
    Arithmetic arithmetic_ = Arithmetic::kDeterministic;  // of the current sequence
    int64_t step_ = -1;
    int64_t num_computed_tokens_ = 0;
};

}  // namespace verbatim::tests
