// kernels/cuda/cuda_backend.h: owns a batch's data on a device and runs the walk's operations on it: packed weights, KV
// pages, state rows, and the step's lists, which it uploads before the walk.
//
//   B1  except for kFast, results are bit-equal to the uncached reference of the same profile, for every batch, block
//       size and Device
//   B2  a sequence's state starts at its source row (none: zeros), replays the log, and ends in its destination row;
//       each StateWrite stores it on the way. Drafts come after that and leave only log entries
//   B3  the host waits once per step, for the results; a step with the shape of an earlier one allocates no device
//       memory
//   B4  in an unobserved step of few rows, of a model in bf16, an operation may be deferred until the operations that
//       it is fused with, and may skip buffers that only these read (cuda_few_rows.cc)
//   B5  an unobserved step in which every row draws (one token per sequence, or windows; rows written or logs
//       continued) is one graph launch. A graph is recorded once per number of sequences and rows, both rounded up by
//       padding sequences that write nothing, and is valid until the device's memory moves
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
#include "reference/worker_pool.h"

namespace verbatim::cuda {

inline constexpr int64_t kSectorBytes = 32;  // the smallest memory access: state tensors are aligned to it

// The shape that a step's graph is recorded for.
struct GraphShape {
    int64_t num_sequences = 0;
    int64_t num_rows = 0;
    friend auto operator<=>(const GraphShape&, const GraphShape&) = default;
};

class CudaBackend final : public PooledWalk {
public:
    // Borrows model, tensor list and device for its lifetime. `pooled.pools`: the pools that the model uses. REQUIRES:
    // unsupported(model.config(), pooled.pools, device.limits()) and unsupported_weights() are empty, the
    // device computes in the profile, which takes quantised weights if there are any.
    // num_threads: threads that pack the weights.
    // `places`: where units lie; borrowed during the call.
    CudaBackend(KernelModel& model, const reference::StateTensors& tensors, Device& device,
                const PooledExecutorConfig& pooled, const UnitPlaces& places, reference::Profile profile,
                int32_t num_threads);

    void change(std::span<const MemoryChange> changes) override;

