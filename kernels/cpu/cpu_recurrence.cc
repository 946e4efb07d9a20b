// The walk's operations with a recurrence: Mamba-2 and delta nets. A sequence's state starts at its row and the log
// behind it. Rows with known tokens advance it to the destination row, if there is one. Drafts advance a scratch copy
// and do not change the log.
#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/ops/conv1d.h"

namespace verbatim::cpu {

using reference::Buffer;
using reference::Columns;
using reference::ConstFloatRows;
using reference::DeltaConfig;
using reference::FloatRows;
using reference::MambaConfig;
using reference::StateKind;

namespace {

constexpr int64_t kConvChannels = 512;  // channels per task

// The destination row contains the window after the only row that may draw.
bool keeps_window(const PooledSequence& of) { return of.num_drafts() == 0 && of.state_dst != kNoState; }

}  // namespace

Recurrence recurrence_of(const reference::LayerConfig& layer) {
    if (layer.delta) {
        const DeltaConfig& delta = *layer.delta;
        return {.kind = StateKind::kDelta,
                .d_conv = delta.d_conv,
                .conv_dim = delta.conv_dim(),
                .projected = delta.conv_dim(),
                .conv = {0, delta.conv_dim()},
                .n_heads = delta.n_value_heads,
                .head_floats = int64_t{delta.key_dim} * delta.value_dim,
                .out_dim = delta.value_dim};
    }
    CHECK(layer.mamba.has_value());
    const MambaConfig& mamba = *layer.mamba;
    return {.kind = StateKind::kSsm,
            .d_conv = mamba.d_conv,
            .conv_dim = mamba.conv_dim(),
            .projected = mamba.in_rows(),
            .conv = reference::projected_columns(mamba).conv,
            .n_heads = mamba.n_heads,
            .head_floats = int64_t{mamba.d_state} * mamba.head_dim,
            .out_dim = mamba.head_dim};
}

// Lists, for every sequence, the snapshots of its state.
void CpuBackend::list_snapshots(int32_t layer, StateKind kind) {
    snapshots_.clear();
    first_snapshot_.assign(1, 0);
    for (size_t i = 0; i < sequences().size(); ++i) {
        for (const StateWrite& write : sequences()[i].writes) {
            const int64_t num_tokens = write.length - batch().sequences[i].first_position;
            CHECK(num_tokens >= 0 && num_tokens <= batch().sequences[i].num_rows, "a state after {} of {} tokens",
                  num_tokens, batch().sequences[i].num_rows);
            snapshots_.push_back({num_tokens, states_.tensor<float>(write.dst, layer, kind).data()});
        }
        first_snapshot_.push_back(snapshots_.size());
    }
}

std::span<const reference::StateSnapshot> CpuBackend::snapshots(size_t sequence) const {
    return std::span(snapshots_)
        .subspan(first_snapshot_[sequence], first_snapshot_[sequence + 1] - first_snapshot_[sequence]);
}

// --- the convolution

ConstFloatRows CpuBackend::conv_inputs(size_t sequence, const Recurrence& of) const {
    const auto& part = batch().sequences[sequence];
    return rows(Buffer::kProjected, of.projected)
        .columns(of.conv.first, of.conv.count)
        .rows(part.first_row, part.num_rows);
}

// Copies the convolution's window after the log and the first `num_rows` of `inputs`. `out` may be the row's own
// window: each token is read before its place is overwritten, because tokens move towards the front.
void CpuBackend::copy_window(int32_t layer, const PooledSequence& of, ConstFloatRows inputs, int64_t num_rows,
                             float* out) {
    const Recurrence shape = recurrence_of(config().layers[layer]);
    const int64_t width = shape.conv_dim;
    const int64_t past = shape.d_conv - 1;
    CHECK(num_rows >= 0 && num_rows <= inputs.num_rows, "a window after {} of {} rows", num_rows, inputs.num_rows);
    const float* row =
        of.state_src == kNoState ? nullptr : states_.tensor<float>(of.state_src, layer, StateKind::kConv).data();
    for (int64_t j = 0; j < past; ++j) {
        const int64_t r = num_rows - past + j;
        const int64_t logged = of.num_logged_tokens + r;
        const float* input = r >= 0           ? inputs.row(r)
                             : logged >= 0    ? log_.at(of.slot, layer, logged).conv_in
                             : row != nullptr ? row + (past + logged) * width
                                              : weights_.zeros();
        std::memmove(out + j * width, input, static_cast<size_t>(width) * sizeof(float));
    }
}

void CpuBackend::read_logged_windows(int32_t layer, const Recurrence& shape) {
    for (size_t i = 0; i < sequences().size(); ++i) {
        if (sequences()[i].num_logged_tokens == 0) continue;
        const auto floats = static_cast<size_t>(shape.window_floats());
        if (logged_windows_.size() < sequences().size() * floats) logged_windows_.resize(sequences().size() * floats);
        copy_window(layer, sequences()[i], {}, 0, logged_windows_.data() + i * floats);
    }
}

// For sequences with drafts, whose convolution also runs over the drafts.
void CpuBackend::keep_windows(int32_t layer, const Recurrence& shape) {
    for (size_t i = 0; i < sequences().size(); ++i) {
        const PooledSequence& of = sequences()[i];
        if (of.num_drafts() == 0 || of.state_dst == kNoState) continue;
        copy_window(layer, of, conv_inputs(i, shape), batch().sequences[i].num_rows - of.num_drafts(),
                    states_.tensor<float>(of.state_dst, layer, StateKind::kConv).data());
    }
}

void CpuBackend::conv(int32_t layer, const MambaConfig&) {
    const reference::VectorView bias = model_.weights().layers[layer].mamba.conv_bias;
    convolve(layer, recurrence_of(config().layers[layer]), bias.empty() ? nullptr : bias.data());
}

void CpuBackend::delta_conv(int32_t layer, const DeltaConfig&) {
    convolve(layer, recurrence_of(config().layers[layer]), nullptr);
}

void CpuBackend::convolve(int32_t layer, const Recurrence& shape, const float* bias) {
    const FloatRows out = fresh(Buffer::kConv, shape.conv_dim);
    const int64_t parts = (shape.conv_dim + kConvChannels - 1) / kConvChannels;
    list_snapshots(layer, StateKind::kConv);
    read_logged_windows(layer, shape);
    const auto window = [&](StateIndex row) {
        return row == kNoState ? nullptr : states_.tensor<float>(row, layer, StateKind::kConv).data();
    };
    const auto convolve_part = [&](int64_t part) {
        const auto i = static_cast<size_t>(part / parts);
        const auto& rows = batch().sequences[i];
        const PooledSequence& of = sequences()[i];
        const float* logged = logged_windows_.data() + static_cast<int64_t>(i) * shape.window_floats();
        const reference::Conv1dArgs args{.d_conv = shape.d_conv,
                                         .x = conv_inputs(i, shape),
                                         .weight = weights_.conv_weight(layer),
                                         .bias = bias,
                                         .window_in = of.num_logged_tokens > 0 ? logged : window(of.state_src),
                                         .window_out = of.num_drafts() > 0 ? nullptr : window(of.state_dst),
                                         .snapshots = snapshots(i),
                                         .out = out.rows(rows.first_row, rows.num_rows)};
        const int64_t begin = part % parts * kConvChannels;
        conv1d_channels(row_ops(), args, weights_.zeros(), begin, std::min(begin + kConvChannels, shape.conv_dim));
    };
    const int64_t num_parts = static_cast<int64_t>(sequences().size()) * parts;
    if (batch().num_rows() > 1) {
        pool_.for_each(num_parts, convolve_part);
    } else {  // one row: done before a second thread wakes up
        for (int64_t part = 0; part < num_parts; ++part) convolve_part(part);
    }
    check_windows(layer, shape);
    keep_windows(layer, shape);
}

// N8: checks the window after every drawing row whose window no state row keeps. Runs before a row or the log takes
// the tokens in, because the window before the first row is lost then.
void CpuBackend::check_windows(int32_t layer, const Recurrence& shape) {
    window_is_finite_.resize(static_cast<size_t>(batch().num_logit_rows()));
    if (std::ranges::all_of(sequences(), keeps_window)) return;
    pool_.for_each(static_cast<int64_t>(sequences().size()), [&](int64_t i) {
        const PooledSequence& of = sequences()[i];
        if (keeps_window(of)) return;
        float* window = scan_scratch_[reference::WorkerPool::thread_index()].window.ensure(shape.window_floats());
        for (int32_t draw = 0; draw < of.num_sampled_positions; ++draw) {
            const int64_t num_rows = batch().sequences[i].num_rows - of.num_sampled_positions + draw + 1;
            copy_window(layer, of, conv_inputs(static_cast<size_t>(i), shape), num_rows, window);
            window_is_finite_[first_logit_rows_[i] + draw] = row_ops().is_finite(window, shape.window_floats()) ? 1 : 0;
        }
    });
}

// --- the scan

void CpuBackend::find_time_steps(int32_t layer, const MambaConfig& mamba) {
    const reference::MambaWeights& w = model_.weights().layers[layer].mamba;
    const Columns columns = reference::projected_columns(mamba).dt;
    const ConstFloatRows raw = rows(Buffer::kProjected, mamba.in_rows()).columns(columns.first, columns.count);
    const int64_t heads = mamba.n_heads;
    float* out = time_steps_.ensure(raw.num_rows * 2 * heads);
    for_rows(raw.num_rows, [&](int64_t r) {
        row_ops().time_steps({.raw = raw.row(r),
                              .bias = w.dt_bias.data(),
                              .a = model_.decay_rates(layer).data(),
                              .dt_min = static_cast<float>(mamba.dt_min),
                              .dt_max = static_cast<float>(mamba.dt_max),
                              .n_heads = heads,
                              .dt = out + r * 2 * heads,
                              .decay = out + (r * 2 + 1) * heads});
    });
}

void CpuBackend::scan(int32_t layer, const MambaConfig& mamba) {
    find_time_steps(layer, mamba);
    scan_heads(layer, recurrence_of(config().layers[layer]));
}

void CpuBackend::delta_update(int32_t layer, const DeltaConfig& delta) {
    const int64_t heads = delta.n_value_heads;
    const ConstFloatRows beta = rows(Buffer::kB, heads);
    const ConstFloatRows decay = rows(Buffer::kA, heads);
    float* steps = time_steps_.ensure(beta.num_rows * 2 * heads);
    for (int64_t r = 0; r < beta.num_rows; ++r) {
        std::copy_n(beta.row(r), heads, steps + r * 2 * heads);
        std::copy_n(decay.row(r), heads, steps + (r * 2 + 1) * heads);
    }
    scan_heads(layer, recurrence_of(config().layers[layer]));
}

void CpuBackend::scan_heads(int32_t layer, const Recurrence& shape) {
    fresh(Buffer::kMixed, shape.n_heads * shape.out_dim);
    list_snapshots(layer, shape.kind);
    const int64_t heads = shape.n_heads;
    finite_draws_.resize(sequences().size() * static_cast<size_t>(heads));
    const int64_t count = static_cast<int64_t>(sequences().size()) * heads;
    const int64_t group = neighbours(count);
    pool_.for_each((count + group - 1) / group, [&](int64_t part) {
        for (int64_t i = part * group; i < std::min((part + 1) * group, count); ++i) {
            scan_head(layer, shape, static_cast<size_t>(i / heads), i % heads);
        }
    });
    log_rows(layer, shape);
}

float* CpuBackend::head_state(StateIndex row, int32_t layer, const Recurrence& shape, int64_t head) {
    if (row == kNoState) return nullptr;
    return states_.tensor<float>(row, layer, shape.kind).data() + head * shape.head_floats;
}

// Advances one head of a layer by some tokens, from state_in to state_out; false: the new state is not finite.
bool CpuBackend::take_tokens(int32_t layer, int64_t head, const HeadTokens& tokens, const float* state_in,
                             float* state_out) {
    const reference::LayerConfig& of = config().layers[layer];
    if (of.delta) {
        const DeltaConfig& delta = *of.delta;
        const int64_t key = delta.key_head_of(head) * delta.key_dim;
        return ops_.delta({.key_dim = delta.key_dim,
                           .value_dim = delta.value_dim,
                           .num_tokens = tokens.count,
                           .q = tokens.conv + key,
                           .k = tokens.conv + delta.key_rows() + key,
                           .v = tokens.conv + 2 * delta.key_rows() + head * delta.value_dim,
                           .stride = tokens.conv_stride,
                           .beta = tokens.steps + head,
                           .decay = tokens.steps + delta.n_value_heads + head,
                           .gate_stride = tokens.steps_stride,
                           .state_in = state_in,
                           .state_out = state_out,
                           .y = tokens.y,
                           .y_stride = tokens.y_stride});
    }
    const MambaConfig& mamba = *of.mamba;
    const int64_t b_column = mamba.d_inner() + head / (mamba.n_heads / mamba.n_groups) * mamba.d_state;
    return ops_.scan({.head_dim = mamba.head_dim,
                      .d_state = mamba.d_state,
                      .num_tokens = tokens.count,
                      .dt = tokens.steps + head,
                      .decay = tokens.steps + mamba.n_heads + head,
                      .dt_stride = tokens.steps_stride,
                      .d = model_.weights().layers[layer].mamba.d[head],
                      .x = tokens.conv + head * mamba.head_dim,
                      .b = tokens.conv + b_column,
                      .c = tokens.conv + b_column + mamba.bc_rows(),
                      .stride = tokens.conv_stride,
                      .state_in = state_in,
                      .state_out = state_out,
                      .y = tokens.y,
                      .y_stride = tokens.y_stride});
}

// From the source row through the log to `out`, which may be the source row. False: the new state is not finite.
bool CpuBackend::replay_head(int32_t layer, const Recurrence& shape, const PooledSequence& of, int64_t head,
                             float* out) {
    const LoggedToken first = log_.at(of.slot, layer, 0);
    const int64_t stride = log_.token_stride(layer);
    const int64_t count = of.num_logged_tokens;
    CHECK_GT(count, 0);
    const HeadTokens tokens{.count = count,
                            .conv = first.conv_out,
                            .conv_stride = stride,
                            .steps = first.steps,
                            .steps_stride = stride,
                            .y = scan_scratch_[reference::WorkerPool::thread_index()].y.ensure(count * shape.out_dim),
                            .y_stride = shape.out_dim};
    return take_tokens(layer, head, tokens, head_state(of.state_src, layer, shape, head), out);
}

// One head of one sequence over all its tokens; stops at each snapshot.
void CpuBackend::scan_head(int32_t layer, const Recurrence& shape, size_t sequence, int64_t head) {
    const PooledSequence& of = sequences()[sequence];
    const auto& part = batch().sequences[sequence];
    ScanScratch& scratch = scan_scratch_[reference::WorkerPool::thread_index()];
    const int64_t y_width = shape.n_heads * shape.out_dim;
    const ConstFloatRows conv = rows(Buffer::kConv, shape.conv_dim).rows(part.first_row, part.num_rows);
    float* y = activations(Buffer::kMixed).floats.data() + part.first_row * y_width + head * shape.out_dim;
    const float* state_in = head_state(of.state_src, layer, shape, head);
    const auto scan_rows = [&](int64_t begin, int64_t end, float* out) {
        const int64_t steps_stride = 2 * shape.n_heads;
        const HeadTokens tokens{.count = end - begin,
                                .conv = conv.row(begin),
                                .conv_stride = conv.stride,
                                .steps = time_steps_.data() + (part.first_row + begin) * steps_stride,
                                .steps_stride = steps_stride,
                                .y = y + begin * y_width,
                                .y_stride = y_width};
        const bool finite = take_tokens(layer, head, tokens, state_in, out);
        state_in = out;
        return finite;
    };

    float* known = head_state(of.state_dst, layer, shape, head);
    if (known == nullptr) known = scratch.known.ensure(shape.head_floats);
    bool finite = true;
    if (of.num_logged_tokens > 0) {
        finite = replay_head(layer, shape, of, head, known);
        state_in = known;
    }
    const int64_t num_known = part.num_rows - of.num_drafts();
    int64_t done = 0;
    for (const reference::StateSnapshot& snapshot : snapshots(sequence)) {
        finite = scan_rows(done, snapshot.num_tokens, known);
        done = snapshot.num_tokens;
        std::copy_n(known, shape.head_floats, snapshot.out + head * shape.head_floats);
    }
    CHECK_LE(done, num_known);
    if (done < num_known) finite = scan_rows(done, num_known, known);

    int32_t& finite_draws = finite_draws_[sequence * static_cast<size_t>(shape.n_heads) + head];
    finite_draws = finite ? of.num_sampled_positions : 0;
    if (of.num_drafts() == 0) return;
    float* beyond = scratch.drafts.ensure(shape.head_floats);
    if (scan_rows(num_known, part.num_rows, beyond) || !finite) return;
    // A fault among the drafts: repeat them one by one. A state that is not finite stays so.
    state_in = known;
    finite_draws = 1;
    while (scan_rows(num_known + finite_draws - 1, num_known + finite_draws, beyond)) {
        ++finite_draws;
        CHECK_LT(finite_draws, of.num_sampled_positions);  // the fault comes again
    }
}

// Logs the tokens that the next step may have to replay: all that no row has taken in. Older entries were in use until
// now.
void CpuBackend::log_rows(int32_t layer, const Recurrence& shape) {
    for (size_t i = 0; i < sequences().size(); ++i) {
        const PooledSequence& of = sequences()[i];
        const auto& part = batch().sequences[i];
        const bool moved = of.state_dst != kNoState;
        const int64_t begin = moved ? part.num_rows - of.num_drafts() : 0;
        const int64_t first_entry = moved ? 0 : of.num_logged_tokens;
        if (begin == part.num_rows) continue;
        log_.make_room(of.slot);
        const ConstFloatRows in = conv_inputs(i, shape);
        const ConstFloatRows out = rows(Buffer::kConv, shape.conv_dim).rows(part.first_row, part.num_rows);
        for (int64_t r = begin; r < part.num_rows; ++r) {
            const LoggedToken entry = log_.at(of.slot, layer, first_entry + r - begin);
            std::copy_n(in.row(r), in.width, entry.conv_in);
            std::copy_n(out.row(r), out.width, entry.conv_out);
            const int64_t steps = 2 * shape.n_heads;
            std::copy_n(time_steps_.data() + (part.first_row + r) * steps, steps, entry.steps);
        }
    }
}

// Sequences without rows: replays the log into their state rows.
void CpuBackend::move_rows(std::span<const PooledSequence> moves) {
    for (size_t layer = 0; layer < config().layers.size(); ++layer) {
        if (!config().layers[layer].mamba && !config().layers[layer].delta) continue;
        const Recurrence shape = recurrence_of(config().layers[layer]);
        const auto number = static_cast<int32_t>(layer);
        const int64_t heads = shape.n_heads;
        for (const PooledSequence& of : moves) CHECK(of.state_dst != kNoState, "slot {} moves nowhere", index(of.slot));
        pool_.for_each(static_cast<int64_t>(moves.size()) * heads, [&](int64_t part) {
            const PooledSequence& of = moves[static_cast<size_t>(part / heads)];
            if (of.num_logged_tokens == 0) return;
            replay_head(number, shape, of, part % heads, head_state(of.state_dst, number, shape, part % heads));
        });
        for (const PooledSequence& of : moves) {
            copy_window(number, of, {}, 0, states_.tensor<float>(of.state_dst, number, StateKind::kConv).data());
        }
    }
}

// --- N8

// The scan checked the state while it passed.
void CpuBackend::check_state(int32_t layer) {
    const Recurrence shape = recurrence_of(config().layers[layer]);
    const int64_t heads = shape.n_heads;
    CHECK_EQ(std::ssize(finite_draws_), std::ssize(sequences()) * heads);
    pool_.for_each(static_cast<int64_t>(sequences().size()), [&](int64_t i) {
        const PooledSequence& of = sequences()[i];
        const auto first = finite_draws_.begin() + i * heads;
        const int32_t num_finite = *std::min_element(first, first + heads);
        for (int32_t draw = 0; draw < of.num_sampled_positions; ++draw) {
            auto& fault = fault_layers_[first_logit_rows_[i] + draw];
            if (fault) continue;
            const auto window_is_finite = [&] {
                if (!keeps_window(of)) return window_is_finite_[first_logit_rows_[i] + draw] != 0;
                const float* kept = states_.tensor<float>(of.state_dst, layer, StateKind::kConv).data();
                return row_ops().is_finite(kept, shape.window_floats());
            };
            if (draw >= num_finite || !window_is_finite()) fault = layer;
        }
    });
}

}  // namespace verbatim::cpu
