#include "kernels/sandbox/operation_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/sandbox/arguments.h"
#include "reference/reference_model.h"

namespace verbatim::sandbox {

namespace {

using namespace reference;

constexpr int64_t kMostRows = 16;
constexpr int64_t kMostWeights = 1 << 19;  // of a matrix that is kept whole
constexpr int64_t kCutOutputs = 64;
constexpr int64_t kMostExpertWeights = 1 << 21;  // of the experts of all rows that are kept; else of the row's own
constexpr int64_t kMostRowWeights = 1 << 25;     // of those
constexpr int64_t kCaseBlock = 16;               // positions of a KV block

// What the walk's buffers hold at one moment: rows of the model's widths.
class Buffers {
public:
    Buffers(const ModelConfig& config, int64_t num_rows) : config_(config), num_rows_(num_rows) {}

    void write(const WalkPoint& point, ConstFloatRows rows) {
        std::vector<float>& values = values_[static_cast<size_t>(point.buffer)];
        const int64_t width = width_of(config_, point.buffer);
        values.resize(static_cast<size_t>(num_rows_ * width));
        for (int64_t r = 0; r < rows.num_rows; ++r)
            std::copy_n(rows.row(r), rows.width, values.begin() + r * width + point.columns.first);
    }
    // Columns of every row, dense.
    [[nodiscard]] std::vector<float> get(Buffer buffer, Columns columns) const {
        const std::vector<float>& values = values_[static_cast<size_t>(buffer)];
        const int64_t width = width_of(config_, buffer);
        CHECK_EQ(std::ssize(values), num_rows_ * width);
        std::vector<float> out;
        for (int64_t r = 0; r < num_rows_; ++r) {
            const auto row = values.begin() + r * width + columns.first;
            out.insert(out.end(), row, row + columns.count);
        }
        return out;
    }

private:
    const ModelConfig& config_;
    int64_t num_rows_;
    std::array<std::vector<float>, kNumBuffers> values_;
};

template <typename T>
void set(Arguments& call, std::string_view name, std::span<const T> values) {
    Tensor& tensor = call.tensor(name);
    CHECK_EQ(tensor.bytes.size(), values.size_bytes());
    if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), values.size_bytes());
}
void set(Arguments& call, std::string_view name, const std::vector<float>& values) {
    set<float>(call, name, std::span(values));
}

// The walk up to the operation, and what it read.
class Scene {
public:
    Scene(const Model& model, Profile profile, const records::WalkPoints& points, const OperationPlace& place)
        : model_(model),
          points_(points),
          op_(place.op),
          reference_(model.config, model.weights, witness_profile(profile)),
          sequence_(reference_),
          first_(place.op >= points.first_of_head() ? place.position
                                                    : std::max(place.begin, place.position - kMostRows + 1)),
          num_rows_(place.op >= points.first_of_head() ? 1 : std::min(place.end - first_, kMostRows)),
          element_(place.element),
          place_(place.position),
          before_(model.config, num_rows_) {}

    void run(std::span<const TokenId> tokens) {
        sequence_.append(tokens.first(static_cast<size_t>(first_)), LogitRows::kNone);
        const int32_t layer = point().layer;
        if (point().op == WalkOp::kConv) keep(sequence_.conv_window(layer));
        if (point().op == WalkOp::kScan) keep(sequence_.ssm_state(layer));
        if (point().op == WalkOp::kDeltaUpdate) keep(sequence_.delta_state(layer));
        size_t next = 0;
        const size_t end = first_point();
        const auto look = [&](const WalkPoint& at, ConstFloatRows rows) {
            if (next++ < end) before_.write(at, rows);
        };
        sequence_.append(tokens.subspan(static_cast<size_t>(first_), static_cast<size_t>(num_rows_)), LogitRows::kAll,
                         look);
    }

