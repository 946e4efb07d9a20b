#include "kernels/cpu/cpu_backend.h"

#include <algorithm>

#include "engine/base/check.h"
#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/paged_attention.h"

namespace verbatim::cpu {

using reference::Buffer;
using reference::Columns;
using reference::ConstFloatRows;
using reference::FloatRows;
using reference::MatrixId;

namespace {

constexpr int64_t kBandColumns = 256;  // columns of a band per rounding task
constexpr int64_t kFewRows = 32;  // up to here weights and states are read once, and long sequential reads are faster
constexpr int64_t kPartsPerThread = 8;  // for such a pass: enough to balance the load
constexpr int64_t kAttentionRows = 16;  // query positions per task

}  // namespace

CpuBackend::CpuBackend(KernelModel& model, PackedWeights& weights, const MatmulChoice& choice, const CpuMemory& memory,
                       reference::WorkerPool& pool)
    : model_(model),
      weights_(weights),
      choice_(choice),
      ops_(*choice.many.ops),
      arena_(memory.arena),
      kv_(memory.kv),
      states_(memory.states),
      log_(memory.log),
      pool_(pool),
      scan_scratch_(pool.num_threads()),
      attention_scratch_(pool.num_threads()),
      widened_(pool.num_threads()),
      choice_scratch_(pool.num_threads()) {}

void CpuBackend::begin(const reference::WalkBatch& batch) {
    PooledWalk::begin(batch);
    attention_parts_.clear();
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const int64_t num_rows = batch.sequences[i].num_rows;
        for (int64_t row = 0; row < num_rows; row += kAttentionRows) attention_parts_.push_back({i, row});
    }
    fault_layers_.assign(batch.logit_rows.size(), std::nullopt);
    first_logit_rows_.clear();
    int64_t next_logit_row = 0;
    for (const PooledSequence& sequence : sequences()) {
        next_logit_row += sequence.num_scored_positions;
        first_logit_rows_.push_back(next_logit_row);
        next_logit_row += sequence.num_sampled_positions;
    }
    CHECK_LE(next_logit_row, batch.num_logit_rows());
}

void CpuBackend::run(const PooledStep& step) {
    for (const BlockCopy& copy : step.copies) kv_.copy(copy);
    if (!step.moves.empty()) move_rows(step.moves);
    if (step.sequences.empty()) return;
    CHECK_LE(std::ssize(step.draws), step.batch.num_logit_rows());
    set_step(config(), step);
    reference::walk(config(), model_.pass(), step.batch, *this);
    // Not before: fresh memory would delay the first token.
    if (MovingFile* const kept = weights_.kept()) kept->start_move();
}

std::span<const std::byte> CpuBackend::read_row(const reference::StateTensor& tensor, StateIndex row) {
    return states_.bytes(row, tensor.layer, tensor.kind);
}

void CpuBackend::read_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                            std::span<std::byte> out) {
    const auto slot_bytes = static_cast<size_t>(tensor.num_bytes());
    CHECK(num_slots <= kv_.block_size() && out.size() == static_cast<size_t>(num_slots) * slot_bytes,
          "{} bytes of {} slots", out.size(), num_slots);
    for (int32_t slot = 0; slot < num_slots; ++slot)
        kv_.read(tensor, block, slot, out.subspan(static_cast<size_t>(slot) * slot_bytes, slot_bytes));
}

void CpuBackend::write_row(const reference::StateTensor& tensor, StateIndex row, std::span<const std::byte> bytes) {
    const std::span<std::byte> to = states_.bytes(row, tensor.layer, tensor.kind);
    CHECK_EQ(to.size(), bytes.size());
    std::ranges::copy(bytes, to.begin());
}

void CpuBackend::write_block(const reference::StateTensor& tensor, BlockId block, int32_t num_slots,
                             std::span<const std::byte> bytes) {
    const auto slot_bytes = static_cast<size_t>(tensor.num_bytes());
    CHECK(num_slots <= kv_.block_size() && bytes.size() == static_cast<size_t>(num_slots) * slot_bytes,
          "{} bytes of {} slots", bytes.size(), num_slots);
    for (int32_t slot = 0; slot < num_slots; ++slot)
        kv_.write(tensor, block, slot, bytes.subspan(static_cast<size_t>(slot) * slot_bytes, slot_bytes));
}

// --- buffers

