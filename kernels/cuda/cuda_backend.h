// kernels/cuda/cuda_backend.h: the walk's operations over a batch of sequences on a device: weights packed once, KV
// pages and state rows in pools of its own, a step's lists uploaded before its walk.
//
//   B1  but for kFast, bit-equal to the uncached reference of the same profile, whatever the batch and the block size,
//       on whatever Device
//   B2  a sequence's state goes from its source row (none: zeros), through the log behind it, to its own, and on the
//       way to the rows of its StateWrites; drafts go beyond it, and leave nothing but the log
//   B3  the host waits once in a step, for its results; a step like one before allocates nothing on the device
//   B4  in a step of few rows that nobody observes an operation may wait for those it is launched with, and leave out
//       buffers that only they read (cuda_few_rows.cc)
//   B5  a step in which every row draws, and which nobody observes, is a graph's launch: of a token each or of windows,
//       whether rows are written or logs go on. It is made once for a number of sequences and rows, rounded up with
//       sequences that write nothing, and good as long as the device's memory stays where it is
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/state_log.h"
#include "kernels/cuda/step_lists.h"
#include "kernels/kernel_model.h"
#include "kernels/pooled_executor.h"

namespace verbatim::cuda {

// What the graph of a step is made for.
struct GraphShape {
    int64_t num_sequences = 0;
    int64_t num_rows = 0;
    friend auto operator<=>(const GraphShape&, const GraphShape&) = default;
};

class CudaBackend final : public PooledWalk {
public:
    // Borrows model, list and device for its life. `pooled.pools`: those that the model uses. REQUIRES: unsupported(
    // model.config(), pooled.pools, device.limits()) is empty, the device computes in the profile. num_threads: that
    // pack the weights.
    CudaBackend(KernelModel& model, const reference::StateTensors& tensors, Device& device,
                const PooledExecutorConfig& pooled, reference::Profile profile, int32_t num_threads);

    void run(const PooledStep& step) override;
    // The device's, after the last step.
    [[nodiscard]] const Status& status() const { return status_; }
    [[nodiscard]] std::span<const float> logits(int64_t logit_row) override;
    [[nodiscard]] std::optional<TokenId> drawn(int64_t logit_row) const override;
    [[nodiscard]] std::optional<int32_t> fault_layer(int64_t logit_row) const override;
    std::span<const std::byte> read_row(const reference::StateTensor& tensor, StateIndex row) override;
    void read_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                    std::span<std::byte> out) override;

    void begin(const reference::WalkBatch& batch) override;
    void embed(float multiplier) override;
    void norm(int32_t layer, reference::Norm norm, float eps) override;
    void matmul(reference::MatrixId id, reference::Buffer in, float in_multiplier, reference::Buffer out) override;
    void scale(reference::Buffer buffer, reference::Columns columns, float multiplier) override;
    void conv(int32_t layer, const reference::MambaConfig& mamba) override;
    void scan(int32_t layer, const reference::MambaConfig& mamba) override;
    void check_state(int32_t layer) override;
    void gated_norm(int32_t layer, const reference::MambaConfig& mamba, float eps) override;
    void rope(int32_t layer, const reference::AttentionConfig& attention) override;
    void store_kv(int32_t layer, const reference::AttentionConfig& attention) override;
    void attention(int32_t layer, const reference::AttentionConfig& attention, float scale) override;
    void activation(int32_t layer, const reference::MlpConfig& mlp) override;
    void add_branch(float branch_multiplier, float residual_multiplier) override;
    void scale_logits(float multiplier, float divisor) override;
    void check_logits() override;
    void delta_conv(int32_t layer, const reference::DeltaConfig& delta) override;
    void delta_gates(int32_t layer, const reference::DeltaConfig& delta) override;
    void l2_norm(int32_t layer, const reference::DeltaConfig& delta) override;
    void delta_update(int32_t layer, const reference::DeltaConfig& delta) override;
    void delta_norm(int32_t layer, const reference::DeltaConfig& delta, float eps) override;
    void head_norm(int32_t layer, const reference::AttentionConfig& attention, float eps) override;
    void output_gate(int32_t layer, const reference::AttentionConfig& attention) override;
    void route(int32_t layer, const reference::MoeConfig& moe) override;
    void choose(int32_t layer, const reference::MoeConfig& moe) override;
    void experts(int32_t layer, const reference::MoeConfig& moe, reference::Buffer in, reference::Buffer out) override;
    void add_routed(bool gated) override;

