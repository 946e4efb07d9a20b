#include "kernels/cpu/cpu_backend.h"

#include <algorithm>

#include "engine/base/check.h"
#include "kernels/cpu/ops/conv1d.h"
#include "kernels/cpu/ops/paged_attention.h"
#include "kernels/cpu/ops/rounding.h"
#include "reference/numerics/math.h"
#include "reference/ops/elementwise.h"
#include "reference/ops/embedding.h"
#include "reference/ops/finite.h"
#include "reference/ops/gated_norm.h"
#include "reference/ops/rms_norm.h"
#include "reference/ops/rope.h"
#include "reference/ops/ssm_scan.h"

namespace verbatim::cpu {

using reference::Buffer;
using reference::Columns;
using reference::ConstFloatRows;
using reference::FloatRows;
using reference::HeadPart;
using reference::MatrixId;

namespace {

constexpr int64_t kRowGrain = 4;        // rows of cheap operations that one thread takes at a time
constexpr int64_t kMatmulRows = 128;    // rows that share a panel's trip through the cache
constexpr int64_t kConvChannels = 256;  // channels that one thread takes at a time
constexpr int64_t kAttentionRows = 16;  // query rows that one thread takes at a time

}  // namespace

CpuBackend::CpuBackend(const reference::ReferenceModel& model, const CpuOps& ops, PagedKv& kv, StateRows& states,
                       reference::WorkerPool& pool)
    : model_(model),
      ops_(ops),
      kv_(kv),
      states_(states),
      pool_(pool),
      place_(model.config().layers.size() + 1),
      conv_weights_(model.config().layers.size()) {
    const auto ids = reference::matrices_of(model.config());
    packed_.resize(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) {
        place_[ids[i].layer][static_cast<size_t>(ids[i].matrix)] = static_cast<int32_t>(i);
    }
    pool.for_each(static_cast<int64_t>(ids.size()),
                  [&](int64_t i) { packed_[i] = PackedMatrix(linear_of(model.weights(), ids[i]).weight); });
    for (size_t i = 0; i < conv_weights_.size(); ++i) {
        const auto& mamba = config().layers[i].mamba;
        if (!mamba) continue;
        conv_weights_[i] =
            taps_first(model.weights().layers[i].mamba.conv_weight.data(), mamba->conv_dim(), mamba->d_conv);
    }
}

void CpuBackend::set_sequences(std::span<const CpuSequence> sequences, const reference::StepObserver* observer) {
    sequences_ = sequences;
    observer_ = observer;
}

void CpuBackend::begin(const reference::WalkBatch& batch) {
    CHECK_EQ(batch.sequences.size(), sequences_.size());
    batch_ = batch;
    positions_.resize(batch.num_rows());
    sequence_of_row_.resize(batch.num_rows());
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const auto& sequence = batch.sequences[i];
        for (int32_t r = 0; r < sequence.num_rows; ++r) {
            positions_[sequence.first_row + r] = sequence.first_position + r;
            sequence_of_row_[sequence.first_row + r] = i;
        }
    }
    fault_layers_.assign(batch.sequences.size(), std::nullopt);
}

// --- buffers

int64_t CpuBackend::num_rows(Buffer buffer) const {
    return buffer == Buffer::kHead || buffer == Buffer::kLogits ? batch_.num_logit_rows() : batch_.num_rows();
}

// The buffer for what is about to be written, in rows of `width`.
FloatRows CpuBackend::fresh(Buffer buffer, int64_t width) {
    Activations& activations = buffers_[static_cast<size_t>(buffer)];
    activations.width = width;
    return reference::dense_rows(activations.floats.ensure(num_rows(buffer) * width), num_rows(buffer), width);
}

FloatRows CpuBackend::rows(Buffer buffer, int64_t width) {
    const Activations& activations = buffers_[static_cast<size_t>(buffer)];
    CHECK_EQ(activations.width, width);
    return reference::dense_rows(activations.floats.data(), num_rows(buffer), width);
}

std::span<const float> CpuBackend::logits(int64_t logit_row) const {
    CHECK_LT(logit_row, batch_.num_logit_rows());
    const auto width = static_cast<size_t>(config().vocab_size);
    return {buffers_[static_cast<size_t>(Buffer::kLogits)].floats.data() + logit_row * width, width};
}