// The buffer of a new result, in rows of `width`.
FloatRows CpuBackend::fresh(Buffer buffer, int64_t width) {
    CHECK_GT(width, 0);
    activations(buffer).width = width;
    activations(buffer).version = ++version_;
    return reference::dense_rows(activations(buffer).floats.ensure(num_rows(buffer) * width), num_rows(buffer), width);
}

ConstFloatRows CpuBackend::rows(Buffer buffer, int64_t width) const {
    const Activations& of = buffers_[static_cast<size_t>(buffer)];
    CHECK_EQ(of.width, width);
    return reference::dense_rows<const float>(of.floats.data(), num_rows(buffer), width);
}

// For an operation in place.
FloatRows CpuBackend::changing(Buffer buffer, int64_t width) {
    CHECK_EQ(activations(buffer).width, width);
    activations(buffer).version = ++version_;
    return reference::dense_rows(activations(buffer).floats.data(), num_rows(buffer), width);
}

// How many of `count` consecutive items a task takes.
int64_t CpuBackend::neighbours(int64_t count) const {
    if (batch().num_rows() > kFewRows) return 1;
    return std::max<int64_t>(count / (pool_.num_threads() * kPartsPerThread), 1);
}

std::span<const float> CpuBackend::logits(int64_t logit_row) {
    CHECK_LT(logit_row, batch().num_logit_rows());
    const auto width = static_cast<size_t>(config().vocab_size);
    return {buffers_[static_cast<size_t>(Buffer::kLogits)].floats.data() + logit_row * width, width};
}

ConstFloatRows CpuBackend::host_rows(Buffer buffer) { return rows(buffer, activations(buffer).width); }

// --- rows

void CpuBackend::embed(float multiplier) {
    const FloatRows out = fresh(Buffer::kResidual, config().hidden_size);
    const reference::MatrixView table = model_.weights().embedding;
    for_rows(out.num_rows, [&](int64_t r) {
        if (table.is_quantised()) {
            table.read_row(batch().tokens[r], {out.row(r), static_cast<size_t>(out.width)});
            row_ops().scale(multiplier, out.width, out.row(r));
            return;
        }
        row_ops().embed(table.row(batch().tokens[r]).data(), multiplier, out.width, out.row(r));
    });
}

void CpuBackend::hidden() { read_hidden(fresh(Buffer::kResidual, config().hidden_size)); }

void CpuBackend::norm(int32_t layer, reference::Norm norm, float eps) {
    const float* weight = model_.norm(layer, norm).data();
    const ConstFloatRows x = rows(Buffer::kResidual, config().hidden_size);
    const bool final = norm == reference::Norm::kFinal;
    const FloatRows out = fresh(final ? Buffer::kHead : Buffer::kNormed, config().hidden_size);
    for_rows(out.num_rows, [&](int64_t r) {
        row_ops().rms_norm(x.row(final ? batch().logit_rows[r] : r), weight, eps, out.width, out.row(r));
    });
}

void CpuBackend::scale(Buffer buffer, Columns columns, float multiplier) {
    CHECK_LE(columns.first + columns.count, activations(buffer).width);
    const FloatRows part = changing(buffer, activations(buffer).width).columns(columns.first, columns.count);
    for_rows(part.num_rows, [&](int64_t r) { row_ops().scale(multiplier, part.width, part.row(r)); });
}

void CpuBackend::gated_norm(int32_t layer, const reference::MambaConfig& mamba, float eps) {
    const Columns columns = reference::projected_columns(mamba).z;
    const ConstFloatRows z = rows(Buffer::kProjected, mamba.in_rows()).columns(columns.first, columns.count);
    const FloatRows y = changing(Buffer::kMixed, mamba.d_inner());
    const float* weight = model_.weights().layers[layer].mamba.norm.data();
    CHECK_EQ(y.width % mamba.n_norm_groups, 0);
    const int64_t width = y.width / mamba.n_norm_groups;
    for_rows(y.num_rows, [&](int64_t r) {
        float* row = y.row(r);
        if (mamba.gate != reference::MambaGate::kNormThenGate) row_ops().silu_gate(z.row(r), y.width, row);
        for (int64_t i = 0; i < y.width && mamba.gate != reference::MambaGate::kGateOnly; i += width) {
            row_ops().rms_norm(row + i, weight + i, eps, width, row + i);
        }
        if (mamba.gate == reference::MambaGate::kNormThenGate) row_ops().silu_gate(z.row(r), y.width, row);
    });
}