    [[nodiscard]] bool sums_heads() const override;
    bool sum_head(const HeadImage& image, reference::HeadDigester& digester) override;

protected:
    reference::ConstFloatRows host_rows(reference::Buffer buffer) override;

private:
    struct Matrix {
        DeviceArray<uint32_t> words;  // packed as the profile's matmul reads them; of experts, all of them by id
        DeviceArray<float> bias;
        int64_t num_outputs = 0;
        int64_t num_k = 0;
    };
    // Operations of a layer that are one launch when rows are few; norms, when they are fewer (kMatvecNormRows).
    struct FewRows {
        bool mixer_norm = false;  // with the one mixer's first matmuls
        bool gated_norm = false;  // with out_proj
        bool mlp = false;         // its norm with gate, up and the activation; down with the residual stream
    };
    struct Layer {
        DeviceArray<float> mixer_norm, mlp_norm, q_norm, k_norm;
        DeviceArray<float> gate_norm;  // as wide as a row
        DeviceArray<float> conv_weight, conv_bias, a, d, dt_bias;
        DeviceArray<float> router, choice_bias;
        DeviceArray<uint32_t> k_pages;
        DeviceArray<uint16_t> v_pages;
        size_t angles = 0;  // in angles_
        FewRows few_rows;
    };
    // A rotary table, for every position that the pools can hold; layers share it.
    struct Angles {
        const RotaryTable* table = nullptr;
        DeviceArray<float> cos, sin;
    };
    // The graph of a number of sequences and rows.
    struct Bucket {
        std::unique_ptr<DeviceGraph> graph;  // null: the next step like it records one
        int64_t num_allocations = -1;        // the device's, when it was last known to need no more
    };
    // Decode sequences and others that write nothing.
    struct Padded {
        std::vector<TokenId> tokens;
        std::vector<reference::WalkSequence> parts;
        std::vector<PooledSequence> sequences;
        std::vector<int32_t> logit_rows;
        std::vector<reference::SamplingArgs> draws;
    };
    struct Activations {
        DeviceArray<float> floats;
        int64_t width = 0;  // of what was written last: rows are dense
    };
    // What a layer's experts work in.
    struct ExpertRows {
        DeviceArray<int32_t> rows, entries;
        DeviceArray<DeviceExpertPart> parts;
        DeviceArray<uint32_t> pairs;  // that entries multiply
        DeviceArray<float> gate, up, results;
    };
    [[nodiscard]] const reference::ModelConfig& config() const { return model_.config(); }
    [[nodiscard]] bool on_tensor_cores() const { return profile_ != reference::Profile::kExact; }
    void pack_matrices(int32_t num_threads);
    [[nodiscard]] const Matrix& matrix_of(reference::MatrixId id) const {
        return matrices_[place_[id.layer][static_cast<size_t>(id.matrix)]];
    }
    void upload_moe(int32_t layer);
    DeviceEntries entries_of(const reference::MoeConfig& moe);
    void multiply_entries(const DeviceEntries& of, const uint32_t* pairs, reference::MatrixId id, Floats out);
    void upload_layer(int32_t layer);
    void upload_angles(int32_t layer);
    PooledStep pad(const PooledStep& step);
    void upload_lists(const PooledStep& step, bool decodes);
    void copy_tails(int64_t num_copies);
    void move_states();
    void walk(const PooledStep& step);
    void draw();
    void run_graph(const PooledStep& step);
    Floats fresh(reference::Buffer buffer, int64_t width);
    [[nodiscard]] Floats rows(reference::Buffer buffer, int64_t width) const;
    static Floats columns(Floats x, reference::Columns part) {
        return {x.data + part.first, x.num_rows, part.count, x.stride};
    }
    [[nodiscard]] DevicePages pages(int32_t layer, const reference::AttentionConfig& attention) const;
    [[nodiscard]] DeviceStates states(int32_t layer, reference::StateKind kind) const;
    [[nodiscard]] float* row_of(size_t place, StateIndex row) const;
    [[nodiscard]] MambaParameters parameters(int32_t layer) const;
    [[nodiscard]] DeltaWeights delta_weights(int32_t layer) const;
    [[nodiscard]] DeltaBatch delta_batch(const DeviceBatch& batch, int32_t layer) const;
    void upload_mixer(int32_t layer);
    uint32_t* rounded_to(reference::Buffer buffer, int64_t width);
    [[nodiscard]] FewRows few_rows_of(const reference::LayerConfig& layer) const;
    [[nodiscard]] bool joins(reference::MatrixId id) const;
    void begin_matvec(const MatvecInput& input);
    void join(reference::MatrixId id, reference::Buffer in, float in_multiplier, reference::Buffer out);
    void end_matvec(MatvecEnd end);
    const uint32_t* rounded(reference::Buffer in, int64_t width, float multiplier);

