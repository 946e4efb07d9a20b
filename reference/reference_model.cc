#include "reference/reference_model.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "engine/base/check.h"
#include "reference/head_digest.h"
#include "reference/numerics/float_environment.h"
#include "reference/ops/attention.h"
#include "reference/ops/conv1d.h"
#include "reference/ops/delta.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/embedding.h"
#include "reference/ops/experts.h"
#include "reference/ops/finite.h"
#include "reference/ops/gated_norm.h"
#include "reference/ops/quantised.h"
#include "reference/ops/rms_norm.h"
#include "reference/ops/router.h"
#include "reference/ops/ssm_scan.h"

namespace verbatim::reference {

ReferenceModel::ReferenceModel(const ModelConfig& config, const ModelWeights& weights, Profile profile)
    : config_(config),
      pass_(forward_pass(config)),
      weights_(weights),
      tensors_(state_tensors(config)),
      profile_(profile),
      decay_rates_(config.layers.size()),
      rope_tables_(config.layers.size()) {
    CHECK(profile != Profile::kFast, "the reference has no fast profile");
    CHECK(takes_blocks(profile) || !weights.quantised, "weights in blocks have no {} profile", name(profile));
    CHECK(profile != Profile::kExactInt8 || weights.quantised, "exact.int8 is of weights in blocks");
    CHECK(profile != Profile::kExactFp8 || weights.has_fp8_activations, "exact.fp8 is of recipes with FP8 activations");
    CHECK_EQ(weights.layers.size(), config.layers.size());
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const LayerWeights& layer = weights.layers[i];
        const VectorView a_log = config.layers[i].delta ? layer.delta.a_log : layer.mamba.a_log;
        decay_rates_[i].resize(a_log.size());
        reference::decay_rates(a_log, decay_rates_[i]);
    }
    if (config.norm_plus_one) add_ones();
}

void ReferenceModel::add_ones() {
    const auto add = [&](VectorView stored) {
        std::vector<float>& weight = plus_one_[stored.data()];
        for (const float w : stored) weight.push_back(1.0F + w);
    };
    add(weights_.final_norm);
    for (const LayerWeights& layer : weights_.layers) {
        for (const VectorView stored :
             {layer.mixer_norm, layer.mlp_norm, layer.attention.q_norm, layer.attention.k_norm})
            if (!stored.empty()) add(stored);
    }
}

const float* ReferenceModel::norm_weight(VectorView stored) const {
    return config_.norm_plus_one ? plus_one_.at(stored.data()).data() : stored.data();
}

const RopeTable& ReferenceModel::rope_table(int32_t layer, int64_t num_positions) {
    CHECK(config_.layers[layer].attention.has_value(), "layer {} turns nothing", layer);
    const RopeConfig& rope = config_.layers[layer].attention->rope;
    // Layers with one rope config share the table of the first of them.
    size_t owner = 0;
    while (!config_.layers[owner].attention || !(config_.layers[owner].attention->rope == rope)) ++owner;
    if (!rope_tables_[owner]) rope_tables_[owner] = std::make_unique<RopeTable>(rope, 0);
    rope_tables_[owner]->extend(num_positions);
    return *rope_tables_[owner];
}

// The walk's operations on one sequence, with private activations, KV and states; the ops of reference/ops/ unchanged.
class ReferenceSequence::Backend final : public WalkBackend {
public:
    explicit Backend(ReferenceModel& model) : model_(model), bytes_(model.tensors().size()) {
        for (size_t i = 0; i < bytes_.size(); ++i) {
            const StateTensor& tensor = model.tensors()[i];
            if (tensor.per == StatePer::kSequence) bytes_[i].resize(static_cast<size_t>(tensor.num_bytes()));
        }
    }