    Result<Arguments> call() {
        switch (point().op) {
            case WalkOp::kNorm:
            case WalkOp::kFinalNorm: return rms_norm();
            case WalkOp::kMatmul: return matmul();
            case WalkOp::kConv: return conv();
            case WalkOp::kScan: return scan();
            case WalkOp::kGatedNorm: return gated_norm();
            case WalkOp::kRope: return rope();
            case WalkOp::kAttention: return attention();
            case WalkOp::kActivation: return activation();
            case WalkOp::kDeltaGates: return delta_gates();
            case WalkOp::kL2Norm: return l2_norm();
            case WalkOp::kDeltaUpdate: return delta_update();
            case WalkOp::kHeadNorm: return head_norm();
            case WalkOp::kRoute: return router();
            case WalkOp::kChoose: return choose();
            case WalkOp::kExperts: return experts();
            case WalkOp::kAddRouted: return add_routed();
            default: return error("{} is no operation of `verbatim kernel list`", walk_op_name(point().op));
        }
    }

private:
    [[nodiscard]] const WalkPoint& point() const { return points_[op_]; }
    [[nodiscard]] const LayerConfig& layer() const { return model_.config.layers[static_cast<size_t>(point().layer)]; }
    [[nodiscard]] const LayerWeights& weights() const {
        return model_.weights.layers[static_cast<size_t>(point().layer)];
    }
    // The first point of the operation: one that writes two buffers has a point for each.
    [[nodiscard]] size_t first_point() const {
        return point().op == WalkOp::kDeltaGates && point().buffer == Buffer::kA ? op_ - 1 : op_;
    }
    void keep(std::span<const float> state) { state_.assign(state.begin(), state.end()); }

    // Of these sizes, with nothing in it: one sequence, or rows.
    [[nodiscard]] Arguments empty(std::string_view name, const Sizes& sizes, bool is_sequence = false) const {
        const Operation* operation = find_operation(name);
        CHECK(operation != nullptr, "{}", name);
        const auto rows = static_cast<size_t>(sizes[0]);
        return empty_arguments(*operation, sizes,
                               is_sequence ? std::vector<int64_t>{num_rows_} : std::vector<int64_t>(rows, 1));
    }

    [[nodiscard]] Arguments rms_norm() const {
        const ModelConfig& config = model_.config;
        Arguments call = empty("rms_norm", {num_rows_, config.hidden_size});
        set(call, "x", before_.get(Buffer::kResidual, {0, config.hidden_size}));
        const VectorView stored = norm_of(model_.weights, point().layer, points_.call_of(op_).norm);
        const float* weight = reference_.norm_weight(stored);
        set(call, "weight", VectorView(weight, stored.size()));
        call.scalars[0] = static_cast<float>(config.norm_eps);
        return call;
    }

    [[nodiscard]] Arguments matmul() const {
        const OpCall& product = points_.call_of(op_);
        const Linear linear = linear_of(model_.weights, product.matrix_id());
        const int64_t k = linear.weight.cols;
        const bool whole = linear.weight.rows * k <= kMostWeights;
        const int64_t first =
            whole ? 0 : std::clamp<int64_t>(element_, 0, linear.weight.rows - 1) / kCutOutputs * kCutOutputs;
        const int64_t n = whole ? linear.weight.rows : std::min(kCutOutputs, linear.weight.rows - first);
        Arguments call = empty("matmul", {num_rows_, n, k, linear.bias.empty() ? 0 : 1});
        set(call, "x", before_.get(product.in, {0, k}));
        set(call, "weight", std::span<const uint16_t>(linear.weight.data + first * k, static_cast<size_t>(n * k)));
        if (!linear.bias.empty())
            set(call, "bias", linear.bias.subspan(static_cast<size_t>(first), static_cast<size_t>(n)));
        call.scalars[0] = product.multiplier;
        return call;
    }

    [[nodiscard]] Arguments delta_conv() const {
        const DeltaConfig& delta = *layer().delta;
        Arguments call = empty("conv", {1, num_rows_, delta.conv_dim(), delta.d_conv, 0, 1}, true);
        set(call, "x", before_.get(Buffer::kProjected, {0, delta.conv_dim()}));
        set(call, "weight", weights().delta.conv_weight);
        set(call, "windows_in", state_);
        return call;
    }
    [[nodiscard]] Arguments conv() const {
        if (layer().delta) return delta_conv();
        const MambaConfig& mamba = *layer().mamba;
        Arguments call =
            empty("conv", {1, num_rows_, mamba.conv_dim(), mamba.d_conv, mamba.conv_bias ? 1 : 0, 1}, true);
        set(call, "x", before_.get(Buffer::kProjected, projected_columns(mamba).conv));
        set(call, "weight", weights().mamba.conv_weight);
        if (mamba.conv_bias) set(call, "bias", weights().mamba.conv_bias);
        set(call, "windows_in", state_);
        return call;
    }

