// tests/kernels/made_up_family.h: an artificial model family whose layers carry a tensor of integers per sequence and
// one of bf16 per token, and no state kind of a real model. It shows which code is independent of the kinds of state:
// all but the kernels, which are here.
//
// Per token and layer, in 32-bit integers, from x = the token, or the layer below's result:
//   tally[i][j] = 31 · tally[i][j] + (5i + j + 1) · x                      int32 [3, 5], from 0
//   trail[e]    = bits 4 ... 17 of tally's element e                       bf16 [7], of this token
//   x           = over all tokens up to this one, in order, and e: 1000003 · x + trail[e]
//   logits[v]   = the upper 24 bits of (v + 1) · x, of the last layer's x
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/paged_kv.h"
#include "kernels/cpu/state_rows.h"
#include "kernels/pooled_executor.h"
#include "reference/numeric_executor.h"

namespace verbatim::tests {

inline constexpr reference::StateKind kTally{100, "tally"};
inline constexpr reference::StateKind kTrail{101, "trail"};

struct MadeUpFamily {
    reference::ModelConfig config;
    reference::StateTensors tensors;
};
[[nodiscard]] MadeUpFamily made_up_family();

// A sequence's state, in private memory.
struct MadeUpState {
    explicit MadeUpState(const MadeUpFamily& family);
    std::vector<std::vector<int32_t>> tally;   // [layer][15]
    std::vector<std::vector<uint16_t>> trail;  // [layer][length · 7]
};
// The uncached answer: appends the tokens to `state` and returns the last one's logits.
std::vector<float> compute_made_up(const MadeUpFamily& family, std::span<const TokenId> tokens, MadeUpState& state);

// The same in pools of blocks and rows.
class MadeUpBackend final : public PooledBackend {
public:
    // Borrows the family.
    MadeUpBackend(const MadeUpFamily& family, const PoolSizes& pools);

    void run(const PooledStep& step) override;
    [[nodiscard]] std::span<const float> logits(int64_t logit_row) override { return logits_[logit_row]; }
    [[nodiscard]] std::optional<int32_t> fault_layer(int64_t) const override { return std::nullopt; }
    std::span<const std::byte> read_row(const reference::StateTensor& tensor, StateIndex row) override;
    void read_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                    std::span<std::byte> out) override;
    void write_row(const reference::StateTensor& tensor, StateIndex row, std::span<const std::byte> bytes) override;
    void write_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                     std::span<const std::byte> bytes) override;

private:
    void run_layer(int32_t layer, const PooledSequence& sequence, int64_t first_position, std::span<uint32_t> x);
    [[nodiscard]] std::span<uint16_t> trail(int32_t layer, const PooledSequence& sequence, int64_t position) const;

    const MadeUpFamily& family_;
    int32_t block_size_;
    cpu::StateRows rows_;
    cpu::PagedKv blocks_;
    std::vector<std::vector<float>> logits_;
};

class MadeUpExecutor final : public PooledExecutor {
public:
    // Borrows the family.
    MadeUpExecutor(const MadeUpFamily& family, const PoolSizes& pools)
        : PooledExecutor(family.config, family.tensors, {.pools = pools}), backend_(family, pools) {}

protected:
    [[nodiscard]] PooledBackend& backend() override { return backend_; }

private:
    MadeUpBackend backend_;
};

// Computes every sequence from its first token on, at every query.
class MadeUpWitness final : public reference::NumericExecutor {
public:
    // Borrows the family.
    explicit MadeUpWitness(const MadeUpFamily& family)
        : NumericExecutor(family.config, family.tensors,
                          {.vocab_size = family.config.vocab_size, .check_memory = false}),
          family_(family) {}

    bool read_head(const HeadImage& image, const reference::HeadReader& reader) override;
    [[nodiscard]] std::span<const float> logits(SequenceSlot slot, int32_t) override { return logits_[index(slot)]; }
    // Applied to every state before a head of it is read.
    std::function<void(MadeUpState&)> spoil = nullptr;

protected:
    void compute(const StepPlan& plan) override;
    [[nodiscard]] std::optional<int32_t> fault_layer(SequenceSlot, int32_t) override { return std::nullopt; }

private:
    const MadeUpFamily& family_;
    std::vector<std::vector<float>> logits_;  // by slot
};

}  // namespace verbatim::tests