void CpuBackend::delta_gates(int32_t layer, const reference::DeltaConfig& delta) {
    const FloatRows b = changing(Buffer::kB, delta.n_value_heads);
    const FloatRows a = changing(Buffer::kA, delta.n_value_heads);
    for_rows(b.num_rows, [&](int64_t r) {
        row_ops().delta_gates({.bias = model_.weights().layers[layer].delta.dt_bias.data(),
                               .rate = model_.decay_rates(layer).data(),
                               .n_heads = delta.n_value_heads,
                               .beta = b.row(r),
                               .decay = a.row(r)});
    });
}

void CpuBackend::l2_norm(int32_t, const reference::DeltaConfig& delta) {
    const FloatRows conv = changing(Buffer::kConv, delta.conv_dim());
    const auto q_scale = static_cast<float>(delta.q_scale());
    CHECK_LE(2 * int64_t{delta.n_key_heads} * delta.key_dim, conv.width);
    for_rows(conv.num_rows, [&](int64_t r) {
        for (int64_t head = 0; head < 2 * int64_t{delta.n_key_heads}; ++head) {
            float* x = conv.row(r) + head * delta.key_dim;
            row_ops().l2_norm(head < delta.n_key_heads ? q_scale : 1.0F, delta.key_dim, x);
        }
    });
}

void CpuBackend::delta_norm(int32_t layer, const reference::DeltaConfig& delta, float eps) {
    const ConstFloatRows z = rows(Buffer::kZ, delta.value_rows());
    const FloatRows y = changing(Buffer::kMixed, delta.value_rows());
    const float* weight = model_.weights().layers[layer].delta.norm.data();
    CHECK_EQ(y.width % delta.value_dim, 0);
    for_rows(y.num_rows, [&](int64_t r) {
        for (float* head = y.row(r); head < y.row(r) + y.width; head += delta.value_dim) {
            row_ops().rms_norm(head, weight, eps, delta.value_dim, head);
        }
        row_ops().silu_gate(z.row(r), y.width, y.row(r));
    });
}

// With an output gate, q's heads in kQGate.
void CpuBackend::head_norm(int32_t layer, const reference::AttentionConfig& attention, float eps) {
    const int64_t dim = attention.head_dim;
    const FloatRows k = changing(Buffer::kK, attention.kv_rows());
    const FloatRows q =
        attention.output_gate ? fresh(Buffer::kQ, attention.q_rows()) : changing(Buffer::kQ, attention.q_rows());
    const ConstFloatRows from = attention.output_gate ? rows(Buffer::kQGate, attention.q_proj_rows()) : q;
    const int64_t step = attention.output_gate ? 2 * dim : dim;
    CHECK_GE(from.width, attention.n_heads * step);
    for_rows(q.num_rows, [&](int64_t r) {
        for (int64_t head = 0; head < attention.n_heads; ++head) {
            row_ops().rms_norm(from.row(r) + head * step, model_.q_norm(layer).data(), eps, dim, q.row(r) + head * dim);
        }
        for (int64_t head = 0; head < attention.n_kv_heads; ++head) {
            float* x = k.row(r) + head * dim;
            row_ops().rms_norm(x, model_.k_norm(layer).data(), eps, dim, x);
        }
    });
}

void CpuBackend::output_gate(int32_t, const reference::AttentionConfig& attention) {
    const int64_t dim = attention.head_dim;
    const ConstFloatRows gate = rows(Buffer::kQGate, attention.q_proj_rows());
    const FloatRows mixed = changing(Buffer::kMixed, attention.q_rows());
    for_rows(mixed.num_rows, [&](int64_t r) {
        for (int64_t head = 0; head < attention.n_heads; ++head) {
            row_ops().sigmoid_gate(gate.row(r) + (2 * head + 1) * dim, dim, mixed.row(r) + head * dim);
        }
    });
}

void CpuBackend::rope(int32_t layer, const reference::AttentionConfig& attention) {
    const int64_t max_position = *std::ranges::max_element(positions());
    const RotaryTable& table = model_.rotary_table(layer, max_position + 1);
    CHECK_LE(2 * table.n_pairs(), int64_t{attention.head_dim});
    const auto turn = [&](Buffer buffer, int64_t n_heads) {
        const FloatRows x = changing(buffer, n_heads * attention.head_dim);
        for_rows(x.num_rows, [&](int64_t r) {
            for (int64_t head = 0; head < n_heads; ++head) {
                row_ops().rope(table.cos(positions()[r]), table.sin(positions()[r]), table.n_pairs(),
                               x.row(r) + head * attention.head_dim);
            }
        });
    };
    turn(Buffer::kQ, attention.n_heads);
    turn(Buffer::kK, attention.n_kv_heads);
}