    void append(std::span<const TokenId> tokens, LogitRows which, const Observer& observer) {
        assert_float_environment();
        observer_ = &observer;
        const auto num_rows = static_cast<int32_t>(tokens.size());
        std::vector<int32_t> logit_rows(which == LogitRows::kAll    ? num_rows
                                        : which == LogitRows::kLast ? std::min(num_rows, 1)
                                                                    : 0);
        std::iota(logit_rows.begin(), logit_rows.end(), num_rows - static_cast<int32_t>(logit_rows.size()));
        buffers_[static_cast<size_t>(Buffer::kLogits)].clear();
        const WalkSequence sequence{0, num_rows, length_};
        if (num_rows > 0) walk(config(), model_.pass(), {tokens, {&sequence, 1}, logit_rows}, *this);
        length_ += num_rows;
    }

    void begin(const WalkBatch& batch) override {
        batch_ = batch;
        positions_.resize(batch.tokens.size());
        std::iota(positions_.begin(), positions_.end(), length_);
    }

    void embed(float multiplier) override {
        const MatrixView table = weights().embedding;
        const FloatRows out = fresh(Buffer::kResidual, config().hidden_size);
        if (table.is_quantised()) {
            quantised_embedding({.tokens = batch_.tokens.data(), .table = table, .multiplier = multiplier, .out = out});
            return;
        }
        embedding({.tokens = batch_.tokens.data(),
                   .table = table.data,
                   .vocab_size = config().vocab_size,
                   .multiplier = multiplier,
                   .out = out});
    }

    void norm(int32_t layer, Norm norm, float eps) override {
        const float* weight = model_.norm_weight(norm_of(weights(), layer, norm));
        const FloatRows x = rows(Buffer::kResidual, config().hidden_size);
        if (norm != Norm::kFinal) {
            rms_norm({.x = x, .weight = weight, .eps = eps, .out = fresh(Buffer::kNormed, config().hidden_size)});
            return;
        }
        // The rows whose logits are asked are the last ones.
        const FloatRows out = fresh(Buffer::kHead, config().hidden_size);
        rms_norm({.x = x.rows(x.num_rows - out.num_rows, out.num_rows), .weight = weight, .eps = eps, .out = out});
    }

    void matmul(MatrixId id, Buffer in, float in_multiplier, Buffer out) override {
        const Linear linear = linear_of(weights(), id);
        reference::linear({.x = rows(in, linear.weight.cols),
                           .weight = linear.weight,
                           .bias = linear.bias,
                           .in_multiplier = in_multiplier,
                           .profile = model_.profile(),
                           .out = fresh(out, linear.weight.rows)});
    }

    void scale(Buffer buffer, Columns columns, float multiplier) override {
        const FloatRows all = rows(buffer, width(buffer));
        reference::scale({.x = all.columns(columns.first, columns.count), .multiplier = multiplier});
    }

    void conv(int32_t layer, const MambaConfig& mamba) override {
        const MambaWeights& w = weights().layers[layer].mamba;
        const Columns columns = projected_columns(mamba).conv;
        float* window = state<float>(layer, StateKind::kConv).data();
        conv1d({.d_conv = mamba.d_conv,
                .x = rows(Buffer::kProjected, mamba.in_rows()).columns(columns.first, columns.count),
                .weight = w.conv_weight.data(),
                .bias = w.conv_bias.empty() ? nullptr : w.conv_bias.data(),
                .window_in = window,
                .window_out = window,
                .snapshots = {},
                .out = fresh(Buffer::kConv, mamba.conv_dim())});
    }

    void scan(int32_t layer, const MambaConfig& mamba) override {
        const MambaWeights& w = weights().layers[layer].mamba;
        const ConstFloatRows conv = rows(Buffer::kConv, mamba.conv_dim());
        const Columns dt = projected_columns(mamba).dt;
        float* ssm = state<float>(layer, StateKind::kSsm).data();
        ssm_scan({.n_heads = mamba.n_heads,
                  .head_dim = mamba.head_dim,
                  .d_state = mamba.d_state,
                  .n_groups = mamba.n_groups,
                  .x = conv.columns(0, mamba.d_inner()),
                  .b = conv.columns(mamba.d_inner(), mamba.bc_rows()),
                  .c = conv.columns(mamba.d_inner() + mamba.bc_rows(), mamba.bc_rows()),
                  .dt = rows(Buffer::kProjected, mamba.in_rows()).columns(dt.first, dt.count),
                  .a = model_.decay_rates(layer).data(),
                  .d = w.d.data(),
                  .dt_bias = w.dt_bias.data(),
                  .dt_min = static_cast<float>(mamba.dt_min),
                  .dt_max = static_cast<float>(mamba.dt_max),
                  .state_in = ssm,
                  .state_out = ssm,
                  .snapshots = {},
                  .y = fresh(Buffer::kMixed, mamba.d_inner())});
    }

