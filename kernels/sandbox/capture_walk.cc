#include "kernels/sandbox/capture_walk.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "kernels/sandbox/kernel.h"
#include "reference/ops/rope.h"
#include "reference/ops/ssm_scan.h"

namespace verbatim::sandbox {

using reference::AttentionConfig;
using reference::Buffer;
using reference::Columns;
using reference::DeltaConfig;
using reference::MambaConfig;
using reference::MoeConfig;

namespace {

bool is_of_head(Buffer buffer) { return buffer == Buffer::kHead || buffer == Buffer::kLogits; }

// What the sandbox calls the operation where that differs from the walk's name.
std::string_view sandbox_name(reference::WalkOp op) {
    using reference::WalkOp;
    switch (op) {
        case WalkOp::kNorm:
        case WalkOp::kFinalNorm: return "rms_norm";
        case WalkOp::kRoute: return "router";
        default: return walk_op_name(op);
    }
}

std::vector<int64_t> ones(int64_t count) { return std::vector<int64_t>(static_cast<size_t>(count), 1); }

}  // namespace

CaptureWalk::CaptureWalk(const reference::Model& model, std::string_view operation, const CapturingExecutor::Step& step,
                         const SlotTables& tables, ReadKv read_kv, CallSample& sample)
    : model_(model),
      operation_(operation),
      step_(step),
      tables_(tables),
      read_kv_(std::move(read_kv)),
      sample_(sample),
      next_(step.sequences.size()) {
    for (const ScheduledSequence* sequence : step.sequences) {
        const auto first_row = static_cast<int32_t>(positions_.size());
        sequences_.push_back({first_row, sequence->num_new_tokens, sequence->num_computed_tokens});
        item_rows_.push_back(sequence->num_new_tokens);
        for (int64_t i = 0; i < sequence->num_new_tokens; ++i) positions_.push_back(sequence->num_computed_tokens + i);
        for (int32_t row = sequence->num_logit_positions(); row > 0; --row) {
            logit_rows_.push_back(static_cast<int32_t>(positions_.size()) - row);
        }
    }
}

void CaptureWalk::run() {
    for (const reference::OpCall& call : reference::forward_pass(model_.config)) {
        if (call.is_of_head(model_.config) && logit_rows_.empty()) break;
        capture(call);
        for (const reference::WalkPoint& point : call.written()) observe(point);
    }
    for (size_t i = 0; i < next_.size(); ++i) CHECK(next_[i] == step_.written[i].size(), "sequence {} saw more", i);
}

void CaptureWalk::capture(const reference::OpCall& call) {
    using reference::WalkOp;
    if (sandbox_name(call.op) != operation_) return;
    switch (call.op) {
        case WalkOp::kNorm:
        case WalkOp::kFinalNorm: return norm(call);
        case WalkOp::kMatmul: return matmul(call);
        case WalkOp::kConv: return conv(call.layer);
        case WalkOp::kScan: return scan(call.layer);
        case WalkOp::kGatedNorm:
            return layer_config(call.layer).delta ? delta_norm(call.layer) : gated_norm(call.layer);
        case WalkOp::kRope: return rope(call.layer);
        case WalkOp::kAttention: return attention(call);
        case WalkOp::kActivation: return activation(call.layer);
        case WalkOp::kRoute: return route(call.layer);
        case WalkOp::kChoose: return choose(call.layer);
        case WalkOp::kExperts: return experts(call);
        case WalkOp::kAddRouted: return add_routed(call.layer);
        case WalkOp::kDeltaGates: return delta_gates(call.layer);
        case WalkOp::kL2Norm: return l2_norm(call.layer);
        case WalkOp::kDeltaUpdate: return delta_update(call.layer);
        default: CHECK(false, "no way to capture {}", operation_);
    }
}

int64_t CaptureWalk::num_rows(Buffer buffer) const {
    return is_of_head(buffer) ? std::ssize(logit_rows_) : std::ssize(positions_);
}

// The executor's rows of what the walk is at, put together from its sequences.
void CaptureWalk::observe(const reference::WalkPoint& point) {
    if (!step_.is_observed) return;
    Rows& rows = buffers_[static_cast<size_t>(point.buffer)];
    const bool is_whole = point.columns.first == 0 && point.columns.count >= rows.width;
    if (is_whole) {
        rows.width = point.columns.count;
        rows.values.assign(static_cast<size_t>(num_rows(point.buffer) * rows.width), 0.0F);
    }
    int64_t row = 0;
    for (size_t i = 0; i < step_.sequences.size(); ++i) {
        if (is_of_head(point.buffer) && step_.sequences[i]->num_logit_positions() == 0) continue;
        const auto& written = step_.written[i];
        CHECK(next_[i] < written.size() && written[next_[i]].point == point, "sequence {} has not seen {}", i,
              to_string(point));
        const auto& seen = written[next_[i]++];
        for (int64_t r = 0; r < seen.num_rows; ++r, ++row) {
            std::copy_n(seen.values.begin() + r * point.columns.count, point.columns.count,
                        rows.values.begin() + row * rows.width + point.columns.first);
        }
    }
}

void CaptureWalk::put(Captured& captured, const char* tensor, const Part& part) const {
    const Rows& rows = buffers_[static_cast<size_t>(part.buffer)];
    const int64_t count = num_rows(part.buffer);
    if (rows.width == 0 || count * part.columns.count * 4 > static_cast<int64_t>(kMostTensorBytes)) return;
    std::vector<float> values;
    for (int64_t r = 0; r < count; ++r) {
        const auto first = rows.values.begin() + r * rows.width + part.columns.first;
        values.insert(values.end(), first, first + part.columns.count);
    }
    put_values<float>(captured, tensor, values);
}

void CaptureWalk::norm(const reference::OpCall& call) {
    const int32_t layer = call.layer;
    const auto eps = static_cast<float>(model_.config.norm_eps);
    const bool final = call.norm == reference::Norm::kFinal;
    const int64_t width = model_.config.hidden_size;
    const int64_t count = final ? std::ssize(logit_rows_) : std::ssize(positions_);
    sample_.add(step_.number, layer, {{count, width}, ones(count), {}}, [&] {
        Captured captured{ones(count), {eps}, {}};
        const Rows& residual = buffers_[static_cast<size_t>(Buffer::kResidual)];
        if (!final) put(captured, "x", {Buffer::kResidual, {0, width}});
        if (final && residual.width == width) {
            std::vector<float> values;
            for (const int32_t row : logit_rows_) {
                const auto first = residual.values.begin() + row * width;
                values.insert(values.end(), first, first + width);
            }
            put_values<float>(captured, "x", values);
        }
        const reference::VectorView stored = norm_of(model_.weights, layer, call.norm);
        std::vector<float> weight(stored.begin(), stored.end());
        for (float& w : weight) w = model_.config.norm_plus_one ? 1.0F + w : w;
        put_values<float>(captured, "weight", weight);
        return captured;
    });
}

void CaptureWalk::matmul(const reference::OpCall& call) {
    const reference::Linear linear = linear_of(model_.weights, call.matrix_id());
    const auto& [weight, bias] = linear;
    const int64_t count = num_rows(call.in);
    const Sizes sizes{count, weight.rows, weight.cols, bias.empty() ? 0 : 1};
    sample_.add(step_.number, call.layer, {sizes, ones(count), {}}, [&] {
        Captured captured{ones(count), {call.multiplier}, {}};
        put(captured, "x", {call.in, call.columns});
        put_values<uint16_t>(captured, "weight", {weight.data, static_cast<size_t>(weight.rows * weight.cols)});
        put_values<float>(captured, "bias", bias);
        return captured;
    });
}

// Of all sequences; without a row: zeros.
void CaptureWalk::put_states(Captured& captured, const char* tensor, int32_t layer, int64_t floats) const {
    if (!step_.states_known) return;
    std::vector<float> values;
    for (const auto& states : step_.states) {
        const auto found = states.find(layer);
        if (found == states.end()) {
            values.resize(values.size() + static_cast<size_t>(floats));
        } else {
            values.insert(values.end(), found->second.begin(), found->second.end());
        }
    }
    put_values<float>(captured, tensor, values);
}

void CaptureWalk::add_conv(int32_t layer, const Part& in, int64_t d_conv, reference::VectorView weight,
                           reference::VectorView bias) {
    const int64_t width = in.columns.count;
    const Sizes sizes{
        std::ssize(item_rows_), *std::ranges::max_element(item_rows_), width, d_conv, bias.empty() ? 0 : 1, 1};
    sample_.add(step_.number, layer, {sizes, item_rows_, {}}, [&] {
        Captured captured{item_rows_, {}, {}};
        put(captured, "x", in);
        put_values<float>(captured, "weight", weight);
        put_values<float>(captured, "bias", bias);
        put_states(captured, "windows_in", layer, (d_conv - 1) * width);
        return captured;
    });
}

void CaptureWalk::conv(int32_t layer) {
    const reference::LayerConfig& config = layer_config(layer);
    if (config.delta) {
        return add_conv(layer, {Buffer::kProjected, {0, config.delta->conv_dim()}}, config.delta->d_conv,
                        model_.weights.layers[layer].delta.conv_weight, {});
    }
    const reference::MambaWeights& weights = model_.weights.layers[layer].mamba;
    add_conv(layer, {Buffer::kProjected, reference::projected_columns(*config.mamba).conv}, config.mamba->d_conv,
             weights.conv_weight, weights.conv_bias);
}

void CaptureWalk::scan(int32_t layer) {
    const MambaConfig& mamba = *layer_config(layer).mamba;
    const Sizes sizes{std::ssize(item_rows_),
                      *std::ranges::max_element(item_rows_),
                      mamba.n_groups,
                      mamba.n_heads / mamba.n_groups,
                      mamba.head_dim,
                      mamba.d_state,
                      1};
    sample_.add(step_.number, layer, {sizes, item_rows_, {}}, [&] {
        const reference::MambaWeights& weights = model_.weights.layers[layer].mamba;
        Captured captured{item_rows_, {static_cast<float>(mamba.dt_min), static_cast<float>(mamba.dt_max)}, {}};
        const int64_t b = mamba.d_inner();
        put(captured, "x", {Buffer::kConv, {0, b}});
        put(captured, "b", {Buffer::kConv, {b, mamba.bc_rows()}});
        put(captured, "c", {Buffer::kConv, {b + mamba.bc_rows(), mamba.bc_rows()}});
        put(captured, "dt", {Buffer::kProjected, reference::projected_columns(mamba).dt});
        std::vector<float> rates(weights.a_log.size());
        reference::decay_rates(weights.a_log, rates);
        put_values<float>(captured, "a", rates);
        put_values<float>(captured, "d", weights.d);
        put_values<float>(captured, "dt_bias", weights.dt_bias);
        put_states(captured, "states_in", layer, int64_t{mamba.n_heads} * mamba.d_state * mamba.head_dim);
        return captured;
    });
}

void CaptureWalk::delta_gates(int32_t layer) {
    const DeltaConfig& delta = *layer_config(layer).delta;
    const int64_t count = std::ssize(positions_);
    sample_.add(step_.number, layer, {{count, delta.n_value_heads}, ones(count), {}}, [&] {
        const reference::DeltaWeights& weights = model_.weights.layers[layer].delta;
        Captured captured{ones(count), {}, {}};
        std::vector<float> rates(weights.a_log.size());
        reference::decay_rates(weights.a_log, rates);
        put_values<float>(captured, "rate", rates);
        put_values<float>(captured, "dt_bias", weights.dt_bias);
        put(captured, "b", {Buffer::kB, {0, delta.n_value_heads}});
        put(captured, "a", {Buffer::kA, {0, delta.n_value_heads}});
        return captured;
    });
}

void CaptureWalk::route(int32_t layer) {
    const MoeConfig& moe = *layer_config(layer).moe;
    const int64_t count = std::ssize(positions_);
    const int64_t width = model_.config.hidden_size;
    sample_.add(step_.number, layer, {{count, moe.n_experts, width}, ones(count), {}}, [&] {
        Captured captured{ones(count), {}, {}};
        put(captured, "x", {Buffer::kNormed, {0, width}});
        put_values<float>(captured, "weight", model_.weights.layers[layer].moe.router);
        return captured;
    });
}

void CaptureWalk::choose(int32_t layer) {
    const MoeConfig& moe = *layer_config(layer).moe;
    const int64_t count = std::ssize(positions_);
    const Sizes sizes{count,
                      static_cast<int64_t>(moe.router),
                      moe.n_groups,
                      moe.n_chosen_groups,
                      moe.n_experts / moe.n_groups,
                      moe.n_chosen,
                      moe.normalize ? 1 : 0};
    sample_.add(step_.number, layer, {sizes, ones(count), {}}, [&] {
        Captured captured{ones(count), {static_cast<float>(moe.sum_epsilon), static_cast<float>(moe.scale)}, {}};
        put(captured, "logits", {Buffer::kRouter, {0, moe.n_experts}});
        put_values<float>(captured, "choice_bias", model_.weights.layers[layer].moe.choice_bias);
        return captured;
    });
}

// The experts' matrices one behind the other.
void CaptureWalk::experts(const reference::OpCall& call) {
    const int32_t layer = call.layer;
    const MoeConfig& moe = *layer_config(layer).moe;
    const int64_t count = std::ssize(positions_);
    const int64_t width = moe.row_width(model_.config.hidden_size);
    const bool swiglu = moe.kind == reference::MlpKind::kGatedSilu;
    const Sizes sizes{count, moe.n_experts, moe.n_chosen,
                      width, moe.d_ff,      swiglu ? VERBATIM_SWIGLU : VERBATIM_RELU_SQUARED};
    sample_.add(step_.number, layer, {sizes, ones(count), {}}, [&] {
        Captured captured{ones(count), {}, {}};
        put(captured, "x", {call.in, call.columns});
        put(captured, "chosen", {Buffer::kChosen, {0, 2 * int64_t{moe.n_chosen}}});
        const auto put_matrices = [&](const char* tensor, reference::MatrixView reference::MlpWeights::*matrix) {
            const int64_t bytes = moe.n_experts * width * moe.d_ff * static_cast<int64_t>(sizeof(uint16_t));
            if (bytes > static_cast<int64_t>(kMostTensorBytes)) return;
            std::vector<uint16_t> all;
            for (const reference::MlpWeights& expert : model_.weights.layers[layer].moe.experts) {
                all.insert(all.end(), (expert.*matrix).data, (expert.*matrix).data + width * moe.d_ff);
            }
            put_values<uint16_t>(captured, tensor, all);
        };
        if (swiglu) put_matrices("gate", &reference::MlpWeights::gate);
        put_matrices("up", &reference::MlpWeights::up);
        put_matrices("down", &reference::MlpWeights::down);
        return captured;
    });
}

void CaptureWalk::add_routed(int32_t layer) {
    const bool gated = layer_config(layer).moe->shared_gate;
    const int64_t count = std::ssize(positions_);
    const int64_t width = model_.config.hidden_size;
    sample_.add(step_.number, layer, {{count, width, gated ? 1 : 0}, ones(count), {}}, [&] {
        Captured captured{ones(count), {}, {}};
        put(captured, "routed", {Buffer::kRouted, {0, width}});
        if (gated) put(captured, "gate", {Buffer::kSharedGate, {0, 1}});
        put(captured, "branch", {Buffer::kBranch, {0, width}});
        return captured;
    });
}

// A call for the queries, one for the keys.
void CaptureWalk::l2_norm(int32_t layer) {
    const DeltaConfig& delta = *layer_config(layer).delta;
    const int64_t count = std::ssize(positions_);
    const reference::DeltaColumns columns = delta_columns(delta);
    for (const auto& [part, scale] : {std::pair(columns.q, delta.q_scale()), {columns.k, 1.0}}) {
        sample_.add(step_.number, layer, {{count, delta.n_key_heads, delta.key_dim}, ones(count), {}}, [&] {
            Captured captured{ones(count), {static_cast<float>(scale)}, {}};
            put(captured, "x", {Buffer::kConv, part});
            return captured;
        });
    }
}

void CaptureWalk::delta_update(int32_t layer) {
    const DeltaConfig& delta = *layer_config(layer).delta;
    const Sizes sizes{std::ssize(item_rows_),
                      *std::ranges::max_element(item_rows_),
                      delta.n_key_heads,
                      delta.values_per_key(),
                      delta.key_dim,
                      delta.value_dim,
                      1};
    sample_.add(step_.number, layer, {sizes, item_rows_, {}}, [&] {
        Captured captured{item_rows_, {}, {}};
        const reference::DeltaColumns columns = delta_columns(delta);
        put(captured, "q", {Buffer::kConv, columns.q});
        put(captured, "k", {Buffer::kConv, columns.k});
        put(captured, "v", {Buffer::kConv, columns.v});
        put(captured, "beta", {Buffer::kB, {0, delta.n_value_heads}});
        put(captured, "decay", {Buffer::kA, {0, delta.n_value_heads}});
        put_states(captured, "states_in", layer, delta.state_elements());
        return captured;
    });
}

// Its weight is one head's; the sandbox's has a place for each.
void CaptureWalk::delta_norm(int32_t layer) {
    const DeltaConfig& delta = *layer_config(layer).delta;
    const auto eps = static_cast<float>(model_.config.norm_eps);
    const int64_t count = std::ssize(positions_);
    const Sizes sizes{count, delta.n_value_heads, delta.value_dim, VERBATIM_NORM_THEN_GATE};
    sample_.add(step_.number, layer, {sizes, ones(count), {}}, [&] {
        Captured captured{ones(count), {eps}, {}};
        put(captured, "z", {Buffer::kZ, {0, delta.value_rows()}});
        const reference::VectorView norm = model_.weights.layers[layer].delta.norm;
        std::vector<float> weight;
        for (int32_t head = 0; head < delta.n_value_heads; ++head)
            weight.insert(weight.end(), norm.begin(), norm.end());
        put_values<float>(captured, "weight", weight);
        put(captured, "y", {Buffer::kMixed, {0, delta.value_rows()}});
        return captured;
    });
}

void CaptureWalk::gated_norm(int32_t layer) {
    const MambaConfig& mamba = *layer_config(layer).mamba;
    const auto eps = static_cast<float>(model_.config.norm_eps);
    const int64_t count = std::ssize(positions_);
    const Sizes sizes{count, mamba.n_norm_groups, mamba.d_inner() / mamba.n_norm_groups,
                      static_cast<int64_t>(mamba.gate)};
    sample_.add(step_.number, layer, {sizes, ones(count), {}}, [&] {
        Captured captured{ones(count), {eps}, {}};
        put(captured, "z", {Buffer::kProjected, reference::projected_columns(mamba).z});
        if (mamba.gate != reference::MambaGate::kGateOnly) {
            put_values<float>(captured, "weight", model_.weights.layers[layer].mamba.norm);
        }
        put(captured, "y", {Buffer::kMixed, {0, mamba.d_inner()}});
        return captured;
    });
}

// The table has the rows of the positions that occur, in ascending order: a call of a long context stays small.
void CaptureWalk::rope_of(int32_t layer, const AttentionConfig& attention, Buffer buffer, int64_t n_heads) {
    const int64_t count = std::ssize(positions_);
    std::map<int64_t, int64_t> places;
    for (const int64_t position : positions_) places[position] = 0;
    int64_t next = 0;
    for (auto& [position, place] : places) place = next++;
    const int64_t pairs = attention.rope.n_rotary_dims / 2;
    const Sizes sizes{count, n_heads, pairs, attention.head_dim - 2 * pairs, next};
    sample_.add(step_.number, layer, {sizes, ones(count), {}}, [&] {
        Captured captured{ones(count), {}, {}};
        std::vector<int64_t> places_of_rows;
        for (const int64_t position : positions_) places_of_rows.push_back(places.at(position));
        put_values<int64_t>(captured, "positions", places_of_rows, /*is_place=*/true);
        const reference::RopeTable table(attention.rope, places.rbegin()->first + 1);
        std::vector<float> cos, sin;
        for (const auto& [position, place] : places) {
            cos.insert(cos.end(), table.cos(position), table.cos(position) + pairs);
            sin.insert(sin.end(), table.sin(position), table.sin(position) + pairs);
        }
        put_values<float>(captured, "cos", cos);
        put_values<float>(captured, "sin", sin);
        put(captured, "x", {buffer, {0, n_heads * attention.head_dim}});
        return captured;
    });
}

void CaptureWalk::rope(int32_t layer) {
    const AttentionConfig& attention = *layer_config(layer).attention;
    rope_of(layer, attention, Buffer::kQ, attention.n_heads);
    rope_of(layer, attention, Buffer::kK, attention.n_kv_heads);
}

// Blocks by number in the order in which tables name them: blocks that sequences share stay shared.
void CaptureWalk::put_pages(Captured& captured, const AttentionConfig& attention, int32_t layer,
                            const Sizes& sizes) const {
    const int64_t block_size = sizes[6];
    const int64_t max_blocks = (sizes[1] + sizes[2] + block_size - 1) / block_size;
    const int64_t slot = attention.kv_rows();
    std::map<BlockId, int32_t> numbers;
    std::vector<int32_t> tables;
    std::vector<uint16_t> k(static_cast<size_t>((sizes[0] * max_blocks + 1) * block_size * slot));
    std::vector<uint16_t> v(k.size());
    bool known = k.size() * 2 <= kMostTensorBytes;
    for (size_t s = 0; s < sequences_.size(); ++s) {
        const int64_t length = sequences_[s].first_position + sequences_[s].num_rows;
        const std::vector<BlockId>& blocks = tables_.at(step_.sequences[s]->slot).blocks;
        for (int64_t i = 0; i < max_blocks; ++i) {
            const bool used = i * block_size < length;
            if (used) numbers.try_emplace(blocks[i], static_cast<int32_t>(numbers.size()));
            tables.push_back(used ? numbers.at(blocks[i]) : -1);
        }
        const auto kv = known ? read_kv_(s, layer) : std::nullopt;
        known = known && kv.has_value();
        for (int64_t i = 0; known && i < length; ++i) {
            const int64_t at = numbers.at(blocks[i / block_size]) * block_size + i % block_size;
            std::memcpy(&k[at * slot], &kv->k[i * slot * 2], static_cast<size_t>(slot) * 2);
            std::memcpy(&v[at * slot], &kv->v[i * slot * 2], static_cast<size_t>(slot) * 2);
        }
    }
    put_values<int32_t>(captured, "block_tables", tables, /*is_place=*/true);
    if (!known) return;
    put_values<uint16_t>(captured, "k", k);
    put_values<uint16_t>(captured, "v", v);
}

void CaptureWalk::attention(const reference::OpCall& call) {
    const int32_t layer = call.layer;
    const AttentionConfig& attention = *layer_config(layer).attention;
    std::vector<int64_t> first_positions;
    for (const reference::WalkSequence& sequence : sequences_) first_positions.push_back(sequence.first_position);
    const Sizes sizes{std::ssize(item_rows_),
                      *std::ranges::max_element(item_rows_),
                      *std::ranges::max_element(first_positions),
                      attention.n_kv_heads,
                      attention.n_heads / attention.n_kv_heads,
                      attention.head_dim,
                      tables_.config().pools.block_size};
    sample_.add(step_.number, layer, {sizes, item_rows_, first_positions}, [&] {
        Captured captured{item_rows_, {call.multiplier}, {}};
        put_values<int64_t>(captured, "first_position", first_positions, /*is_place=*/true);
        put_pages(captured, attention, layer, sizes);
        put(captured, "q", {Buffer::kQ, {0, attention.q_rows()}});
        return captured;
    });
}

void CaptureWalk::activation(int32_t layer) {
    const reference::MlpConfig& mlp = *layer_config(layer).mlp;
    const int64_t count = std::ssize(positions_);
    const bool swiglu = mlp.kind == reference::MlpKind::kGatedSilu;
    const Sizes sizes{count, mlp.d_ff, swiglu ? VERBATIM_SWIGLU : VERBATIM_RELU_SQUARED};
    sample_.add(step_.number, layer, {sizes, ones(count), {}}, [&] {
        Captured captured{ones(count), {static_cast<float>(mlp.gate_multiplier)}, {}};
        if (swiglu) put(captured, "gate", {Buffer::kGate, {0, mlp.d_ff}});
        put(captured, "up", {Buffer::kUp, {0, mlp.d_ff}});
        return captured;
    });
}

}  // namespace verbatim::sandbox