void CpuBackend::activation(int32_t, const reference::MlpConfig& mlp) {
    const FloatRows up = changing(Buffer::kUp, mlp.d_ff);
    if (mlp.kind == reference::MlpKind::kReluSquared) {
        for_rows(up.num_rows, [&](int64_t r) { row_ops().relu_squared(up.width, up.row(r)); });
        return;
    }
    const ConstFloatRows gate = rows(Buffer::kGate, mlp.d_ff);
    const auto multiplier = static_cast<float>(mlp.gate_multiplier);
    for_rows(up.num_rows, [&](int64_t r) { row_ops().swiglu(gate.row(r), multiplier, up.width, up.row(r)); });
}

void CpuBackend::add_branch(float branch_multiplier, float residual_multiplier) {
    const ConstFloatRows branch = rows(Buffer::kBranch, config().hidden_size);
    const FloatRows residual = changing(Buffer::kResidual, config().hidden_size);
    for_rows(residual.num_rows, [&](int64_t r) {
        row_ops().add_branch(branch.row(r), branch_multiplier, residual_multiplier, residual.width, residual.row(r));
    });
}

void CpuBackend::scale_logits(float multiplier, float divisor) {
    const FloatRows logits = changing(Buffer::kLogits, config().vocab_size);
    pool_.for_each(logits.num_rows,
                   [&](int64_t r) { row_ops().scale_logits(multiplier, divisor, logits.width, logits.row(r)); });
}

// --- matmul

// The rows in the form that a loop reads, rounded once for all matmuls that share them.
RoundedRows CpuBackend::round_rows(RowForm form, Buffer buffer, int64_t width, const reference::RowFactors& factors) {
    const ConstFloatRows x = rows(buffer, width);
    const int64_t pairs = num_pairs(width);
    const Rounded wanted{buffer, activations(buffer).version, factors, form};
    const std::optional<BandShape> shape = bands_of(form);
    const int64_t num_held = x.num_rows + (shape ? kMaxBandRows : 0);
    float* floats = holds_pairs(form) ? nullptr : rounded_floats_.ensure(num_held * row_floats(form, width));
    Pair* words = holds_pairs(form) ? rounded_pairs_.ensure(num_held * pairs) : nullptr;
    if (wanted != rounded_ && shape) round_to_bands(form, x, factors.multiplier, floats, words);
    if (wanted != rounded_ && !shape) {
        for_rows(x.num_rows, [&](int64_t r) { round_row(row_ops(), form, x, factors, r, floats, words); });
    }
    rounded_ = wanted;
    return rounded_in(form, floats, words, x.num_rows, pairs);
}

void CpuBackend::round_to_bands(RowForm form, ConstFloatRows x, float multiplier, float* floats, Pair* words) {
    int64_t* first_rows = band_rows_.ensure(x.num_rows);
    int64_t num_bands = 0;
    bands_of(form)->for_each_band(x.num_rows, [&](int64_t first, int64_t) { first_rows[num_bands++] = first; });
    const int64_t parts = (x.width + kBandColumns - 1) / kBandColumns;
    pool_.for_each(num_bands * parts, [&](int64_t part) {
        const int64_t first = part % parts * kBandColumns;
        round_band(row_ops(), form, x, multiplier, first_rows[part / parts], first,
                   std::min(kBandColumns, x.width - first), floats, words);
    });
}

