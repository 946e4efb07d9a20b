// engine/cache/kv_group.h: the full-attention KV group: which blocks hold a sequence's or a head's tokens.
//   K1  a table of n tokens has ceil(n / block_size) blocks or, while its sequence runs ahead, more
//   K2  a head's full blocks are shared by reference; its unaligned tail block is copied on attach (copy on write)
//   K3  num_active_blocks() is the number of blocks that some sequence holds: evicting every head leaves no more than those
//   K4  a block is written by one sequence at most, above every head's slots in it
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/cache/id_pool.h"
#include "engine/step_plan.h"

namespace verbatim {

// Blocks in token order, as runs.
class BlockTable {
public:
    void append(BlockRun run);
    [[nodiscard]] BlockTable prefix(int32_t num_blocks) const;  // REQUIRES: num_blocks <= this->num_blocks()
    std::vector<BlockRun> truncate(int32_t num_blocks);         // what is cut off, from the end
    [[nodiscard]] BlockId at(int32_t block) const;              // REQUIRES: block < num_blocks()
    [[nodiscard]] int32_t num_blocks() const { return num_blocks_; }
    [[nodiscard]] const std::vector<BlockRun>& runs() const { return runs_; }
    friend bool operator==(const BlockTable&, const BlockTable&) = default;

private:
    std::vector<BlockRun> runs_;
    int32_t num_blocks_ = 0;
};

class KvGroup {
public:
    // A model without attention layers has no KV: every table is empty. REQUIRES: block_size > 0.
    KvGroup(bool enabled, int32_t block_size, int32_t num_blocks);

    struct Attached {
        BlockTable table;               // the shared full blocks, then the sequence's own tail
        int32_t num_shared_blocks = 0;  // of the table
        std::optional<BlockCopy> copy;  // the tail, if `length` is not a multiple of block_size
    };
    // A sequence's table over a head's first `length` tokens. Empty when there is no block for the tail.
    [[nodiscard]] std::optional<Attached> attach(const BlockTable& head, int64_t length);
    // Appends blocks until the table holds `num_tokens`. False, and nothing changed, when the pool has too few.
    [[nodiscard]] bool grow(BlockTable& table, int64_t num_tokens);
    // A head's table over the first `length` tokens of a sequence's: every block by reference.
    [[nodiscard]] BlockTable share(const BlockTable& table, int64_t length);
    // The same, and the sequence's own references end: its table is left empty.
    [[nodiscard]] BlockTable hand_over(BlockTable& sequence, int64_t length);
    void release(BlockTable& head);               // leaves it empty
    void release_sequence(BlockTable& sequence);  // leaves it empty

    [[nodiscard]] int32_t blocks_for(int64_t num_tokens) const;
    [[nodiscard]] int32_t blocks_missing(const BlockTable& table, int64_t num_tokens) const;
    // Blocks that only this table refers to: what releasing it frees. Its shared blocks come first, so the scan runs backwards.
    [[nodiscard]] int32_t marginal_blocks(const BlockTable& table) const;
    // Of the full blocks that attaching at `length` would share, those that some sequence holds already.
    [[nodiscard]] int32_t num_active_in(const BlockTable& head, int64_t length) const;
    // Whether some block of the table is held by no sequence: else giving the table up frees nothing, whoever else gives up what.
    [[nodiscard]] bool has_inactive(const BlockTable& table) const;
    [[nodiscard]] int32_t num_active_blocks() const { return num_active_; }
    [[nodiscard]] int32_t block_size() const { return block_size_; }
    [[nodiscard]] BlockPool& pool() { return pool_; }
    [[nodiscard]] const BlockPool& pool() const { return pool_; }

private:
    void activate(BlockRun run);
    void deactivate(BlockRun run);

    bool enabled_;
    int32_t block_size_;
    BlockPool pool_;
    std::vector<int32_t> num_sequences_;  // per block: sequences that hold it
    int32_t num_active_ = 0;
};

}  // namespace verbatim