    void check_state(int32_t layer) override {
        for (size_t i = 0; i < bytes_.size(); ++i) {
            const StateTensor& tensor = model_.tensors()[i];
            if (tensor.layer != layer || tensor.per != StatePer::kSequence) continue;
            if (!is_finite(tensor.dtype, bytes_[i])) remember_fault(layer);
        }
    }

    void gated_norm(int32_t layer, const MambaConfig& mamba, float eps) override {
        const Columns z = projected_columns(mamba).z;
        reference::gated_norm({.gate = mamba.gate,
                               .n_groups = mamba.n_norm_groups,
                               .z = rows(Buffer::kProjected, mamba.in_rows()).columns(z.first, z.count),
                               .weight = weights().layers[layer].mamba.norm.data(),
                               .eps = eps,
                               .y = rows(Buffer::kMixed, mamba.d_inner())});
    }

    void delta_conv(int32_t layer, const DeltaConfig& delta) override {
        float* window = state<float>(layer, StateKind::kConv).data();
        conv1d({.d_conv = delta.d_conv,
                .x = rows(Buffer::kProjected, delta.conv_dim()),
                .weight = weights().layers[layer].delta.conv_weight.data(),
                .bias = nullptr,
                .window_in = window,
                .window_out = window,
                .snapshots = {},
                .out = fresh(Buffer::kConv, delta.conv_dim())});
    }

    void delta_gates(int32_t layer, const DeltaConfig& delta) override {
        reference::delta_gates({.rate = model_.decay_rates(layer).data(),
                                .dt_bias = weights().layers[layer].delta.dt_bias.data(),
                                .b = rows(Buffer::kB, delta.n_value_heads),
                                .a = rows(Buffer::kA, delta.n_value_heads)});
    }

    void l2_norm(int32_t, const DeltaConfig& delta) override {
        const FloatRows conv = rows(Buffer::kConv, delta.conv_dim());
        const DeltaColumns columns = delta_columns(delta);
        const auto norm = [&](Columns part, float scale) {
            reference::l2_norm({.n_heads = delta.n_key_heads,
                                .dim = delta.key_dim,
                                .scale = scale,
                                .x = conv.columns(part.first, part.count)});
        };
        norm(columns.q, static_cast<float>(delta.q_scale()));
        norm(columns.k, 1.0F);
    }

    void delta_update(int32_t layer, const DeltaConfig& delta) override {
        const ConstFloatRows conv = rows(Buffer::kConv, delta.conv_dim());
        const auto [q, k, v] = delta_columns(delta);
        float* s = state<float>(layer, StateKind::kDelta).data();
        reference::delta_update({.n_key_heads = delta.n_key_heads,
                                 .n_value_heads = delta.n_value_heads,
                                 .key_dim = delta.key_dim,
                                 .value_dim = delta.value_dim,
                                 .tiled_values = delta.tiled_values,
                                 .q = conv.columns(q.first, q.count),
                                 .k = conv.columns(k.first, k.count),
                                 .v = conv.columns(v.first, v.count),
                                 .beta = rows(Buffer::kB, delta.n_value_heads),
                                 .decay = rows(Buffer::kA, delta.n_value_heads),
                                 .state_in = s,
                                 .state_out = s,
                                 .snapshots = {},
                                 .y = fresh(Buffer::kMixed, delta.value_rows())});
    }

