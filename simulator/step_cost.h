// simulator/step_cost.h: owns the price of a step as a sum of the prices of its kernels.
//
// The rule, for ragged and mixed batches:
//   - a matmul, norm or gate is one kernel over all of the step's tokens
//   - attention: every sequence with several new tokens is a separate kernel; all sequences with one new token are one
//     kernel, at the mean of their contexts
//   - conv: sequences with several new tokens are one kernel, those with one are another
//   - scan: state read and written once per sequence, 5 operations per element and token; a delta net's update: 7
//   - experts: two grouped matmuls per layer. They read the weights of the distinct experts that the step's tokens
//     choose (simulator/expert_draws.h) once each, and multiply every token by those that it chose
//   - a snapshot of a state and a copied tail cost bytes over bandwidth
//   - the host's overhead is added; nothing overlaps
// One GPU: no sharding, no communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/step_plan.h"
#include "simulator/device.h"
#include "simulator/expert_draws.h"
#include "simulator/kernel_times.h"
#include "simulator/model_shape.h"

namespace verbatim {

// A plan's work, as input of a cost model.
struct StepWork {
    struct Chunk {
        int64_t num_new = 0;
        int64_t past = 0;
    };
    std::vector<Chunk> chunks;   // sequences with several new tokens
    int64_t num_decodes = 0;     // sequences with one
    int64_t decode_context = 0;  // sum of the positions that they read, including the new ones
    int64_t num_tokens = 0;
    int64_t num_logit_rows = 0;
    int64_t num_state_writes = 0;  // snapshots
    int64_t num_copied_slots = 0;  // of tails
    int64_t step = 0;              // number among the priced steps: the index of random draws

    void clear();
    void add(const StepPlan& plan);
};

class CostModel {
public:
    virtual ~CostModel() = default;
    [[nodiscard]] virtual Price price(const StepWork& work) = 0;
};

class StepCost final : public CostModel {
public:
    // Borrows `kernels`.
    StepCost(const ModelShape& model, const Device& device, const KernelTimes& kernels,
             const ExpertChance& chance = {});
    [[nodiscard]] Price price(const StepWork& work) override;

private:
    // A recurrence over the tokens of each sequence.
    struct StateUpdate {
        double elements = 0;    // in the state
        double operations = 0;  // per element and token
        double row = 0;         // elements read and written per token
        int32_t count = 1;
    };
    struct Known {
        bool is_known = false;
        Price price;
    };
    const Price& by_tokens(int64_t num_tokens);
    const Price& by_logit_rows(int64_t num_rows);
    [[nodiscard]] Price dense(int64_t num_rows, bool on_logits) const;
    void add_attention(const StepWork& work, Price& price) const;
    const KernelPrice& decode_conv(const ConvShape& shape, int64_t num_sequences);
    void add_conv(const StepWork& work, const ConvShape& shape, int32_t count, Price& price);
    void add_mamba(const StepWork& work, Price& price);
    void add_delta(const StepWork& work, Price& price);
    void add_update(const StepWork& work, const StateUpdate& update, Price& price) const;
    void add_experts(const StepWork& work, Price& price);
    [[nodiscard]] KernelPrice grouped_matmul(int64_t num_experts, int64_t num_rows, int64_t n, int64_t k) const;

    ModelShape model_;
    Device device_;
    const KernelTimes& kernels_;
    RooflineTimes roofline_;
    std::vector<Known> by_tokens_;
    std::vector<Known> by_logit_rows_;
    struct DecodeConvs {
        ConvShape shape;
        std::vector<std::optional<KernelPrice>> by_sequences;
    };
    std::vector<DecodeConvs> decode_convs_;
    LayerExperts experts_;
};

}  // namespace verbatim
