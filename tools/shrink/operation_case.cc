#include "tools/shrink/operation_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "reference/reference_model.h"
#include "tools/kernel/arguments.h"
#include "tools/program/executor_choice.h"

namespace verbatim::tools {
namespace {

using namespace reference;

constexpr int64_t kMostRows = 16;
constexpr int64_t kMostWeights = 1 << 19;  // of a matrix that is kept whole
constexpr int64_t kCutOutputs = 64;
constexpr int64_t kCaseBlock = 16;  // positions of a KV block

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
          before_(model.config, num_rows_) {}

    void run(std::span<const TokenId> tokens) {
        sequence_.append(tokens.first(static_cast<size_t>(first_)), LogitRows::kNone);
        const int32_t layer = point().layer;
        if (point().op == WalkOp::kConv) keep(sequence_.conv_window(layer));
        if (point().op == WalkOp::kScan) keep(sequence_.ssm_state(layer));
        size_t next = 0;
        const auto look = [&](const WalkPoint& at, ConstFloatRows rows) {
            if (next++ < op_) before_.write(at, rows);
        };
        sequence_.append(tokens.subspan(static_cast<size_t>(first_), static_cast<size_t>(num_rows_)), LogitRows::kAll,
                         look);
    }

    Result<Arguments> call() const {
        const bool in_layer = point().layer >= 0 && std::cmp_less(point().layer, model_.config.layers.size());
        if (in_layer && (layer().delta || (layer().attention && layer().attention->qk_norm)))
            return error("{}: layers with a delta net or gated attention have no cases of their own yet",
                         to_string(point()));
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
            default: return error("{} is no operation of `verbatim kernel list`", walk_op_name(point().op));
        }
    }

private:
    [[nodiscard]] const WalkPoint& point() const { return points_[op_]; }
    [[nodiscard]] const LayerConfig& layer() const { return model_.config.layers[static_cast<size_t>(point().layer)]; }
    [[nodiscard]] const LayerWeights& weights() const {
        return model_.weights.layers[static_cast<size_t>(point().layer)];
    }
    void keep(std::span<const float> state) { state_.assign(state.begin(), state.end()); }

    // Of these sizes, with nothing in it: one sequence, or rows.
    [[nodiscard]] Arguments empty(std::string_view name, const Sizes& sizes, bool is_sequence = false) const {
        const Operation* operation = find_operation(name);
        CHECK(operation != nullptr, "{}", name);
        const auto rows = static_cast<size_t>(num_rows_);
        return empty_arguments(*operation, sizes,
                               is_sequence ? std::vector<int64_t>{num_rows_} : std::vector<int64_t>(rows, 1));
    }

    [[nodiscard]] Arguments rms_norm() const {
        const ModelConfig& config = model_.config;
        Arguments call = empty("rms_norm", {num_rows_, config.hidden_size});
        const bool is_final = point().op == WalkOp::kFinalNorm;
        // The MLP's is followed by gate or up, that of experts by their router.
        const Buffer next = is_final ? Buffer::kHead : points_[op_ + 1].buffer;
        const Norm norm = is_final                                                                  ? Norm::kFinal
                          : next == Buffer::kGate || next == Buffer::kUp || next == Buffer::kRouter ? Norm::kMlp
                                                                                                    : Norm::kMixer;
        set(call, "x", before_.get(Buffer::kResidual, {0, config.hidden_size}));
        const VectorView stored = norm_of(model_.weights, point().layer, norm);
        const float* weight = reference_.norm_weight(stored);
        set(call, "weight", VectorView(weight, stored.size()));
        call.scalars[0] = static_cast<float>(config.norm_eps);
        return call;
    }

    struct Product {
        MatrixId id;
        Buffer in = Buffer::kNormed;
        double multiplier = 1;
    };
    [[nodiscard]] Product product() const {
        const int32_t i = point().layer;
        const LayerConfig* at = point().buffer == Buffer::kLogits ? nullptr : &layer();
        switch (point().buffer) {
            case Buffer::kLogits: return {{i, Matrix::kLmHead}, Buffer::kHead};
            case Buffer::kProjected: return {{i, Matrix::kInProj}, Buffer::kNormed, at->mamba->in_multiplier};
            case Buffer::kQ: return {{i, Matrix::kQ}, Buffer::kNormed, at->attention->in_multiplier};
            case Buffer::kK: return {{i, Matrix::kK}, Buffer::kNormed, at->attention->in_multiplier};
            case Buffer::kV: return {{i, Matrix::kV}, Buffer::kNormed, at->attention->in_multiplier};
            case Buffer::kGate: return {{i, Matrix::kGate}};
            case Buffer::kUp: return {{i, Matrix::kUp}};
            case Buffer::kLatent: return {{i, Matrix::kLatentIn}};
            case Buffer::kRouted: return {{i, Matrix::kLatentOut}, Buffer::kLatentSum};
            case Buffer::kSharedGate: return {{i, Matrix::kSharedGate}};
            default: break;
        }
        // A branch: what came before says of what.
        const WalkOp before = points_[op_ - 1].op;
        if (before == WalkOp::kGatedNorm) return {{i, Matrix::kOutProj}, Buffer::kMixed};
        if (before == WalkOp::kAttention) return {{i, Matrix::kO}, Buffer::kMixed};
        if (before == WalkOp::kExperts) return {{i, Matrix::kLatentOut}, Buffer::kLatentSum};
        return {{i, Matrix::kDown}, Buffer::kUp};
    }
    [[nodiscard]] Arguments matmul() const {
        const Product product = this->product();
        const Linear linear = linear_of(model_.weights, product.id);
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
        call.scalars[0] = static_cast<float>(product.multiplier);
        return call;
    }

    [[nodiscard]] Arguments conv() const {
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

    [[nodiscard]] Arguments gated_norm() const {
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
    [[nodiscard]] Arguments rope() const {
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

    // Blocks in order; slots that nobody sees stay zero.
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
    Buffers before_;
    std::vector<float> state_;  // that the first row found
};

}  // namespace

Result<ValueCase> operation_case(const Model& model, Profile profile, const records::WalkPoints& points,
                                 const OperationPlace& place, std::span<const TokenId> tokens, std::string met) {
    CHECK(place.begin <= place.position && place.position < place.end && place.end <= std::ssize(tokens),
          "position {} of [{}, {}), {} tokens", place.position, place.begin, place.end, tokens.size());
    Scene scene(model, profile, points, place);
    scene.run(tokens);
    ASSIGN_OR_RETURN(Arguments call, scene.call());
    return value_case_of(std::move(call), std::string(name(profile)), std::move(met));
}

}  // namespace verbatim::tools