void CpuBackend::observe(const reference::WalkPoint& point) {
    if (observer_ == nullptr || !*observer_) return;
    const int64_t width = buffers_[static_cast<size_t>(point.buffer)].width;
    const ConstFloatRows all = rows(point.buffer, width).columns(point.columns.first, point.columns.count);
    if (point.buffer == Buffer::kHead || point.buffer == Buffer::kLogits) {
        for (int64_t i = 0; i < batch_.num_logit_rows(); ++i) {
            const int32_t row = batch_.logit_rows[i];
            (*observer_)({sequences_[sequence_of_row_[row]].slot, positions_[row], point, all.rows(i, 1)});
        }
        return;
    }
    for (size_t i = 0; i < sequences_.size(); ++i) {
        const auto& part = batch_.sequences[i];
        (*observer_)({sequences_[i].slot, part.first_position, point, all.rows(part.first_row, part.num_rows)});
    }
}

// --- rows

void CpuBackend::embed(float multiplier) {
    const FloatRows out = fresh(Buffer::kResidual, config().hidden_size);
    pool_.for_ranges(batch_.num_rows(), kRowGrain, [&](int64_t begin, int64_t end) {
        reference::embedding({.tokens = batch_.tokens.data() + begin,
                              .table = model_.weights().embedding.data,
                              .vocab_size = config().vocab_size,
                              .multiplier = multiplier,
                              .out = out.rows(begin, end - begin)});
    });
}

void CpuBackend::norm(int32_t layer, reference::Norm norm, float eps) {
    const float* weight = norm_of(model_.weights(), layer, norm).data();
    const ConstFloatRows x = rows(Buffer::kResidual, config().hidden_size);
    const bool final = norm == reference::Norm::kFinal;
    const FloatRows out = fresh(final ? Buffer::kHead : Buffer::kNormed, config().hidden_size);
    pool_.for_ranges(out.num_rows, kRowGrain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            const ConstFloatRows row = x.rows(final ? batch_.logit_rows[r] : r, 1);
            reference::rms_norm({.x = row, .weight = weight, .eps = eps, .out = out.rows(r, 1)});
        }
    });
}

void CpuBackend::scale(Buffer buffer, Columns columns, float multiplier) {
    const FloatRows all = rows(buffer, buffers_[static_cast<size_t>(buffer)].width);
    const FloatRows part = all.columns(columns.first, columns.count);
    pool_.for_ranges(part.num_rows, kRowGrain, [&](int64_t begin, int64_t end) {
        reference::scale({.x = part.rows(begin, end - begin), .multiplier = multiplier});
    });
}

void CpuBackend::gated_norm(int32_t layer, const reference::MambaConfig& mamba, float eps) {
    const Columns z = reference::projected_columns(mamba).z;
    const ConstFloatRows gate = rows(Buffer::kProjected, mamba.in_rows()).columns(z.first, z.count);
    const FloatRows y = rows(Buffer::kMixed, mamba.d_inner());
    pool_.for_ranges(y.num_rows, kRowGrain, [&](int64_t begin, int64_t end) {
        reference::gated_norm({.gate = mamba.gate,
                               .n_groups = mamba.n_norm_groups,
                               .z = gate.rows(begin, end - begin),
                               .weight = model_.weights().layers[layer].mamba.norm.data(),
                               .eps = eps,
                               .y = y.rows(begin, end - begin)});
    });
}

void CpuBackend::rope(int32_t layer, const reference::AttentionConfig& attention) {
    const int64_t max_position = *std::max_element(positions_.begin(), positions_.end());
    const reference::RopeTable& table = model_.rope_table(layer, max_position + 1);
    const auto turn = [&](Buffer buffer, int64_t n_heads) {
        const FloatRows x = rows(buffer, n_heads * attention.head_dim);
        pool_.for_ranges(x.num_rows, kRowGrain, [&](int64_t begin, int64_t end) {
            reference::rope({.x = x.rows(begin, end - begin),
                             .n_heads = n_heads,
                             .head_dim = attention.head_dim,
                             .positions = positions_.data() + begin,
                             .table = &table});
        });
    };
    turn(Buffer::kQ, attention.n_heads);
    turn(Buffer::kK, attention.n_kv_heads);
}

void CpuBackend::activation(int32_t, const reference::MlpConfig& mlp) {
    const FloatRows up = rows(Buffer::kUp, mlp.d_ff);
    pool_.for_ranges(up.num_rows, kRowGrain, [&](int64_t begin, int64_t end) {
        const FloatRows part = up.rows(begin, end - begin);
        if (mlp.kind == reference::MlpKind::kReluSquared) return reference::relu_squared({part});
        reference::swiglu({.gate = rows(Buffer::kGate, mlp.d_ff).rows(begin, end - begin),
                           .gate_multiplier = static_cast<float>(mlp.gate_multiplier),
                           .up = part});
    });
}