    [[nodiscard]] Arguments scan() const {
        const MambaConfig& mamba = *layer().mamba;
        Arguments call = empty(
            "scan", {1, num_rows_, mamba.n_groups, mamba.n_heads / mamba.n_groups, mamba.head_dim, mamba.d_state, 1},
            true);
        const int64_t bc = mamba.bc_rows();
        set(call, "x", before_.get(Buffer::kConv, {0, mamba.d_inner()}));
        set(call, "b", before_.get(Buffer::kConv, {mamba.d_inner(), bc}));
        set(call, "c", before_.get(Buffer::kConv, {mamba.d_inner() + bc, bc}));
        set(call, "dt", before_.get(Buffer::kProjected, projected_columns(mamba).dt));
        set(call, "a", reference_.decay_rates(point().layer));
        set(call, "d", weights().mamba.d);
        set(call, "dt_bias", weights().mamba.dt_bias);
        set(call, "states_in", state_);
        call.scalars[0] = static_cast<float>(mamba.dt_min);
        call.scalars[1] = static_cast<float>(mamba.dt_max);
        return call;
    }

    [[nodiscard]] Arguments delta_gates() const {
        const DeltaWeights& delta = weights().delta;
        const int64_t heads = layer().delta->n_value_heads;
        Arguments call = empty("delta_gates", {num_rows_, heads});
        set(call, "rate", reference_.decay_rates(point().layer));
        set(call, "dt_bias", delta.dt_bias);
        set(call, "b", before_.get(Buffer::kB, {0, heads}));
        set(call, "a", before_.get(Buffer::kA, {0, heads}));
        return call;
    }

    // Of the queries or of the keys, wherever the element is.
    [[nodiscard]] Arguments l2_norm() const {
        const DeltaConfig& delta = *layer().delta;
        const bool is_key = element_ >= delta.key_rows();
        const DeltaColumns columns = delta_columns(delta);
        Arguments call = empty("l2_norm", {num_rows_, delta.n_key_heads, delta.key_dim});
        set(call, "x", before_.get(Buffer::kConv, is_key ? columns.k : columns.q));
        call.scalars[0] = is_key ? 1.0F : static_cast<float>(delta.q_scale());
        return call;
    }

    [[nodiscard]] Arguments delta_update() const {
        const DeltaConfig& delta = *layer().delta;
        const DeltaColumns columns = delta_columns(delta);
        Arguments call =
            empty("delta_update",
                  {1, num_rows_, delta.n_key_heads, delta.values_per_key(), delta.key_dim, delta.value_dim, 1}, true);
        set(call, "q", before_.get(Buffer::kConv, columns.q));
        set(call, "k", before_.get(Buffer::kConv, columns.k));
        set(call, "v", before_.get(Buffer::kConv, columns.v));
        set(call, "beta", before_.get(Buffer::kB, {0, delta.n_value_heads}));
        set(call, "decay", before_.get(Buffer::kA, {0, delta.n_value_heads}));
        set(call, "states_in", state_);
        return call;
    }

    // One weight for all heads; the sandbox's has a place for each.
    [[nodiscard]] Arguments delta_norm() const {
        const DeltaConfig& delta = *layer().delta;
        Arguments call =
            empty("gated_norm", {num_rows_, delta.n_value_heads, delta.value_dim, VERBATIM_NORM_THEN_GATE});
        std::vector<float> weight;
        for (int32_t head = 0; head < delta.n_value_heads; ++head) {
            weight.insert(weight.end(), weights().delta.norm.begin(), weights().delta.norm.end());
        }
        set(call, "z", before_.get(Buffer::kZ, {0, delta.value_rows()}));
        set(call, "weight", weight);
        set(call, "y", before_.get(Buffer::kMixed, {0, delta.value_rows()}));
        call.scalars[0] = static_cast<float>(model_.config.norm_eps);
        return call;
    }

    // Heads as rows. Those of q stand with their gates where there are any.
    [[nodiscard]] Arguments head_norm() const {
        const AttentionConfig& attention = *layer().attention;
        const bool is_q = point().buffer == Buffer::kQ;
        const bool has_gates = is_q && attention.output_gate;
        const int64_t heads = is_q ? attention.n_heads : attention.n_kv_heads;
        const int64_t stride = attention.head_dim * (has_gates ? 2 : 1);
        const std::vector<float> rows = before_.get(has_gates ? Buffer::kQGate : point().buffer, {0, heads * stride});
        Arguments call = empty("rms_norm", {num_rows_ * heads, attention.head_dim});
        std::vector<float> x;
        for (auto head = rows.begin(); head != rows.end(); head += stride) {
            x.insert(x.end(), head, head + attention.head_dim);
        }
        set(call, "x", x);
        const VectorView stored = is_q ? weights().attention.q_norm : weights().attention.k_norm;
        set(call, "weight", VectorView(reference_.norm_weight(stored), stored.size()));
        call.scalars[0] = static_cast<float>(model_.config.norm_eps);
        return call;
    }