    KernelModel& model_;
    const reference::StateTensors& tensors_;
    Device& device_;
    PoolSizes pools_;
    reference::Profile profile_;
    std::vector<Matrix> matrices_;                                     // in the order of matrices_of
    std::vector<std::array<int32_t, reference::kNumMatrices>> place_;  // [layer][matrix] in matrices_
    std::vector<Layer> layers_;
    std::vector<Angles> angles_;
    DeviceArray<uint16_t> embedding_;
    DeviceArray<float> final_norm_;
    reference::StateRowLayout row_layout_;
    DeviceArray<float> state_pool_;  // [num_state_rows, row_layout_.row_bytes]
    StateLog log_;
    int64_t run_floats_ = 0;  // of attention's workspace, in the widest layer

    // Of the step in progress.
    Status status_;
    DeviceBatch step_;
    StepLists lists_;
    Padded padded_;
    std::map<GraphShape, Bucket> buckets_;
    DeviceArray<float> scaled_, scores_;  // of draws
    DeviceArray<int32_t> ids_;
    DeviceArray<uint64_t> lowest_;
    std::array<Activations, reference::kNumBuffers> buffers_;
    DeviceArray<uint32_t> rounded_;
    std::optional<reference::Buffer> rounded_from_;  // what rounded_ holds
    float rounded_multiplier_ = 1.0F;
    DeviceArray<uint32_t> other_rounded_;  // B4: as rounded_, where an operation reads that and leaves what is next
    bool is_few_rows_ = false;             // B4
    bool takes_norms_ = false;             // B4
    Matvec waiting_;                       // B4: with its input or its first matrices
    DeviceArray<float> dt_, decay_, workspace_;
    ExpertRows experts_;
    DeviceArray<int32_t> head_blocks_;  // of sum_head: [pools_.num_blocks]
    DeviceArray<uint64_t> head_sums_;   // of sum_head, by layer and part
    int64_t max_runs_ = 0;              // that workspace_ has room for
    std::vector<float> host_logits_;    // of the last step, once somebody has asked
    bool has_host_logits_ = false;
    std::vector<float> host_floats_;    // of host_rows and read_row
    std::vector<uint32_t> host_pairs_;  // of read_block
    std::vector<uint16_t> host_values_;
};

// What of the model and its pools the kernels cannot hold, one problem each.
[[nodiscard]] std::vector<std::string> unsupported(const reference::ModelConfig& config, const PoolSizes& pools,
                                                   const CudaLimits& limits);

}  // namespace verbatim::cuda