void CpuBackend::add_branch(float branch_multiplier, float residual_multiplier) {
    const ConstFloatRows branch = rows(Buffer::kBranch, config().hidden_size);
    const FloatRows residual = rows(Buffer::kResidual, config().hidden_size);
    pool_.for_ranges(residual.num_rows, kRowGrain, [&](int64_t begin, int64_t end) {
        reference::add_branch({.branch = branch.rows(begin, end - begin),
                               .branch_multiplier = branch_multiplier,
                               .residual_multiplier = residual_multiplier,
                               .residual = residual.rows(begin, end - begin)});
    });
}

void CpuBackend::scale_logits(float multiplier, float divisor) {
    const FloatRows logits = rows(Buffer::kLogits, config().vocab_size);
    pool_.for_ranges(logits.num_rows, 1, [&](int64_t begin, int64_t end) {
        reference::scale_logits({logits.rows(begin, end - begin), multiplier, divisor});
    });
}

// --- matmul

const PackedMatrix& CpuBackend::packed(MatrixId id) const {
    return packed_[place_[id.layer][static_cast<size_t>(id.matrix)]];
}

RoundedRows CpuBackend::round_rows(ConstFloatRows x, float multiplier) {
    const int64_t pairs = num_pairs(x.width);
    float* floats = ops_.takes_pairs ? nullptr : rounded_floats_.ensure(x.num_rows * pairs * 2);
    Pair* words = ops_.takes_pairs ? rounded_pairs_.ensure(x.num_rows * pairs) : nullptr;
    pool_.for_ranges(x.num_rows, kRowGrain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
            if (ops_.takes_pairs) {
                round_to_pairs(x.row(r), x.width, multiplier, words + r * pairs);
            } else {
                round_to_floats(x.row(r), x.width, multiplier, floats + r * pairs * 2);
            }
        }
    });
    return {floats, words, x.num_rows, pairs};
}

void CpuBackend::matmul(MatrixId id, Buffer in, float in_multiplier, Buffer out) {
    const PackedMatrix& matrix = packed(id);
    const reference::VectorView bias = linear_of(model_.weights(), id).bias;
    const RoundedRows x = round_rows(rows(in, matrix.num_k()), in_multiplier);
    const FloatRows y = fresh(out, matrix.num_outputs());
    const int64_t row_blocks = (x.num_rows + kMatmulRows - 1) / kMatmulRows;
    pool_.for_each(row_blocks * matrix.num_panels(), [&](int64_t part) {
        const int64_t first = part % row_blocks * kMatmulRows;
        const int64_t count = std::min(kMatmulRows, x.num_rows - first);
        RoundedRows some = x;
        some.num_rows = count;
        if (some.floats != nullptr) some.floats += first * 2 * x.num_pairs;
        if (some.pairs != nullptr) some.pairs += first * x.num_pairs;
        panel(matrix, bias.empty() ? nullptr : bias.data(), some, part / row_blocks, y.rows(first, count));
    });
}

void CpuBackend::panel(const PackedMatrix& matrix, const float* bias, const RoundedRows& in, int64_t panel,
                       FloatRows out) const {
    alignas(64) float totals[kMatmulRows * kPanelOutputs];
    ops_.panel({in, matrix.panel(panel), totals});
    const int64_t first = panel * kPanelOutputs;
    for (int64_t r = 0; r < out.num_rows; ++r) {
        float* y = out.row(r) + first;
        const float* total = totals + r * kPanelOutputs;
        for (int64_t i = 0; i < matrix.outputs_in(panel); ++i)
            y[i] = bias != nullptr ? total[i] + bias[first + i] : total[i];
    }
}

// --- Mamba

std::vector<reference::StateSnapshot> CpuBackend::snapshots(size_t sequence, int32_t layer, HeadPart part) const {
    std::vector<reference::StateSnapshot> result;
    for (const StateWrite& write : sequences_[sequence].writes) {
        result.push_back(
            {write.length - batch_.sequences[sequence].first_position, states_.tensor(write.dst, layer, part).data()});
    }
    return result;
}