    [[nodiscard]] Arguments router() const {
        const int64_t width = model_.config.hidden_size;
        Arguments call = empty("router", {num_rows_, layer().moe->n_experts, width});
        set(call, "x", before_.get(Buffer::kNormed, {0, width}));
        set(call, "weight", weights().moe.router);
        return call;
    }

    [[nodiscard]] Arguments choose() const {
        const MoeConfig& moe = *layer().moe;
        Arguments call =
            empty("choose", {num_rows_, static_cast<int64_t>(moe.router), moe.n_groups, moe.n_chosen_groups,
                             moe.n_experts / moe.n_groups, moe.n_chosen, moe.normalize ? 1 : 0});
        set(call, "logits", before_.get(Buffer::kRouter, {0, moe.n_experts}));
        if (moe.router == RouterKind::kSigmoidBias) set(call, "choice_bias", weights().moe.choice_bias);
        call.scalars[0] = static_cast<float>(moe.sum_epsilon);
        call.scalars[1] = static_cast<float>(moe.scale);
        return call;
    }

    // The experts that rows have chosen, by new numbers in the order of the old ones.
    [[nodiscard]] Result<Arguments> experts() const {
        const MoeConfig& moe = *layer().moe;
        const int64_t width = moe.row_width(model_.config.hidden_size);
        const int64_t matrix = width * moe.d_ff;
        const Columns all_chosen{0, 2 * int64_t{moe.n_chosen}};
        std::vector<float> x = before_.get(moe.d_latent > 0 ? Buffer::kLatent : Buffer::kNormed, {0, width});
        std::vector<float> chosen = before_.get(Buffer::kChosen, all_chosen);
        std::vector<int32_t> ids = ids_of(chosen, moe.n_chosen);
        if (std::ssize(ids) * matrix > kMostExpertWeights) {
            const auto own = static_cast<std::ptrdiff_t>(place_ - first_);
            x = {x.begin() + own * width, x.begin() + (own + 1) * width};
            chosen = {chosen.begin() + own * all_chosen.count, chosen.begin() + (own + 1) * all_chosen.count};
            ids = ids_of(chosen, moe.n_chosen);
        }
        if (std::ssize(ids) * matrix > kMostRowWeights)
            return error("{}: a row's experts have more weights than a case may hold", to_string(point()));
        const bool swiglu = moe.kind == MlpKind::kGatedSilu;
        Arguments call = empty("experts", {std::ssize(x) / width, std::ssize(ids), moe.n_chosen, width, moe.d_ff,
                                           swiglu ? VERBATIM_SWIGLU : VERBATIM_RELU_SQUARED});
        for (size_t i = 0; i < chosen.size(); ++i) {
            if (i / static_cast<size_t>(moe.n_chosen) % 2 != 0) continue;
            chosen[i] =
                static_cast<float>(std::ranges::lower_bound(ids, static_cast<int32_t>(chosen[i])) - ids.begin());
        }
        set(call, "x", x);
        set(call, "chosen", chosen);
        const auto set_matrices = [&](const char* name, MatrixView MlpWeights::*of) {
            std::vector<uint16_t> values;
            for (const int32_t id : ids) {
                const MatrixView& one = weights().moe.experts[static_cast<size_t>(id)].*of;
                values.insert(values.end(), one.data, one.data + matrix);
            }
            set<uint16_t>(call, name, values);
        };
        if (swiglu) set_matrices("gate", &MlpWeights::gate);
        set_matrices("up", &MlpWeights::up);
        set_matrices("down", &MlpWeights::down);
        return call;
    }
    // Ascending.
    static std::vector<int32_t> ids_of(std::span<const float> chosen, int32_t n_chosen) {
        std::vector<int32_t> ids;
        for (size_t i = 0; i < chosen.size(); ++i) {
            if (i / static_cast<size_t>(n_chosen) % 2 == 0) ids.push_back(static_cast<int32_t>(chosen[i]));
        }
        std::ranges::sort(ids);
        ids.erase(std::ranges::unique(ids).begin(), ids.end());
        return ids;
    }

    [[nodiscard]] Arguments add_routed() const {
        const int64_t width = model_.config.hidden_size;
        const bool gated = layer().moe->shared_gate;
        Arguments call = empty("add_routed", {num_rows_, width, gated ? 1 : 0});
        set(call, "routed", before_.get(Buffer::kRouted, {0, width}));
        if (gated) set(call, "gate", before_.get(Buffer::kSharedGate, {0, 1}));
        set(call, "branch", before_.get(Buffer::kBranch, {0, width}));
        return call;
    }