    // The norm of each head by itself, all with one weight.
    void delta_norm(int32_t layer, const DeltaConfig& delta, float eps) override {
        const FloatRows y = rows(Buffer::kMixed, delta.value_rows());
        const ConstFloatRows z = rows(Buffer::kZ, delta.value_rows());
        for (int64_t head = 0; head < delta.n_value_heads; ++head) {
            const int64_t first = head * delta.value_dim;
            reference::gated_norm({.gate = MambaGate::kNormThenGate,
                                   .n_groups = 1,
                                   .z = z.columns(first, delta.value_dim),
                                   .weight = weights().layers[layer].delta.norm.data(),
                                   .eps = eps,
                                   .y = y.columns(first, delta.value_dim)});
        }
    }

    void head_norm(int32_t layer, const AttentionConfig& attention, float eps) override {
        const AttentionWeights& w = weights().layers[layer].attention;
        const int64_t dim = attention.head_dim;
        const auto norm = [&](const FloatRows& x, int64_t n_heads, VectorView weight, const FloatRows& out) {
            for (int64_t head = 0; head < n_heads; ++head) {
                rms_norm({.x = x.columns(head * (x.width / n_heads), dim),
                          .weight = model_.norm_weight(weight),
                          .eps = eps,
                          .out = out.columns(head * dim, dim)});
            }
        };
        const FloatRows k = rows(Buffer::kK, attention.kv_rows());
        const FloatRows q =
            attention.output_gate ? fresh(Buffer::kQ, attention.q_rows()) : rows(Buffer::kQ, attention.q_rows());
        norm(attention.output_gate ? rows(Buffer::kQGate, attention.q_proj_rows()) : q, attention.n_heads, w.q_norm, q);
        norm(k, attention.n_kv_heads, w.k_norm, k);
    }

    void output_gate(int32_t, const AttentionConfig& attention) override {
        const ConstFloatRows gate = rows(Buffer::kQGate, attention.q_proj_rows());
        const FloatRows mixed = rows(Buffer::kMixed, attention.q_rows());
        const int64_t dim = attention.head_dim;
        for (int64_t head = 0; head < attention.n_heads; ++head)
            sigmoid_gate({.gate = gate.columns((2 * head + 1) * dim, dim), .x = mixed.columns(head * dim, dim)});
    }

    void rope(int32_t layer, const AttentionConfig& attention) override {
        const RopeTable& table = model_.rope_table(layer, length_ + batch_.num_rows());
        const auto turn = [&](Buffer buffer, int64_t n_heads) {
            reference::rope({.x = rows(buffer, n_heads * attention.head_dim),
                             .n_heads = n_heads,
                             .head_dim = attention.head_dim,
                             .positions = positions_.data(),
                             .table = &table});
        };
        turn(Buffer::kQ, attention.n_heads);
        turn(Buffer::kK, attention.n_kv_heads);
    }

    void store_kv(int32_t layer, const AttentionConfig& attention) override {
        const int64_t width = attention.kv_rows();
        const auto append_to = [&](StateKind kind, Buffer from) {
            bytes_[model_.tensors().place(layer, kind)].resize(
                static_cast<size_t>((length_ + batch_.num_rows()) * width) * sizeof(uint16_t));
            uint16_t* cache = state<uint16_t>(layer, kind).data();
            store_bf16({.x = rows(from, width), .out = dense_rows(cache + length_ * width, batch_.num_rows(), width)});
        };
        append_to(StateKind::kK, Buffer::kK);
        append_to(StateKind::kV, Buffer::kV);
    }

    void attention(int32_t layer, const AttentionConfig& attention, float scale) override {
        const int64_t num_positions = length_ + batch_.num_rows();
        const int64_t width = attention.kv_rows();
        reference::attention(
            {.first_position = length_,
             .n_heads = attention.n_heads,
             .n_kv_heads = attention.n_kv_heads,
             .head_dim = attention.head_dim,
             .scale = scale,
             .profile = model_.profile(),
             .q = rows(Buffer::kQ, attention.q_rows()),
             .k = dense_rows<const uint16_t>(state<uint16_t>(layer, StateKind::kK).data(), num_positions, width),
             .v = dense_rows<const uint16_t>(state<uint16_t>(layer, StateKind::kV).data(), num_positions, width),
             .out = fresh(Buffer::kMixed, attention.q_rows())});
    }