void CpuBackend::conv(int32_t layer, const reference::MambaConfig& mamba) {
    const reference::MambaWeights& w = model_.weights().layers[layer].mamba;
    const Columns columns = reference::projected_columns(mamba).conv;
    const ConstFloatRows x = rows(Buffer::kProjected, mamba.in_rows()).columns(columns.first, columns.count);
    const FloatRows out = fresh(Buffer::kConv, mamba.conv_dim());
    const int64_t parts = (mamba.conv_dim() + kConvChannels - 1) / kConvChannels;
    pool_.for_each(static_cast<int64_t>(sequences_.size()) * parts, [&](int64_t part) {
        const size_t i = static_cast<size_t>(part / parts);
        const auto& rows = batch_.sequences[i];
        const StateIndex src = sequences_[i].state_src;
        const auto windows = snapshots(i, layer, HeadPart::kConv);
        const reference::Conv1dArgs args{
            .d_conv = mamba.d_conv,
            .x = x.rows(rows.first_row, rows.num_rows),
            .weight = conv_weights_[layer].data(),
            .bias = w.conv_bias.empty() ? nullptr : w.conv_bias.data(),
            .window_in = src == kNoState ? nullptr : states_.tensor(src, layer, HeadPart::kConv).data(),
            .window_out = states_.tensor(sequences_[i].state_dst, layer, HeadPart::kConv).data(),
            .snapshots = windows,
            .out = out.rows(rows.first_row, rows.num_rows)};
        const int64_t begin = part % parts * kConvChannels;
        conv1d_channels(args, begin, std::min(begin + kConvChannels, mamba.conv_dim()));
    });
}

void CpuBackend::scan(int32_t layer, const reference::MambaConfig& mamba) {
    fresh(Buffer::kMixed, mamba.d_inner());
    const int64_t heads = mamba.n_heads;
    pool_.for_each(static_cast<int64_t>(sequences_.size()) * heads,
                   [&](int64_t part) { scan_head(layer, mamba, static_cast<size_t>(part / heads), part % heads); });
}

namespace {

// Of one head, for each token: the time step after bias, softplus and limits, and exp(dt · A).
struct TimeSteps {
    std::vector<float> dt, decay;  // [num_tokens]
};
VERBATIM_CLONES void finish_time_steps(float bias, float a, float dt_min, float dt_max, int64_t count, float* dt,
                                       float* decay) {
    for (int64_t t = 0; t < count; ++t) {
        const float raw = reference::softplus_f32(dt[t] + bias);
        const float limited = raw > dt_max ? dt_max : raw;
        dt[t] = raw < dt_min ? dt_min : limited;
        decay[t] = reference::exp_f32(dt[t] * a);
    }
}

TimeSteps time_steps(ConstFloatRows raw, int64_t head, float bias, float a, const reference::MambaConfig& mamba) {
    TimeSteps steps{std::vector<float>(raw.num_rows), std::vector<float>(raw.num_rows)};
    for (int64_t t = 0; t < raw.num_rows; ++t) steps.dt[t] = raw.row(t)[head];
    finish_time_steps(bias, a, static_cast<float>(mamba.dt_min), static_cast<float>(mamba.dt_max), raw.num_rows,
                      steps.dt.data(), steps.decay.data());
    return steps;
}

}  // namespace

// Part of the sequence's own row, with what its source row holds: zeros without one.
float* CpuBackend::take_ssm_state(const CpuSequence& sequence, int32_t layer, int64_t first, int64_t count) const {
    float* own = states_.tensor(sequence.state_dst, layer, HeadPart::kSsm).data() + first;
    if (sequence.state_src == kNoState) {
        std::fill_n(own, count, 0.0F);
    } else if (sequence.state_src != sequence.state_dst) {
        std::copy_n(states_.tensor(sequence.state_src, layer, HeadPart::kSsm).data() + first, count, own);
    }
    return own;
}

// One head of one sequence, over all its tokens, stopping where a state has to be written out.
void CpuBackend::scan_head(int32_t layer, const reference::MambaConfig& mamba, size_t sequence, int64_t head) {
    const reference::MambaWeights& w = model_.weights().layers[layer].mamba;
    const auto& part = batch_.sequences[sequence];
    const ConstFloatRows conv = rows(Buffer::kConv, mamba.conv_dim()).rows(part.first_row, part.num_rows);
    const Columns dt = reference::projected_columns(mamba).dt;
    const ConstFloatRows dt_raw = rows(Buffer::kProjected, mamba.in_rows()).columns(dt.first, dt.count);
    const FloatRows y = rows(Buffer::kMixed, mamba.d_inner()).rows(part.first_row, part.num_rows);
    const TimeSteps steps = time_steps(dt_raw.rows(part.first_row, part.num_rows), head, w.dt_bias[head],
                                       model_.decay_rates(layer)[head], mamba);
    const int64_t head_size = int64_t{mamba.d_state} * mamba.head_dim;
    const int64_t b_column = mamba.d_inner() + head / (mamba.n_heads / mamba.n_groups) * mamba.d_state;
    float* state = take_ssm_state(sequences_[sequence], layer, head * head_size, head_size);
    std::vector<float> scratch(static_cast<size_t>(2 * mamba.head_dim));
    const auto scan_tokens = [&](int64_t begin, int64_t end) {
        ops_.scan({.head_dim = mamba.head_dim,
                   .d_state = mamba.d_state,
                   .num_tokens = end - begin,
                   .dt = steps.dt.data() + begin,
                   .decay = steps.decay.data() + begin,
                   .d = w.d[head],
                   .x = conv.row(begin) + head * mamba.head_dim,
                   .b = conv.row(begin) + b_column,
                   .c = conv.row(begin) + b_column + mamba.bc_rows(),
                   .stride = conv.stride,
                   .state = state,
                   .y = y.row(begin) + head * mamba.head_dim,
                   .y_stride = y.stride,
                   .scratch = scratch.data()});
    };
    int64_t done = 0;
    for (const reference::StateSnapshot& copy : snapshots(sequence, layer, HeadPart::kSsm)) {
        scan_tokens(done, copy.num_tokens);
        std::copy_n(state, head_size, copy.out + head * head_size);
        done = copy.num_tokens;
    }
    if (done < part.num_rows) scan_tokens(done, part.num_rows);
}

