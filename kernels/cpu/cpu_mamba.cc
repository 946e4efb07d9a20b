// The walk's Mamba operations. A sequence's state comes from its row and the log behind it. Rows whose token is known
// take it on, to the destination row where there is one. Drafts go beyond it in scratch: they leave the log alone.
#include <algorithm>
#include <cstring>

#include "engine/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/ops/conv1d.h"

namespace verbatim::cpu {

using reference::Buffer;
using reference::Columns;
using reference::ConstFloatRows;
using reference::FloatRows;
using reference::MambaConfig;
using reference::StateKind;

namespace {

constexpr int64_t kConvChannels = 512;  // channels that one thread takes at a time

// Its destination row has the window behind the only row that may draw.
bool keeps_window(const PooledSequence& of) { return of.num_drafts() == 0 && of.state_dst != kNoState; }

int64_t window_floats(const MambaConfig& mamba) { return (int64_t{mamba.d_conv} - 1) * mamba.conv_dim(); }

}  // namespace

// Of every sequence in turn: what it has to leave behind of its state on the way.
void CpuBackend::list_snapshots(int32_t layer, StateKind kind) {
    snapshots_.clear();
    first_snapshot_.assign(1, 0);
    for (size_t i = 0; i < sequences().size(); ++i) {
        for (const StateWrite& write : sequences()[i].writes) {
            snapshots_.push_back({write.length - batch().sequences[i].first_position,
                                  states_.tensor<float>(write.dst, layer, kind).data()});
        }
        first_snapshot_.push_back(snapshots_.size());
    }
}

std::span<const reference::StateSnapshot> CpuBackend::snapshots(size_t sequence) const {
    return std::span(snapshots_)
        .subspan(first_snapshot_[sequence], first_snapshot_[sequence + 1] - first_snapshot_[sequence]);
}

// --- the convolution

ConstFloatRows CpuBackend::conv_inputs(size_t sequence, const MambaConfig& mamba) const {
    const Columns columns = reference::projected_columns(mamba).conv;
    const auto& part = batch().sequences[sequence];
    return rows(Buffer::kProjected, mamba.in_rows())
        .columns(columns.first, columns.count)
        .rows(part.first_row, part.num_rows);
}

// The conv's window after the log and the first `num_rows` of `inputs`. In place of the row's own, a token is read
// before it is written: tokens move towards the front.
void CpuBackend::copy_window(int32_t layer, const PooledSequence& of, ConstFloatRows inputs, int64_t num_rows,
                             float* out) {
    const MambaConfig& mamba = *config().layers[layer].mamba;
    const int64_t width = mamba.conv_dim();
    const int64_t past = int64_t{mamba.d_conv} - 1;
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

void CpuBackend::read_logged_windows(int32_t layer, const MambaConfig& mamba) {
    for (size_t i = 0; i < sequences().size(); ++i) {
        if (sequences()[i].num_logged_tokens == 0) continue;
        const auto floats = static_cast<size_t>(window_floats(mamba));
        if (logged_windows_.size() < sequences().size() * floats) logged_windows_.resize(sequences().size() * floats);
        copy_window(layer, sequences()[i], {}, 0, logged_windows_.data() + i * floats);
    }
}

// Of sequences with drafts: the convolution itself goes over these, too.
void CpuBackend::keep_windows(int32_t layer, const MambaConfig& mamba) {
    for (size_t i = 0; i < sequences().size(); ++i) {
        const PooledSequence& of = sequences()[i];
        if (of.num_drafts() == 0 || of.state_dst == kNoState) continue;
        copy_window(layer, of, conv_inputs(i, mamba), batch().sequences[i].num_rows - of.num_drafts(),
                    states_.tensor<float>(of.state_dst, layer, StateKind::kConv).data());
    }
}

void CpuBackend::conv(int32_t layer, const MambaConfig& mamba) {
    const reference::MambaWeights& w = model_.weights().layers[layer].mamba;
    const FloatRows out = fresh(Buffer::kConv, mamba.conv_dim());
    const int64_t parts = (mamba.conv_dim() + kConvChannels - 1) / kConvChannels;
    list_snapshots(layer, StateKind::kConv);
    read_logged_windows(layer, mamba);
    const auto window = [&](StateIndex row) {
        return row == kNoState ? nullptr : states_.tensor<float>(row, layer, StateKind::kConv).data();
    };
    const auto convolve = [&](int64_t part) {
        const auto i = static_cast<size_t>(part / parts);
        const auto& rows = batch().sequences[i];
        const PooledSequence& of = sequences()[i];
        const float* logged = logged_windows_.data() + static_cast<int64_t>(i) * window_floats(mamba);
        const reference::Conv1dArgs args{.d_conv = mamba.d_conv,
                                         .x = conv_inputs(i, mamba),
                                         .weight = weights_.conv_weight(layer),
                                         .bias = w.conv_bias.empty() ? nullptr : w.conv_bias.data(),
                                         .window_in = of.num_logged_tokens > 0 ? logged : window(of.state_src),
                                         .window_out = of.num_drafts() > 0 ? nullptr : window(of.state_dst),
                                         .snapshots = snapshots(i),
                                         .out = out.rows(rows.first_row, rows.num_rows)};
        const int64_t begin = part % parts * kConvChannels;
        conv1d_channels(row_ops(), args, weights_.zeros(), begin, std::min(begin + kConvChannels, mamba.conv_dim()));
    };
    const int64_t num_parts = static_cast<int64_t>(sequences().size()) * parts;
    if (batch().num_rows() > 1) {
        pool_.for_each(num_parts, convolve);
    } else {  // one row: over before another thread is there
        for (int64_t part = 0; part < num_parts; ++part) convolve(part);
    }
    check_windows(layer, mamba);
    keep_windows(layer, mamba);
}

// N8: what the convolution would go on from behind every row that draws, where no row keeps it. Before a row or the log
// takes it in: then what stood before the first row is gone.
void CpuBackend::check_windows(int32_t layer, const MambaConfig& mamba) {
    window_is_finite_.resize(static_cast<size_t>(batch().num_logit_rows()));
    if (std::ranges::all_of(sequences(), keeps_window)) return;
    pool_.for_each(static_cast<int64_t>(sequences().size()), [&](int64_t i) {
        const PooledSequence& of = sequences()[i];
        if (keeps_window(of)) return;
        float* window = scan_scratch_[reference::WorkerPool::thread_index()].window.ensure(window_floats(mamba));
        for (int32_t draw = 0; draw < of.num_draws; ++draw) {
            const int64_t num_rows = batch().sequences[i].num_rows - of.num_draws + draw + 1;
            copy_window(layer, of, conv_inputs(static_cast<size_t>(i), mamba), num_rows, window);
            window_is_finite_[first_logit_rows_[i] + draw] = row_ops().is_finite(window, window_floats(mamba)) ? 1 : 0;
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
    fresh(Buffer::kMixed, mamba.d_inner());
    find_time_steps(layer, mamba);
    list_snapshots(layer, StateKind::kSsm);
    const int64_t heads = mamba.n_heads;
    finite_draws_.resize(sequences().size() * static_cast<size_t>(heads));
    const int64_t count = static_cast<int64_t>(sequences().size()) * heads;
    const int64_t group = neighbours(count);
    pool_.for_each((count + group - 1) / group, [&](int64_t part) {
        for (int64_t i = part * group; i < std::min((part + 1) * group, count); ++i) {
            scan_head(layer, mamba, static_cast<size_t>(i / heads), i % heads);
        }
    });
    log_rows(layer, mamba);
}

float* CpuBackend::head_state(StateIndex row, int32_t layer, const MambaConfig& mamba, int64_t head) {
    if (row == kNoState) return nullptr;
    return states_.tensor<float>(row, layer, StateKind::kSsm).data() + head * mamba.d_state * mamba.head_dim;
}

namespace {

// One head of a layer, as the scan wants it, but for tokens and states.
ScanArgs head_args(const MambaConfig& mamba, float d) {
    return {.head_dim = mamba.head_dim, .d_state = mamba.d_state, .d = d};
}

// The tokens from the row of x, B and C at `conv` and the time steps at `steps` on.
void set_tokens(ScanArgs& args, const MambaConfig& mamba, int64_t head, const float* conv, const float* steps) {
    const int64_t b_column = mamba.d_inner() + head / (mamba.n_heads / mamba.n_groups) * mamba.d_state;
    args.x = conv + head * mamba.head_dim;
    args.b = conv + b_column;
    args.c = conv + b_column + mamba.bc_rows();
    args.dt = steps + head;
    args.decay = steps + mamba.n_heads + head;
}

}  // namespace

// From the source row through the log to `out`, which may be the source row. False: what it leaves is not finite.
bool CpuBackend::replay_head(int32_t layer, const MambaConfig& mamba, const PooledSequence& of, int64_t head,
                             float* out) {
    ScanArgs args = head_args(mamba, model_.weights().layers[layer].mamba.d[head]);
    const LoggedToken first = log_.at(of.slot, layer, 0);
    set_tokens(args, mamba, head, first.conv_out, first.steps);
    args.num_tokens = of.num_logged_tokens;
    args.stride = args.dt_stride = log_.token_stride(layer);
    args.state_in = head_state(of.state_src, layer, mamba, head);
    args.state_out = out;
    args.y = scan_scratch_[reference::WorkerPool::thread_index()].y.ensure(args.num_tokens * mamba.head_dim);
    args.y_stride = mamba.head_dim;
    return ops_.scan(args);
}

// One head of one sequence, over all its tokens, stopping where a state has to be written out.
void CpuBackend::scan_head(int32_t layer, const MambaConfig& mamba, size_t sequence, int64_t head) {
    const PooledSequence& of = sequences()[sequence];
    const auto& part = batch().sequences[sequence];
    ScanScratch& scratch = scan_scratch_[reference::WorkerPool::thread_index()];
    const int64_t head_size = int64_t{mamba.d_state} * mamba.head_dim;
    const ConstFloatRows conv = rows(Buffer::kConv, mamba.conv_dim()).rows(part.first_row, part.num_rows);
    float* y = activations(Buffer::kMixed).floats.data() + part.first_row * mamba.d_inner() + head * mamba.head_dim;
    ScanArgs args = head_args(mamba, model_.weights().layers[layer].mamba.d[head]);
    args.stride = conv.stride;
    args.dt_stride = 2 * int64_t{mamba.n_heads};
    args.y_stride = mamba.d_inner();
    args.state_in = head_state(of.state_src, layer, mamba, head);
    const auto scan_rows = [&](int64_t begin, int64_t end, float* out) {
        const float* steps = time_steps_.data() + (part.first_row + begin) * args.dt_stride;
        set_tokens(args, mamba, head, conv.row(begin), steps);
        args.num_tokens = end - begin;
        args.y = y + begin * mamba.d_inner();
        args.state_out = out;
        const bool finite = ops_.scan(args);
        args.state_in = out;
        return finite;
    };

    float* known = head_state(of.state_dst, layer, mamba, head);
    if (known == nullptr) known = scratch.known.ensure(head_size);
    bool finite = true;
    if (of.num_logged_tokens > 0) {
        finite = replay_head(layer, mamba, of, head, known);
        args.state_in = known;
    }
    const int64_t num_known = part.num_rows - of.num_drafts();
    int64_t done = 0;
    for (const reference::StateSnapshot& snapshot : snapshots(sequence)) {
        finite = scan_rows(done, snapshot.num_tokens, known);
        done = snapshot.num_tokens;
        std::copy_n(known, head_size, snapshot.out + head * head_size);
    }
    if (done < num_known) finite = scan_rows(done, num_known, known);

    int32_t& finite_draws = finite_draws_[sequence * static_cast<size_t>(mamba.n_heads) + head];
    finite_draws = finite ? of.num_draws : 0;
    if (of.num_drafts() == 0) return;
    float* beyond = scratch.drafts.ensure(head_size);
    if (scan_rows(num_known, part.num_rows, beyond) || !finite) return;
    // Somewhere among the drafts: once more, one by one. A state that is not finite stays so.
    args.state_in = known;
    finite_draws = 1;
    while (scan_rows(num_known + finite_draws - 1, num_known + finite_draws, beyond)) ++finite_draws;
}

// What the next step may have to replay: all that no row has taken in. The log's older entries were needed until now.
void CpuBackend::log_rows(int32_t layer, const MambaConfig& mamba) {
    for (size_t i = 0; i < sequences().size(); ++i) {
        const PooledSequence& of = sequences()[i];
        const auto& part = batch().sequences[i];
        const bool moved = of.state_dst != kNoState;
        const int64_t begin = moved ? part.num_rows - of.num_drafts() : 0;
        const int64_t first_entry = moved ? 0 : of.num_logged_tokens;
        if (begin == part.num_rows) continue;
        log_.make_room(of.slot);
        const ConstFloatRows in = conv_inputs(i, mamba);
        const ConstFloatRows out = rows(Buffer::kConv, mamba.conv_dim()).rows(part.first_row, part.num_rows);
        for (int64_t r = begin; r < part.num_rows; ++r) {
            const LoggedToken entry = log_.at(of.slot, layer, first_entry + r - begin);
            std::copy_n(in.row(r), in.width, entry.conv_in);
            std::copy_n(out.row(r), out.width, entry.conv_out);
            const int64_t steps = 2 * int64_t{mamba.n_heads};
            std::copy_n(time_steps_.data() + (part.first_row + r) * steps, steps, entry.steps);
        }
    }
}

// Sequences without rows: their rows take in what was logged.
void CpuBackend::move_rows(std::span<const PooledSequence> moves) {
    for (size_t layer = 0; layer < config().layers.size(); ++layer) {
        if (!config().layers[layer].mamba) continue;
        const MambaConfig& mamba = *config().layers[layer].mamba;
        const auto number = static_cast<int32_t>(layer);
        const int64_t heads = mamba.n_heads;
        pool_.for_each(static_cast<int64_t>(moves.size()) * heads, [&](int64_t part) {
            const PooledSequence& of = moves[static_cast<size_t>(part / heads)];
            if (of.num_logged_tokens == 0) return;
            replay_head(number, mamba, of, part % heads, head_state(of.state_dst, number, mamba, part % heads));
        });
        for (const PooledSequence& of : moves) {
            copy_window(number, of, {}, 0, states_.tensor<float>(of.state_dst, number, StateKind::kConv).data());
        }
    }
}

// --- N8

// The scan has looked at the state while it passed.
void CpuBackend::check_state(int32_t layer) {
    const MambaConfig& mamba = *config().layers[layer].mamba;
    const int64_t heads = mamba.n_heads;
    pool_.for_each(static_cast<int64_t>(sequences().size()), [&](int64_t i) {
        const PooledSequence& of = sequences()[i];
        const auto first = finite_draws_.begin() + i * heads;
        const int32_t num_finite = *std::min_element(first, first + heads);
        for (int32_t draw = 0; draw < of.num_draws; ++draw) {
            auto& fault = fault_layers_[first_logit_rows_[i] + draw];
            if (fault) continue;
            const auto window_is_finite = [&] {
                if (!keeps_window(of)) return window_is_finite_[first_logit_rows_[i] + draw] != 0;
                const float* kept = states_.tensor<float>(of.state_dst, layer, StateKind::kConv).data();
                return row_ops().is_finite(kept, window_floats(mamba));
            };
            if (draw >= num_finite || !window_is_finite()) fault = layer;
        }
    });
}

}  // namespace verbatim::cpu