    [[nodiscard]] Arguments gated_norm() const {
        if (layer().delta) return delta_norm();
        const MambaConfig& mamba = *layer().mamba;
        const int64_t groups = mamba.gate == MambaGate::kGateOnly ? 1 : mamba.n_norm_groups;
        Arguments call =
            empty("gated_norm", {num_rows_, groups, mamba.d_inner() / groups, static_cast<int64_t>(mamba.gate)});
        set(call, "z", before_.get(Buffer::kProjected, projected_columns(mamba).z));
        if (mamba.gate != MambaGate::kGateOnly) set(call, "weight", weights().mamba.norm);
        set(call, "y", before_.get(Buffer::kMixed, {0, mamba.d_inner()}));
        call.scalars[0] = static_cast<float>(model_.config.norm_eps);
        return call;
    }

    // The table's first rows are those of the rows' positions.
    [[nodiscard]] Arguments rope() {
        const AttentionConfig& attention = *layer().attention;
        const int64_t pairs = attention.rope.n_rotary_dims / 2;
        const int64_t heads = point().buffer == Buffer::kQ ? attention.n_heads : attention.n_kv_heads;
        Arguments call = empty("rope", {num_rows_, heads, pairs, attention.head_dim - 2 * pairs, num_rows_});
        const RopeTable& table = reference_.rope_table(point().layer, first_ + num_rows_);
        for (int64_t r = 0; r < num_rows_; ++r) {
            call.tensor("positions").as<int64_t>()[static_cast<size_t>(r)] = r;
            const auto to = static_cast<std::ptrdiff_t>(r * pairs);
            std::copy_n(table.cos(first_ + r), pairs, call.tensor("cos").as<float>().begin() + to);
            std::copy_n(table.sin(first_ + r), pairs, call.tensor("sin").as<float>().begin() + to);
        }
        set(call, "x", before_.get(point().buffer, {0, heads * attention.head_dim}));
        return call;
    }

    // Blocks in order; slots beyond the sequence's length stay zero.
    [[nodiscard]] Arguments attention() const {
        const AttentionConfig& attention = *layer().attention;
        Arguments call = empty("attention",
                               {1, num_rows_, first_, attention.n_kv_heads, attention.n_heads / attention.n_kv_heads,
                                attention.head_dim, kCaseBlock},
                               true);
        call.tensor("first_position").as<int64_t>()[0] = first_;
        int32_t block = 0;
        for (int32_t& id : call.tensor("block_tables").as<int32_t>()) id = block++;
        const auto count = static_cast<size_t>((first_ + num_rows_) * attention.kv_rows());
        std::ranges::copy(sequence_.k(point().layer).first(count), call.tensor("k").as<uint16_t>().begin());
        std::ranges::copy(sequence_.v(point().layer).first(count), call.tensor("v").as<uint16_t>().begin());
        set(call, "q", before_.get(Buffer::kQ, {0, attention.q_rows()}));
        call.scalars[0] = static_cast<float>(attention.scale);
        return call;
    }

    [[nodiscard]] Arguments activation() const {
        const MlpConfig& mlp = *layer().mlp;
        const bool swiglu = mlp.kind == MlpKind::kGatedSilu;
        Arguments call = empty("activation", {num_rows_, mlp.d_ff, swiglu ? VERBATIM_SWIGLU : VERBATIM_RELU_SQUARED});
        if (swiglu) set(call, "gate", before_.get(Buffer::kGate, {0, mlp.d_ff}));
        set(call, "up", before_.get(Buffer::kUp, {0, mlp.d_ff}));
        call.scalars[0] = static_cast<float>(mlp.gate_multiplier);
        return call;
    }

    const Model& model_;
    const records::WalkPoints& points_;
    size_t op_;
    ReferenceModel reference_;
    ReferenceSequence sequence_;
    int64_t first_;
    int64_t num_rows_;
    int64_t element_;
    int64_t place_;  // the position that is looked at
    Buffers before_;
    std::vector<float> state_;  // that the first row found
};

}  // namespace

Result<ValueCase> operation_case(const Model& model, Profile profile, const records::WalkPoints& points,
                                 const OperationPlace& place, std::span<const TokenId> tokens, std::string met) {
    CHECK(place.begin <= place.position && place.position < place.end && place.end <= std::ssize(tokens),
          "position {} of [{}, {}), {} tokens", place.position, place.begin, place.end, tokens.size());
    if (model.weights.quantised)
        return error("the model has quantised weights, which the sandbox's operations do not take");
    Scene scene(model, profile, points, place);
    scene.run(tokens);
    ASSIGN_OR_RETURN(Arguments call, scene.call());
    return value_case_of(std::move(call), std::string(name(profile)), std::move(met));
}

}  // namespace verbatim::sandbox
