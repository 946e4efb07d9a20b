// reference/numeric_executor.h: the base of executors that compute numbers: keeps the slots' tables, samples tokens by
// NUMERICS N7, and exposes logits, heads and every operation of a step.
//
//   N1  a plan that breaks the rules of engine/slot_tables.h stops the program: it is the engine's bug
//   N2  a sequence's tokens, logits and heads depend on its tokens and sampling parameters alone
//   N3  a NaN or an infinity in a sequence's state or logits marks that sequence while it persists, and no other
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/executor.h"
#include "engine/slot_tables.h"
#include "reference/head_digest.h"
#include "reference/model/model_config.h"
#include "reference/model/state_tensors.h"
#include "reference/numerics/profile.h"
#include "reference/ops/rows.h"
#include "reference/ops/sampling.h"
#include "reference/walk.h"

namespace verbatim::reference {

// The rows that one operation of a step wrote for one sequence: row r is position first_position + r. Logits and their
// final norm have rows of the last positions alone, those that are scored or sampled.
struct Observation {
    SequenceSlot slot{};
    int64_t first_position = 0;
    WalkPoint point;
    ConstFloatRows rows;  // valid during the call
};
// Called from several threads at once for different slots; for one slot in the walk's order. A step may pass a
// sequence's rows in several pieces, each a whole walk over ascending positions.
using StepObserver = std::function<void(const Observation& observation)>;

// Fills the rows that a model of ModelConfig::reads_hidden takes in for positions first_position ... of a sequence.
using HiddenReader = std::function<void(SequenceSlot slot, int64_t first_position, FloatRows rows)>;

// Whole elements of a head's tensor, in the order of reference/head_digest.h. Valid during the call.
struct HeadPiece {
    const StateTensor& tensor;  // of tensors()
    std::span<const std::byte> bytes;
};
using HeadReader = std::function<void(const HeadPiece& piece)>;

class NumericExecutor : public Executor {
public:
    Status execute(const StepPlan& plan, StepResult& result) final;
    [[nodiscard]] bool complete_masks_with(std::function<void()> complete) final {
        complete_masks_ = std::move(complete);
        return true;
    }
    std::optional<Digest> head_digest(const HeadImage& image) final;
    std::optional<std::vector<std::byte>> head_bytes(const HeadImage& image) final;
    [[nodiscard]] Status check_head(int64_t length, std::span<const std::byte> bytes, const Digest& digest) const final;
    // An executor that computes attached tokens again keeps no head, takes any bytes and writes none.
    Status write_head(const HeadImage& /*image*/, std::span<const std::byte> /*bytes*/) override { return {}; }

    // Ends every slot and keeps every published head, as a failed execute() does (see Executor::execute).
    void forget_slots() { tables_ = SlotTables(tables_.config()); }

    // Returns false, and reads nothing, when this executor does not hold the head (see Executor::head_digest).
    virtual bool read_head(const HeadImage& image, const HeadReader& reader) = 0;
    // A row of the last step: [vocab_size], scaled; before bias, penalties and temperature. Row 0 is the first position
    // that `slot` sampled at; the scored positions lie before it, row -1 last. REQUIRES: the slot scored or sampled
    // there.
    [[nodiscard]] virtual std::span<const float> logits(SequenceSlot slot, int32_t draw) = 0;

    // Sets the observer of the steps that follow; null removes it. Comparison and recording have separate observers;
    // the comparison's runs first.
    enum class ObservedFor : uint8_t { kComparison, kRecord };
    void set_observer(StepObserver observer, ObservedFor purpose = ObservedFor::kComparison);
    // The token that the executor would draw with these arguments. REQUIRES: what reference/ops/sampling.h does.
    [[nodiscard]] TokenId token_of(const SamplingArgs& args) { return draw_token(args); }
    [[nodiscard]] const ModelConfig& config() const { return config_; }
    [[nodiscard]] const StateTensors& tensors() const { return tensors_; }
    [[nodiscard]] const SlotTables& tables() const { return tables_; }
    [[nodiscard]] Profile profile() const { return profile_; }
    [[nodiscard]] std::string numerics_id() const override;  // the profile's

protected:
    // Borrows `config`. `tensors`: the state of its sequences.
    NumericExecutor(const ModelConfig& config, StateTensors tensors, SlotTablesConfig tables,
                    Profile profile = Profile::kExact);

    // Whether attaching to a head reads what is kept of it.
    [[nodiscard]] virtual bool keeps_heads() const { return false; }
    // Feeds every part of a head to the digester; false when this executor does not hold the head. The default uses
    // read_head(); an executor with its states in other memory sums them there.
    virtual bool sum_head(const HeadImage& image, HeadDigester& digester);
    // Runs a plan that tables() has accepted; lengths are those before the step.
    virtual void compute(const StepPlan& plan) = 0;
    // A draft was accepted and its row is read next: a hook for executors that compute drafts only then.
    virtual void compute_accepted_draft(const ScheduledSequence& /*sequence*/, int32_t /*draw*/) {}
    // A failure outside this program during the step; it becomes the step's error.
    virtual Status computed() { return {}; }
    // The lowest layer whose state holds a NaN or an infinity at a sampled row of the slot's last step; the number of
    // layers when only the logits do (N8). It is a function of the tokens alone.
    [[nodiscard]] virtual std::optional<int32_t> fault_layer(SequenceSlot slot, int32_t draw) = 0;
    // reference/ops/sampling.h, or a kernel that gives the same token.
    [[nodiscard]] virtual TokenId draw_token(const SamplingArgs& args) { return sample(args); }
    // The token of a sampled row, where the executor has sampled it in compute().
    [[nodiscard]] virtual std::optional<TokenId> drawn_token(SequenceSlot /*slot*/, int32_t /*draw*/) {
        return std::nullopt;
    }
    // The sampling arguments of a sequence of the plan, without the logits. REQUIRES: called in compute() or after it,
    // before the next step.
    [[nodiscard]] SamplingArgs draw_args(const ScheduledSequence& sequence, int32_t draw) const;
    [[nodiscard]] const StepObserver& observer() const { return observer_; }

private:
    void complete_masks(const StepPlan& plan);
    void draw(const ScheduledSequence& sequence, StepResult& result);
    [[nodiscard]] TokenId draw(const ScheduledSequence& sequence, int32_t draw);

    const ModelConfig& config_;
    StateTensors tensors_;
    SlotTables tables_;
    Profile profile_;
    std::function<void()> complete_masks_;   // null: plans have all their masks
    std::array<StepObserver, 2> observers_;  // by purpose
    StepObserver observer_;                  // both of them in order; null: neither is set
    std::vector<TokenId> accepted_;          // of the current sequence
};

}  // namespace verbatim::reference