    void activation(int32_t, const MlpConfig& mlp) override {
        const FloatRows up = rows(Buffer::kUp, mlp.d_ff);
        if (mlp.kind == MlpKind::kReluSquared) {
            relu_squared({up});
        } else {
            swiglu({.gate = rows(Buffer::kGate, mlp.d_ff),
                    .gate_multiplier = static_cast<float>(mlp.gate_multiplier),
                    .up = up});
        }
    }

    void route(int32_t layer, const MoeConfig& moe) override {
        router({.x = rows(Buffer::kNormed, config().hidden_size),
                .weight = weights().layers[layer].moe.router.data(),
                .out = fresh(Buffer::kRouter, moe.n_experts)});
    }

    void choose(int32_t layer, const MoeConfig& moe) override {
        const VectorView bias = weights().layers[layer].moe.choice_bias;
        reference::choose({.moe = &moe,
                           .logits = rows(Buffer::kRouter, moe.n_experts),
                           .choice_bias = bias.empty() ? nullptr : bias.data(),
                           .out = fresh(Buffer::kChosen, 2 * int64_t{moe.n_chosen})});
    }

    void experts(int32_t layer, const MoeConfig& moe, Buffer in, Buffer out) override {
        const int64_t width = moe.row_width(config().hidden_size);
        reference::experts({.kind = moe.kind,
                            .n_chosen = moe.n_chosen,
                            .x = rows(in, width),
                            .chosen = rows(Buffer::kChosen, 2 * int64_t{moe.n_chosen}),
                            .weights = weights().layers[layer].moe.experts,
                            .profile = model_.profile(),
                            .out = fresh(out, width)});
    }

    void add_routed(bool gated) override {
        reference::add_routed({.routed = rows(Buffer::kRouted, config().hidden_size),
                               .gate = gated ? rows(Buffer::kSharedGate, 1) : FloatRows{},
                               .branch = rows(Buffer::kBranch, config().hidden_size)});
    }

    void add_branch(float branch_multiplier, float residual_multiplier) override {
        reference::add_branch({.branch = rows(Buffer::kBranch, config().hidden_size),
                               .branch_multiplier = branch_multiplier,
                               .residual_multiplier = residual_multiplier,
                               .residual = rows(Buffer::kResidual, config().hidden_size)});
    }

    void scale_logits(float multiplier, float divisor) override {
        reference::scale_logits({rows(Buffer::kLogits, config().vocab_size), multiplier, divisor});
    }

    void check_logits() override {
        if (first_not_finite(buffers_[static_cast<size_t>(Buffer::kLogits)])) {
            remember_fault(static_cast<int32_t>(config().layers.size()));
        }
    }

    void observe(const WalkPoint& point) override {
        if (*observer_)
            (*observer_)(point,
                         rows(point.buffer, width(point.buffer)).columns(point.columns.first, point.columns.count));
    }

    [[nodiscard]] const ModelConfig& config() const { return model_.config(); }
    [[nodiscard]] int64_t length() const { return length_; }
    [[nodiscard]] std::optional<int32_t> fault_layer() const { return fault_layer_; }

    [[nodiscard]] ConstFloatRows logits() const {
        const std::vector<float>& values = buffers_[static_cast<size_t>(Buffer::kLogits)];
        return dense_rows(values.data(), static_cast<int64_t>(values.size()) / config().vocab_size,
                          config().vocab_size);
    }

