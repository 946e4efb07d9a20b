// simulator/step_cost.h: owns the price of a step as a sum of the prices of its kernels.
//
// The rule, for ragged and mixed batches:
//   - a matmul, norm or gate is one kernel over all of the step's tokens
//   - attention: chunks are one kernel; sequences whose new tokens all draw (decodes and windows) are another
//   - conv: likewise
//   - scan: state read and written once per sequence, 5 operations per element and token; a delta net's update: 7
//   - experts: two grouped matmuls per layer. They read the weights of the distinct experts that the step's tokens
//     choose (simulator/expert_draws.h) once each, and multiply every token by those that it chose
//   - a snapshot of a state and a copied tail cost bytes over bandwidth
//   - the host's time is added, per step and per sequence in it; nothing overlaps
//   - a tensor-parallel group: all-reduces and the all-gather of the logits follow the kernels of one GPU's shard
//   - a pipeline of S stages: the step is a round of m = min(S, decodes + tokens of chunks) micro-batches, each 1/m of
//     the step's work. A round takes S times a stage's time with one of them and its message to the next stage: no
//     bubble stays where micro-batches of successive rounds follow each other (vLLM's batch queue)
//   - attention with a sliding window: a decode reads the window's positions; a chunk is pieces of at most the window's
//     length, each behind as many positions as its tokens see of earlier ones in the mean
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/step_plan.h"
#include "simulator/by_count.h"
#include "simulator/device.h"
#include "simulator/expert_draws.h"
#include "simulator/kernel_times.h"
#include "simulator/model_shape.h"

namespace verbatim {

// A plan's work, as input of a cost model.
struct StepWork {
    using Chunk = verbatim::Chunk;
    std::vector<Chunk> chunks;   // of several new tokens, of which the last one draws or none
    int64_t num_decodes = 0;     // sequences with one new token, or a window of tokens that all draw
    int64_t num_drafts = 0;      // tokens of windows after their first one
    int64_t decode_context = 0;  // sum of the positions that their last tokens read, these included
    int64_t longest_decode = 0;  // the largest of them
    int64_t window_pairs = 0;    // visible pairs of their other tokens
    int64_t num_tokens = 0;
    int64_t num_logit_rows = 0;
    int64_t num_state_writes = 0;  // snapshots
    int64_t num_copied_slots = 0;  // of tails
    int64_t step = 0;              // number among the priced steps: the index of random draws

    void clear();
    void add(const StepPlan& plan);
    void add_decode(int64_t context) { add_window({1, context - 1}); }
    void add_window(const Chunk& window);
    [[nodiscard]] int64_t num_sequences() const { return num_decodes + static_cast<int64_t>(chunks.size()); }
    [[nodiscard]] DecodeBatch decodes() const {
        return {num_decodes, real(decode_context), real(longest_decode), real(window_pairs)};
    }
};

class CostModel {
public:
    virtual ~CostModel() = default;
    [[nodiscard]] virtual Price price(const StepWork& work) = 0;
};

// How many times as long kernels take: those that are known by the roofline alone, and all others.
struct KernelFactors {
    double rooflines = 1;
    double others = 1;
};
// Another model's prices times these factors; the host's time as it is.
class ScaledKernels final : public CostModel {
public:
    // Borrows `inner`.
    ScaledKernels(CostModel& inner, const KernelFactors& factors) : inner_(inner), factors_(factors) {}
    [[nodiscard]] Price price(const StepWork& work) override {
        Price price = inner_.price(work);
        for (size_t i = 0; i < price.ns.size(); ++i) {
            if (const auto source = static_cast<PriceSource>(i); source != PriceSource::kAssumed)
                price.ns[i] *= source == PriceSource::kRoofline ? factors_.rooflines : factors_.others;
        }
        return price;
    }

private:
    CostModel& inner_;
    KernelFactors factors_;
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
    // Kernels whose price depends only on the number of rows are priced once per number.
    const Price& by_tokens(int64_t num_tokens);
    const Price& by_logit_rows(int64_t num_rows);
    [[nodiscard]] Price dense(int64_t num_rows, bool on_logits) const;
    void add_collectives(int64_t num_rows, bool on_logits, Price& price) const;
    void add_layers(const StepWork& work, Price& price);
    [[nodiscard]] double stage_message_ns(int64_t num_tokens) const;
    // With the matrix in the model's weight format.
    [[nodiscard]] KernelPrice linear(const MatmulShape& shape, int64_t num_rows) const;
    void add_attention(const StepWork& work, Price& price) const;
    const KernelPrice& decode_conv(const ConvShape& shape, int64_t num_sequences);
    void add_conv(const StepWork& work, const ConvShape& shape, int32_t count, Price& price);
    void add_recurrences(const StepWork& work, Price& price);
    void add_mamba(const StepWork& work, Price& price);
    void add_delta(const StepWork& work, Price& price);
    void add_update(const StepWork& work, const StateUpdate& update, Price& price) const;
    void add_experts(const StepWork& work, Price& price);
    [[nodiscard]] KernelPrice head_matmul(int64_t num_rows, int64_t n, int64_t k) const;
    [[nodiscard]] KernelPrice grouped_matmul(int64_t num_experts, int64_t num_rows, int64_t n, int64_t k) const;

    ModelShape model_;
    Device device_;
    const KernelTimes& kernels_;
    RooflineTimes roofline_;
    ByCount<Price> by_tokens_;
    ByCount<Price> by_logit_rows_;
    ByCount<Price> by_decodes_;
    struct DecodeConvs {
        ConvShape shape;
        ByCount<KernelPrice> by_sequences;
    };
    std::vector<DecodeConvs> decode_convs_;
    LayerExperts experts_;
};

}  // namespace verbatim