    void run(const PooledStep& step) override;
    // The device's status after the last step.
    [[nodiscard]] const Status& status() const { return status_; }
    [[nodiscard]] std::span<const float> logits(int64_t logit_row) override;
    [[nodiscard]] std::optional<TokenId> drawn(int64_t logit_row) const override;
    [[nodiscard]] std::optional<int32_t> fault_layer(int64_t logit_row) const override;
    std::span<const std::byte> read_row(const reference::StateTensor& tensor, StateIndex row) override;
    void read_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                    std::span<std::byte> out) override;
    void write_row(const reference::StateTensor& tensor, StateIndex row, std::span<const std::byte> bytes) override;
    void write_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                     std::span<const std::byte> bytes) override;

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
        DeviceArray<uint32_t> words;  // packed as the profile's matmul reads them; for experts all matrices, by id
        DeviceArray<float> bias;
        int64_t num_outputs = 0;
        int64_t num_k = 0;
        WeightFormat format = WeightFormat::kPairs;
        RowForm inputs = RowForm::kPairs;
        float static_scale = 0.0F;              // of inputs in exact.fp8; 0: dynamic
        DeviceArray<float> expert_scales = {};  // the same of experts, by id; empty: dynamic
        [[nodiscard]] DeviceMatrix view() const {
            return {words.data(), bias.data(), num_outputs, num_k, format, inputs};
        }
    };
    // The parts of a layer that are one launch when rows are few; norms need still fewer rows (kMatvecNormRows).
    struct FewRows {
        bool mixer_norm = false;  // fused with the first matmuls of the layer's only mixer
        bool gated_norm = false;  // fused with out_proj
        bool mlp = false;         // norm, gate, up and activation fused; down and residual add fused
    };
    struct Layer {
        DeviceArray<float> mixer_norm, mlp_norm, q_norm, k_norm;
        DeviceArray<float> gate_norm;  // one row wide
        DeviceArray<float> conv_weight, conv_bias, a, d, dt_bias;
        DeviceArray<float> router, choice_bias;
        DevicePages pages;
        DeviceArray<uint32_t> own_k;  // where no arena holds them
        DeviceArray<uint16_t> own_v;
        size_t angles = 0;  // offset in angles_
        FewRows few_rows;
    };
    // A rotary table with an entry for every position that fits the pools; layers share it.
    struct Angles {
        const RotaryTable* table = nullptr;
        DeviceArray<float> cos, sin;
    };
    // The graph for a number of sequences and rows.
    struct Bucket {
        std::unique_ptr<DeviceGraph> graph;  // null: the next step of this shape records it
        int64_t num_allocations = -1;        // device.counts() when the shape last ran without allocating
    };
    // A decode step's sequences with padding sequences that write nothing.
    struct Padded {
        std::vector<TokenId> tokens;
        std::vector<reference::WalkSequence> parts;
        std::vector<PooledSequence> sequences;
        std::vector<int32_t> logit_rows;
        std::vector<reference::SamplingArgs> draws;
    };
    struct Activations {
        DeviceArray<float> floats;
        int64_t width = 0;  // of the last write: rows are dense
    };
    // Workspace of a layer's experts.
    struct ExpertRows {
        DeviceArray<int32_t> rows, entries;
        DeviceArray<DeviceExpertPart> parts;
        DeviceArray<uint32_t> inputs;  // of the entries' matmuls
        DeviceArray<float> gate, up, results;
    };
    [[nodiscard]] const reference::ModelConfig& config() const { return model_.config(); }
    [[nodiscard]] bool on_tensor_cores() const { return !takes_blocks(profile_); }
    // The form in which the profile multiplies rows by the matrix.
    [[nodiscard]] RowForm inputs_of(const reference::MatrixView& matrix) const;
    void take_static_scale(Matrix& matrix, reference::MatrixId id, float scale);
    void upload_embedding(reference::WorkerPool& threads);
    void pack_matrices(reference::WorkerPool& threads);
    [[nodiscard]] const Matrix& matrix_of(reference::MatrixId id) const {
        return matrices_[place_[id.layer][static_cast<size_t>(id.matrix)]];
    }
    void upload_moe(int32_t layer);
    DeviceEntries entries_of(const reference::MoeConfig& moe);
    // The inputs of the entries' matmuls with `matrix`, from all rows of a buffer.
    const uint32_t* gathered(const DeviceEntries& of, reference::Buffer in, const Matrix& matrix);
    void multiply_entries(const DeviceEntries& of, const uint32_t* inputs, const Matrix& matrix, Floats out);
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
    [[nodiscard]] const DevicePages& pages(int32_t layer) const { return layers_[layer].pages; }
    [[nodiscard]] DeviceStates states(int32_t layer, reference::StateKind kind) const;
    [[nodiscard]] float* row_of(size_t place, StateIndex row) const;
    struct PageValues {
        uint16_t* first = nullptr;  // on the device
        size_t count = 0;
    };
    [[nodiscard]] PageValues page_values(const reference::StateTensor& tensor, BlockId block) const;
    PageValues download_pages(const reference::StateTensor& tensor, BlockId block);
    [[nodiscard]] size_t place_in_pages(const reference::StateTensor& tensor, int64_t slot, int64_t i) const;
    [[nodiscard]] MambaParameters parameters(int32_t layer) const;
    [[nodiscard]] DeltaWeights delta_weights(int32_t layer) const;
    [[nodiscard]] DeltaBatch delta_batch(const DeviceBatch& batch, int32_t layer) const;
    void upload_mixer(int32_t layer);
    void make_pools(const UnitPlaces& places);
    void place_pages(const UnitPlaces& places);
    uint32_t* rounded_to(reference::Buffer buffer, int64_t width);
    [[nodiscard]] FewRows few_rows_of(const reference::LayerConfig& layer) const;
    [[nodiscard]] bool joins(reference::MatrixId id) const;
    void begin_matvec(const MatvecInput& input);
    void join(reference::MatrixId id, reference::Buffer in, float in_multiplier, reference::Buffer out);
    void end_matvec(MatvecEnd end);
    const uint32_t* rounded(reference::Buffer in, int64_t width, float multiplier);
    const uint32_t* quantised(reference::Buffer in, const Matrix& matrix, float multiplier);
    // In the form that a matmul reads.
    const uint32_t* inputs(reference::Buffer in, const Matrix& matrix, float multiplier);
    void forget_inputs(reference::Buffer of);

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
    Matrix embedding_blocks_;  // instead, of a quantised embedding
    DeviceArray<float> final_norm_;
    reference::StateRowLayout row_layout_;
    DeviceArray<float> state_pool_;  // [num_state_rows, row_layout_.row_bytes], where no arena holds them
    // Under one budget: the slabs of kernels/unit_places.h. K of attention layer l and V of all blocks are sections of
    // one size, 2 l and 2 l + 1 of a block: for the kernels a layer has a page for every section of the arena.
    DeviceArray<uint16_t> arena_;
    int64_t block_scale_ = 1;  // sections of a block's place
    float* rows_ = nullptr;    // row r is at rows_ + r · row_floats_
    int64_t row_floats_ = 0;
    int32_t num_row_places_ = 0;
    StateLog log_;
    int64_t run_floats_ = 0;  // of attention's workspace, in the widest layer

    // State of the step in progress.
    Status status_;
    DeviceBatch step_;
    StepLists lists_;
    Padded padded_;
    std::map<GraphShape, Bucket> buckets_;
    DeviceArray<float> scaled_, scores_;  // scratch of draw()
    DeviceArray<int32_t> ids_;
    DeviceArray<uint64_t> lowest_;
    std::array<Activations, reference::kNumBuffers> buffers_;
    DeviceArray<uint32_t> rounded_;
    std::optional<reference::Buffer> rounded_from_;  // the buffer whose rounded copy rounded_ holds
    float rounded_multiplier_ = 1.0F;
    // Likewise in another form
    struct QuantisedRows {
        DeviceArray<uint32_t> words;
        std::optional<reference::Buffer> from;
        reference::RowFactors factors;
        RowForm form = RowForm::kPairs;
    };
    QuantisedRows quantised_;
    // B4: second buffer, for operations that read rounded_ while they write the next input
    DeviceArray<uint32_t> other_rounded_;
    bool is_few_rows_ = false;  // B4
    bool takes_norms_ = false;  // B4
    Matvec waiting_;            // B4: a deferred launch with its input or its first matrices
    DeviceArray<float> dt_, decay_, workspace_;
    ExpertRows experts_;
    DeviceArray<int32_t> head_blocks_;  // of sum_head: [pools_.num_blocks]
    DeviceArray<uint64_t> head_sums_;   // of sum_head, by layer and part
    int64_t max_runs_ = 0;              // capacity of workspace_
    std::vector<float> host_logits_;    // of the last step, downloaded on request
    bool has_host_logits_ = false;
    std::vector<float> host_floats_;     // staging for host_rows, read_row and write_row
    std::vector<uint16_t> host_values_;  // staging for read_block and write_block
};

// What a block and a state row take in a CudaBackend's memory. Layers of one KV shape: one budget needs it.
[[nodiscard]] UnitSize block_size_of(const reference::ModelConfig& config, int32_t block_size);
[[nodiscard]] UnitSize row_size_of(const reference::StateTensors& tensors);
// Why the pools cannot share a budget; empty: they can.
[[nodiscard]] std::vector<std::string> unsupported_budget(const reference::ModelConfig& config,
                                                          const PooledExecutorConfig& pooled, const CudaLimits& limits);

// The limits of the kernels that a model and its pools exceed, one problem per entry.
[[nodiscard]] std::vector<std::string> unsupported(const reference::ModelConfig& config, const PoolSizes& pools,
                                                   const CudaLimits& limits);
// The quantised weights that the kernels do not take: each problem with the first place that has it.
[[nodiscard]] std::vector<std::string> unsupported_weights(const reference::ModelConfig& config,
                                                           const reference::ModelWeights& weights);

}  // namespace verbatim::cuda