    [[nodiscard]] const StateTensors& tensors() const { return model_.tensors(); }
    [[nodiscard]] std::span<const std::byte> tensor(size_t place) const { return bytes_.at(place); }
    // Empty where there is none.
    template <typename T>
    [[nodiscard]] std::span<T> state(int32_t layer, StateKind kind) {
        if (!tensors().has(layer, kind)) return {};
        std::vector<std::byte>& bytes = bytes_[tensors().place(layer, kind)];
        return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
    }

private:
    [[nodiscard]] const ModelWeights& weights() const { return model_.weights(); }

    [[nodiscard]] int64_t num_rows(Buffer buffer) const {
        return buffer == Buffer::kHead || buffer == Buffer::kLogits ? batch_.num_logit_rows() : batch_.num_rows();
    }
    // Rows are dense in the width they were made with.
    [[nodiscard]] int64_t width(Buffer buffer) const {
        return static_cast<int64_t>(buffers_[static_cast<size_t>(buffer)].size()) / num_rows(buffer);
    }
    // The buffer with a new width for the values to be written.
    FloatRows fresh(Buffer buffer, int64_t width) {
        std::vector<float>& values = buffers_[static_cast<size_t>(buffer)];
        values.resize(static_cast<size_t>(num_rows(buffer) * width));
        return dense_rows(values.data(), num_rows(buffer), width);
    }
    FloatRows rows(Buffer buffer, int64_t width) {
        std::vector<float>& values = buffers_[static_cast<size_t>(buffer)];
        CHECK_EQ(static_cast<int64_t>(values.size()), num_rows(buffer) * width);
        return dense_rows(values.data(), num_rows(buffer), width);
    }
    void remember_fault(int32_t layer) {
        if (!fault_layer_) fault_layer_ = layer;
    }

    ReferenceModel& model_;
    int64_t length_ = 0;
    std::vector<std::vector<std::byte>>
        bytes_;  // by place in the list; as it comes from the heap, aligned for any element
    std::optional<int32_t> fault_layer_;
    // Of the append in progress.
    WalkBatch batch_;
    std::vector<int64_t> positions_;
    const Observer* observer_ = nullptr;
    std::array<std::vector<float>, kNumBuffers> buffers_;
};

ReferenceSequence::ReferenceSequence(ReferenceModel& model) : backend_(std::make_unique<Backend>(model)) {}
ReferenceSequence::ReferenceSequence(ReferenceSequence&&) noexcept = default;
ReferenceSequence::~ReferenceSequence() = default;

void ReferenceSequence::append(std::span<const TokenId> tokens, LogitRows which, const Observer& observer) {
    const int64_t before = backend_->length();
    backend_->append(tokens, which, observer);
    CHECK_EQ(backend_->length(), before + std::ssize(tokens));
}

int64_t ReferenceSequence::length() const { return backend_->length(); }
ConstFloatRows ReferenceSequence::logits() const { return backend_->logits(); }
std::optional<int32_t> ReferenceSequence::fault_layer() const { return backend_->fault_layer(); }
std::span<const std::byte> ReferenceSequence::tensor(size_t place) const { return backend_->tensor(place); }
std::span<const uint16_t> ReferenceSequence::k(int32_t layer) const {
    return backend_->state<uint16_t>(layer, StateKind::kK);
}
std::span<const uint16_t> ReferenceSequence::v(int32_t layer) const {
    return backend_->state<uint16_t>(layer, StateKind::kV);
}
std::span<const float> ReferenceSequence::ssm_state(int32_t layer) const {
    return backend_->state<float>(layer, StateKind::kSsm);
}
std::span<const float> ReferenceSequence::conv_window(int32_t layer) const {
    return backend_->state<float>(layer, StateKind::kConv);
}

std::span<const float> ReferenceSequence::delta_state(int32_t layer) const {
    return backend_->state<float>(layer, StateKind::kDelta);
}

Digest ReferenceSequence::digest() const {
    const StateTensors& tensors = backend_->tensors();
    HeadDigester digester(tensors, length());
    for (size_t i = 0; i < tensors.size(); ++i) digester.add(tensors[i], tensor(i));
    return digester.digest();
}

}  // namespace verbatim::reference