void CpuBackend::check_state(int32_t layer) {
    pool_.for_each(static_cast<int64_t>(sequences_.size()), [&](int64_t i) {
        if (fault_layers_[i]) return;
        const StateIndex row = sequences_[i].state_dst;
        const bool faulty = reference::first_not_finite(states_.tensor(row, layer, HeadPart::kSsm)) ||
                            reference::first_not_finite(states_.tensor(row, layer, HeadPart::kConv));
        if (faulty) fault_layers_[i] = layer;
    });
}

// --- attention

void CpuBackend::store_kv(int32_t layer, const reference::AttentionConfig& attention) {
    const ConstFloatRows k = rows(Buffer::kK, attention.kv_rows());
    const ConstFloatRows v = rows(Buffer::kV, attention.kv_rows());
    const int64_t heads = attention.n_kv_heads;
    pool_.for_each(static_cast<int64_t>(sequences_.size()) * heads, [&](int64_t part) {
        const auto& rows = batch_.sequences[part / heads];
        const int64_t column = part % heads * attention.head_dim;
        for (int32_t r = 0; r < rows.num_rows; ++r) {
            const int64_t position = rows.first_position + r;
            const BlockId block = sequences_[part / heads].blocks[position / kv_.block_size()];
            kv_.store(layer, block, static_cast<int32_t>(position % kv_.block_size()), part % heads,
                      k.row(rows.first_row + r) + column, v.row(rows.first_row + r) + column);
        }
    });
}

void CpuBackend::attention(int32_t layer, const reference::AttentionConfig& attention, float scale) {
    struct Part {
        size_t sequence = 0;
        int64_t first_row = 0;  // of the sequence's
    };
    std::vector<Part> parts;
    for (size_t i = 0; i < sequences_.size(); ++i) {
        for (int64_t row = 0; row < batch_.sequences[i].num_rows; row += kAttentionRows) parts.push_back({i, row});
    }
    const ConstFloatRows q = rows(Buffer::kQ, attention.q_rows());
    const FloatRows out = fresh(Buffer::kMixed, attention.q_rows());
    const int64_t heads = attention.n_kv_heads;
    pool_.for_each(static_cast<int64_t>(parts.size()) * heads, [&](int64_t task) {
        const Part& part = parts[task / heads];
        const auto& rows = batch_.sequences[part.sequence];
        const PagedAttentionArgs args{.layer = layer,
                                      .first_position = rows.first_position,
                                      .n_heads = attention.n_heads,
                                      .n_kv_heads = attention.n_kv_heads,
                                      .head_dim = attention.head_dim,
                                      .scale = scale,
                                      .kv = &kv_,
                                      .blocks = sequences_[part.sequence].blocks,
                                      .q = q.rows(rows.first_row, rows.num_rows),
                                      .out = out.rows(rows.first_row, rows.num_rows)};
        const int64_t end = std::min<int64_t>(part.first_row + kAttentionRows, rows.num_rows);
        paged_attention(ops_, args, task % heads, part.first_row, end);
    });
}

void CpuBackend::check_logits() {
    const auto num_layers = static_cast<int32_t>(config().layers.size());
    for (int64_t i = 0; i < batch_.num_logit_rows(); ++i) {
        auto& fault = fault_layers_[sequence_of_row_[batch_.logit_rows[i]]];
        if (!fault && reference::first_not_finite(logits(i))) fault = num_layers;
    }
}

}  // namespace verbatim::cpu
