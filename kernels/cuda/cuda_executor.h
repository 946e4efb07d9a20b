// kernels/cuda/cuda_executor.h: the exact profile on a Device: paged KV, pooled state rows, every sequence of a step in one batch.
//
//   X1  logits, tokens and heads are those of the uncached reference, bit for bit, for any plan that the engine may make
//   X2  a device's error is the step's error, and with it the slots are forgotten; the conversations are not
// Tokens are drawn on the host from the logits' rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_backend.h"
#include "reference/numeric_executor.h"
#include "reference/reference_model.h"

namespace verbatim::cuda {

class CudaExecutor final : public reference::NumericExecutor {
public:
    // Borrows config, weights and device. REQUIRES: unsupported(config, device.limits()) is empty.
    CudaExecutor(const reference::ModelConfig& config, const reference::ModelWeights& weights, Device& device,
                 const CudaPools& pools);

    bool read_head(const HeadImage& image, const reference::HeadReader& reader) override;
    [[nodiscard]] std::span<const float> logits(SequenceSlot slot) const override;

protected:
    void compute(const StepPlan& plan) override;
    Status computed() override { return device_.synchronize(); }
    [[nodiscard]] std::optional<int32_t> fault_layer(SequenceSlot slot) const override;

private:
    struct Slot {
        std::optional<int32_t> fault_layer;  // in its last step
        int64_t logit_row = -1;              // in the last step
    };
    void read_kv(int32_t layer, const HeadImage& image, const reference::HeadReader& reader) const;

    Device& device_;
    CudaPools pools_;
    reference::ReferenceModel model_;
    CudaBackend backend_;
    std::vector<Slot> slots_;
};

}  // namespace verbatim::cuda