void CpuBackend::matmul(MatrixId id, Buffer in, float in_multiplier, Buffer out) {
    const PackedMatrix& matrix = weights_.matrix(id);
    const reference::VectorView bias = linear_of(model_.weights(), id).bias;
    const MatmulLoop& loop = choice_.of_rows(num_rows(in));
    CHECK(bias.empty() || std::ssize(bias) == matrix.num_outputs(), "{} biases of {} outputs", bias.size(),
          matrix.num_outputs());
    const RoundedRows x =
        round_rows(row_form(loop, matrix, num_rows(in)), in, matrix.num_k(), row_factors(matrix, in_multiplier));
    const FloatRows y = fresh(out, matrix.num_outputs());
    const int64_t row_blocks = (x.num_rows + kMatmulRows - 1) / kMatmulRows;
    const int64_t group = neighbours(matrix.num_panels());
    const int64_t num_groups = (matrix.num_panels() + group - 1) / group;
    for (AlignedArray<Pair>& widened : widened_) widened.ensure(matrix.is_int8() ? matrix.panel_pairs() : 0);
    pool_.for_each(row_blocks * num_groups, [&](int64_t part) {
        Pair* widened = widened_[reference::WorkerPool::thread_index()].data();
        // Bands stay in the L2 cache while panels, each of which prefetches the next one, pass over them. Otherwise a
        // panel stays.
        const int64_t first_row = (loop.bands ? part / num_groups : part % row_blocks) * kMatmulRows;
        const int64_t count = std::min(kMatmulRows, x.num_rows - first_row);
        const int64_t first = (loop.bands ? part % num_groups : part / row_blocks) * group;
        for (int64_t panel = first; panel < std::min(first + group, matrix.num_panels()); ++panel) {
            multiply_panel(loop, matrix, bias.empty() ? nullptr : bias.data(), x.rows(first_row, count), panel, widened,
                           y.rows(first_row, count));
        }
    });
}

// --- attention

void CpuBackend::store_kv(int32_t layer, const reference::AttentionConfig& attention) {
    const ConstFloatRows k = rows(Buffer::kK, attention.kv_rows());
    const ConstFloatRows v = rows(Buffer::kV, attention.kv_rows());
    const int64_t heads = attention.n_kv_heads;
    for (size_t i = 0; i < sequences().size(); ++i) {
        const auto& rows = batch().sequences[i];
        CHECK_LE(rows.first_position + rows.num_rows, std::ssize(sequences()[i].blocks) * kv_.block_size());
    }
    pool_.for_each(static_cast<int64_t>(sequences().size()) * heads, [&](int64_t part) {
        const auto& rows = batch().sequences[part / heads];
        const int64_t column = part % heads * attention.head_dim;
        for (int32_t r = 0; r < rows.num_rows; ++r) {
            const int64_t position = rows.first_position + r;
            const BlockId block = sequences()[part / heads].blocks[position / kv_.block_size()];
            kv_.store(layer, block, static_cast<int32_t>(position % kv_.block_size()), part % heads,
                      k.row(rows.first_row + r) + column, v.row(rows.first_row + r) + column);
        }
    });
}

void CpuBackend::attention(int32_t layer, const reference::AttentionConfig& attention, float scale) {
    const ConstFloatRows q = rows(Buffer::kQ, attention.q_rows());
    const FloatRows out = fresh(Buffer::kMixed, attention.q_rows());
    const int64_t heads = attention.n_kv_heads;
    const PagedAttentionArgs of_layer{.layer = layer,
                                      .n_heads = attention.n_heads,
                                      .n_kv_heads = attention.n_kv_heads,
                                      .head_dim = attention.head_dim,
                                      .scale = scale,
                                      .kv = &kv_};
    for (AttentionScratch& scratch : attention_scratch_) scratch.reserve(of_layer, kAttentionRows);
    pool_.for_each(static_cast<int64_t>(attention_parts_.size()) * heads, [&](int64_t task) {
        PagedAttentionArgs args = of_layer;
        const AttentionPart& part = attention_parts_[task / heads];
        const auto& rows = batch().sequences[part.sequence];
        args.first_position = rows.first_position;
        args.blocks = sequences()[part.sequence].blocks;
        args.q = q.rows(rows.first_row, rows.num_rows);
        args.out = out.rows(rows.first_row, rows.num_rows);
        const int64_t end = std::min<int64_t>(part.first_row + kAttentionRows, rows.num_rows);
        paged_attention(ops_, args, task % heads, {part.first_row, end},
                        attention_scratch_[reference::WorkerPool::thread_index()]);
    });
}

void CpuBackend::check_logits() {
    CHECK_EQ(std::ssize(fault_layers_), batch().num_logit_rows());
    const auto num_layers = static_cast<int32_t>(config().layers.size());
    pool_.for_each(batch().num_logit_rows(), [&](int64_t i) {
        auto& fault = fault_layers_[i];
        if (!fault && !row_ops().is_finite(logits(i).data(), config().vocab_size)) fault = num_layers;
    });
}

}  // namespace verbatim::cpu
