#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"

namespace verbatim::cuda {

using reference::Buffer;
using reference::Columns;
using reference::HeadPart;
using reference::MatrixId;

namespace {

constexpr int64_t kPanelOutputs = 64;
constexpr int32_t kNoFault = std::numeric_limits<int32_t>::max();

DeviceArray<float> floats_of(Device& device, std::span<const float> values) {
    return values.empty() ? DeviceArray<float>() : DeviceArray<float>(device, values);
}

// DeviceMatrix's layout.
std::vector<uint32_t> pack(const reference::MatrixView& weight) {
    const int64_t num_pairs = (weight.cols + 1) / 2;
    const int64_t panels = (weight.rows + kPanelOutputs - 1) / kPanelOutputs;
    std::vector<uint32_t> packed(static_cast<size_t>(panels * num_pairs * kPanelOutputs));
    for (int64_t n = 0; n < weight.rows; ++n) {
        const auto row = weight.row(n);
        uint32_t* panel = packed.data() + n / kPanelOutputs * num_pairs * kPanelOutputs + n % kPanelOutputs;
        for (int64_t k = 0; k < weight.cols; ++k) {
            panel[k / 2 * kPanelOutputs] |= uint32_t{row[k]} << (k % 2 == 0 ? 0 : 16);
        }
    }
    return packed;
}

GateKind gate_kind(reference::MambaGate gate) {
    switch (gate) {
        case reference::MambaGate::kGateOnly: return GateKind::kGateOnly;
        case reference::MambaGate::kGateThenNorm: return GateKind::kGateThenNorm;
        case reference::MambaGate::kNormThenGate: return GateKind::kNormThenGate;
    }
    CHECK(false, "gate {}", static_cast<int>(gate));
}

MambaShape shape_of(const reference::MambaConfig& mamba) {
    return {mamba.n_heads,
            mamba.head_dim,
            mamba.d_state,
            mamba.n_groups,
            mamba.d_conv,
            static_cast<float>(mamba.dt_min),
            static_cast<float>(mamba.dt_max)};
}

Floats columns(Floats x, Columns part) { return {x.data + part.first, x.num_rows, part.count, x.stride}; }

}  // namespace

std::vector<std::string> unsupported(const reference::ModelConfig& config, const CudaLimits& limits) {
    std::vector<std::string> problems;
    const auto most = [&](size_t layer, const char* field, int64_t value, int64_t limit) {
        if (value <= limit) return;
        problems.push_back(
            fmt::format("layer {}: {} = {}, the CUDA kernels take up to {}", layer, field, value, limit));
    };
    for (size_t i = 0; i < config.layers.size(); ++i) {
        if (config.layers[i].attention) most(i, "head_dim", config.layers[i].attention->head_dim, limits.head_dim);
        if (!config.layers[i].mamba) continue;
        most(i, "d_state", config.layers[i].mamba->d_state, limits.d_state);
        most(i, "d_conv", config.layers[i].mamba->d_conv, limits.d_conv);
    }
    return problems;
}

// --- what stays on the device

CudaBackend::CudaBackend(const reference::ReferenceModel& model, Device& device, const CudaPools& pools)
    : model_(model),
      device_(device),
      pools_(pools),
      place_(model.config().layers.size() + 1),
      layers_(model.config().layers.size()),
      final_norm_(device, model.weights().final_norm) {
    CHECK(unsupported(config(), device.limits()).empty());
    const reference::MatrixView& table = model.weights().embedding;
    embedding_ = DeviceArray<uint16_t>(
        device, std::span<const uint16_t>(table.data, static_cast<size_t>(table.rows * table.cols)));
    pack_matrices();
    place_states();
    for (size_t i = 0; i < layers_.size(); ++i) upload_layer(static_cast<int32_t>(i));
}

void CudaBackend::pack_matrices() {
    const auto ids = reference::matrices_of(config());
    for (const MatrixId id : ids) {
        place_[id.layer][static_cast<size_t>(id.matrix)] = static_cast<int32_t>(matrices_.size());
        const reference::Linear linear = linear_of(model_.weights(), id);
        matrices_.push_back({DeviceArray<uint32_t>(device_, std::span<const uint32_t>(pack(linear.weight))),
                             floats_of(device_, linear.bias), linear.weight.rows, linear.weight.cols});
    }
}

void CudaBackend::upload_layer(int32_t i) {
    const reference::LayerWeights& weights = model_.weights().layers[i];
    Layer& layer = layers_[i];
    layer.mixer_norm = floats_of(device_, weights.mixer_norm);
    layer.mlp_norm = floats_of(device_, weights.mlp_norm);
    if (config().layers[i].mamba) {
        layer.gate_norm = floats_of(device_, weights.mamba.norm);
        layer.conv_weight = floats_of(device_, weights.mamba.conv_weight);
        layer.conv_bias = floats_of(device_, weights.mamba.conv_bias);
        layer.a = floats_of(device_, model_.decay_rates(i));
        layer.d = floats_of(device_, weights.mamba.d);
        layer.dt_bias = floats_of(device_, weights.mamba.dt_bias);
    }
    if (const auto& attention = config().layers[i].attention) {
        const int64_t slots = int64_t{pools_.num_blocks} * attention->n_kv_heads * pools_.block_size;
        layer.k_pages = DeviceArray<uint32_t>(device_, slots * ((attention->head_dim + 1) / 2));
        layer.v_pages = DeviceArray<uint16_t>(device_, slots * attention->head_dim);
    }
}

void CudaBackend::place_states() {
    for (const reference::StateTensor& tensor : reference::state_row(config())) {
        Layer& layer = layers_[tensor.layer];
        (tensor.name == "ssm" ? layer.ssm_offset : layer.conv_offset) = row_floats_;
        (tensor.name == "ssm" ? layer.ssm_size : layer.conv_size) = tensor.num_elements();
        row_floats_ += tensor.num_elements();
    }
    if (row_floats_ > 0) state_pool_ = DeviceArray<float>(device_, pools_.num_state_rows * row_floats_);
}

DevicePages CudaBackend::pages(int32_t layer, const reference::AttentionConfig& attention) const {
    return {layers_[layer].k_pages.data(),
            layers_[layer].v_pages.data(),
            pools_.num_blocks,
            pools_.block_size,
            attention.n_kv_heads,
            attention.head_dim};
}

DeviceStates CudaBackend::states(int32_t layer, HeadPart part) const {
    const bool ssm = part == HeadPart::kSsm;
    return {state_pool_.data() + (ssm ? layers_[layer].ssm_offset : layers_[layer].conv_offset), pools_.num_state_rows,
            row_floats_, ssm ? layers_[layer].ssm_size : layers_[layer].conv_size};
}

MambaParameters CudaBackend::parameters(int32_t i) const {
    const Layer& layer = layers_[i];
    return {layer.conv_weight.data(), layer.conv_bias.data(), layer.a.data(), layer.d.data(), layer.dt_bias.data()};
}

// --- a step

void CudaBackend::set_sequences(std::span<const CudaSequence> sequences, const reference::StepObserver* observer) {
    sequences_ = sequences;
    observer_ = observer;
}

void CudaBackend::begin(const reference::WalkBatch& batch) {
    CHECK_EQ(batch.sequences.size(), sequences_.size());
    batch_ = batch;
    rounded_from_.reset();
    std::vector<int32_t> positions(batch.tokens.size());
    std::vector<int32_t> row_sequences(batch.tokens.size());
    std::vector<int32_t> blocks;
    std::vector<DeviceSequence> sequences;
    std::vector<DeviceStateWrite> writes;
    step_ = {};
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const reference::WalkSequence& part = batch.sequences[i];
        sequences.push_back({part.first_row, part.num_rows, static_cast<int32_t>(part.first_position),
                             static_cast<int32_t>(blocks.size()), index(sequences_[i].state_src),
                             index(sequences_[i].state_dst), static_cast<int32_t>(writes.size()),
                             static_cast<int32_t>(sequences_[i].writes.size())});
        for (int32_t r = 0; r < part.num_rows; ++r) {
            positions[part.first_row + r] = static_cast<int32_t>(part.first_position) + r;
            row_sequences[part.first_row + r] = static_cast<int32_t>(i);
        }
        step_.max_position = std::max(step_.max_position, part.first_position + part.num_rows - 1);
        for (const BlockId block : sequences_[i].blocks) blocks.push_back(index(block));
        for (const StateWrite& write : sequences_[i].writes) {
            writes.push_back({static_cast<int32_t>(write.length), index(write.dst)});
        }
    }
    host_faults_.assign(sequences_.size(), kNoFault);
    const auto upload = [&](auto& array, auto values) {
        using T = typename decltype(values)::value_type;
        array.ensure(device_, static_cast<int64_t>(values.size()));
        array.upload(std::span<const std::remove_const_t<T>>(values));
        return array.data();
    };
    step_.tokens = upload(tokens_, batch.tokens);
    step_.positions = upload(positions_, std::span(positions));
    step_.row_sequences = upload(row_sequences_, std::span(row_sequences));
    step_.blocks = upload(blocks_, std::span(blocks));
    step_.sequences = upload(device_sequences_, std::span(sequences));
    step_.writes = upload(device_writes_, std::span(writes));
    step_.logit_rows = upload(logit_rows_, batch.logit_rows);
    step_.faults = upload(faults_, std::span(host_faults_));
    step_.num_rows = batch.num_rows();
    step_.num_sequences = static_cast<int64_t>(sequences.size());
    step_.num_blocks = static_cast<int64_t>(blocks.size());
    step_.num_writes = static_cast<int64_t>(writes.size());
    step_.num_logit_rows = batch.num_logit_rows();
}

void CudaBackend::copy_tails(std::span<const BlockCopy> copies) {
    if (copies.empty()) return;
    std::vector<DeviceCopy> list;
    for (const BlockCopy& copy : copies) list.push_back({index(copy.src), index(copy.dst), copy.num_slots});
    device_copies_.ensure(device_, static_cast<int64_t>(list.size()));
    device_copies_.upload(list);
    for (size_t i = 0; i < layers_.size(); ++i) {
        const auto layer = static_cast<int32_t>(i);
        if (const auto& attention = config().layers[i].attention) {
            device_.copy_tails(device_copies_.data(), static_cast<int64_t>(list.size()), pages(layer, *attention));
        }
    }
}

void CudaBackend::fetch_results() {
    faults_.download(0, host_faults_);
    host_logits_.resize(static_cast<size_t>(batch_.num_logit_rows() * config().vocab_size));
    buffers_[static_cast<size_t>(Buffer::kLogits)].floats.download(0, host_logits_);
}

std::span<const float> CudaBackend::logits(int64_t logit_row) const {
    const auto width = static_cast<size_t>(config().vocab_size);
    return std::span(host_logits_).subspan(static_cast<size_t>(logit_row) * width, width);
}

std::optional<int32_t> CudaBackend::fault_layer(int64_t sequence) const {
    const int32_t layer = host_faults_[sequence];
    return layer == kNoFault ? std::nullopt : std::optional(layer);
}

// --- reading what is kept

void CudaBackend::read_kv(int32_t layer, BlockId block, int32_t offset, std::span<uint16_t> k,
                          std::span<uint16_t> v) const {
    const reference::AttentionConfig& attention = *config().layers[layer].attention;
    const int64_t num_pairs = (attention.head_dim + 1) / 2;
    const int64_t bs = pools_.block_size;
    std::vector<uint32_t> page(static_cast<size_t>(num_pairs * bs));
    for (int64_t head = 0; head < attention.n_kv_heads; ++head) {
        const int64_t place = int64_t{index(block)} * attention.n_kv_heads + head;
        layers_[layer].k_pages.download(place * num_pairs * bs, page);
        for (int64_t i = 0; i < attention.head_dim; ++i) {
            k[head * attention.head_dim + i] =
                static_cast<uint16_t>(page[i / 2 * bs + offset] >> (i % 2 == 0 ? 0 : 16));
        }
        layers_[layer].v_pages.download(
            (place * bs + offset) * attention.head_dim,
            v.subspan(static_cast<size_t>(head * attention.head_dim), static_cast<size_t>(attention.head_dim)));
    }
}

void CudaBackend::read_state(int32_t layer, StateIndex row, HeadPart part, std::vector<float>& out) const {
    const DeviceStates tensor = states(layer, part);
    out.resize(static_cast<size_t>(tensor.size));
    state_pool_.download(tensor.data - state_pool_.data() + index(row) * row_floats_, out);
}

// --- buffers

int64_t CudaBackend::num_rows(Buffer buffer) const {
    return buffer == Buffer::kHead || buffer == Buffer::kLogits ? batch_.num_logit_rows() : batch_.num_rows();
}

Floats CudaBackend::fresh(Buffer buffer, int64_t width) {
    Activations& activations = buffers_[static_cast<size_t>(buffer)];
    activations.width = width;
    activations.floats.ensure(device_, num_rows(buffer) * width);
    if (rounded_from_ == buffer) rounded_from_.reset();
    return rows(buffer, width);
}

Floats CudaBackend::rows(Buffer buffer, int64_t width) const {
    const Activations& activations = buffers_[static_cast<size_t>(buffer)];
    CHECK_EQ(activations.width, width);
    return {activations.floats.data(), num_rows(buffer), width, width};
}

void CudaBackend::observe(const reference::WalkPoint& point) {
    if (observer_ == nullptr || !*observer_) return;
    const Activations& activations = buffers_[static_cast<size_t>(point.buffer)];
    std::vector<float> host(static_cast<size_t>(num_rows(point.buffer) * activations.width));
    activations.floats.download(0, host);
    const auto all = reference::dense_rows<const float>(host.data(), num_rows(point.buffer), activations.width)
                         .columns(point.columns.first, point.columns.count);
    const bool per_logit_row = point.buffer == Buffer::kHead || point.buffer == Buffer::kLogits;
    for (size_t i = 0; i < sequences_.size(); ++i) {
        const reference::WalkSequence& part = batch_.sequences[i];
        if (!per_logit_row) {
            (*observer_)({sequences_[i].slot, part.first_position, point, all.rows(part.first_row, part.num_rows)});
            continue;
        }
        for (int64_t k = 0; k < batch_.num_logit_rows(); ++k) {
            const int64_t row = batch_.logit_rows[k] - part.first_row;
            if (row < 0 || row >= part.num_rows) continue;
            (*observer_)({sequences_[i].slot, part.first_position + row, point, all.rows(k, 1)});
        }
    }
}

// --- operations

void CudaBackend::embed(float multiplier) {
    device_.embed(step_, embedding_.data(), config().vocab_size, multiplier,
                  fresh(Buffer::kResidual, config().hidden_size));
}

void CudaBackend::norm(int32_t layer, reference::Norm norm, float eps) {
    const bool final = norm == reference::Norm::kFinal;
    const DeviceArray<float>& weight = final                             ? final_norm_
                                       : norm == reference::Norm::kMixer ? layers_[layer].mixer_norm
                                                                         : layers_[layer].mlp_norm;
    const Floats out = fresh(final ? Buffer::kHead : Buffer::kNormed, config().hidden_size);
    device_.rms_norm(rows(Buffer::kResidual, config().hidden_size), final ? step_.logit_rows : nullptr, weight.data(),
                     eps, out);
}

// Inputs of several matmuls are rounded once.
const uint32_t* CudaBackend::rounded(Buffer in, int64_t width, float multiplier) {
    const Floats x = rows(in, width);
    uint32_t* pairs = rounded_.ensure(device_, x.num_rows * ((width + 1) / 2));
    if (rounded_from_ != in || rounded_multiplier_ != multiplier) device_.round_rows(x, multiplier, pairs);
    rounded_from_ = in;
    rounded_multiplier_ = multiplier;
    return pairs;
}

void CudaBackend::matmul(MatrixId id, Buffer in, float in_multiplier, Buffer out) {
    const Matrix& matrix = matrices_[place_[id.layer][static_cast<size_t>(id.matrix)]];
    const uint32_t* pairs = rounded(in, matrix.num_k, in_multiplier);
    device_.matmul(pairs, {matrix.pairs.data(), matrix.bias.data(), matrix.num_outputs, matrix.num_k},
                   fresh(out, matrix.num_outputs));
}

void CudaBackend::scale(Buffer buffer, Columns part, float multiplier) {
    if (rounded_from_ == buffer) rounded_from_.reset();
    device_.scale(columns(rows(buffer, buffers_[static_cast<size_t>(buffer)].width), part), multiplier);
}

void CudaBackend::conv(int32_t layer, const reference::MambaConfig& mamba) {
    const Columns part = reference::projected_columns(mamba).conv;
    device_.conv(step_, shape_of(mamba), parameters(layer), columns(rows(Buffer::kProjected, mamba.in_rows()), part),
                 states(layer, HeadPart::kConv), fresh(Buffer::kConv, mamba.conv_dim()));
}

void CudaBackend::scan(int32_t layer, const reference::MambaConfig& mamba) {
    const Columns dt = reference::projected_columns(mamba).dt;
    const int64_t num_steps = batch_.num_rows() * mamba.n_heads;
    device_.scan(step_, shape_of(mamba), parameters(layer), rows(Buffer::kConv, mamba.conv_dim()),
                 columns(rows(Buffer::kProjected, mamba.in_rows()), dt), dt_.ensure(device_, num_steps),
                 decay_.ensure(device_, num_steps), states(layer, HeadPart::kSsm),
                 fresh(Buffer::kMixed, mamba.d_inner()));
}

void CudaBackend::check_state(int32_t layer) {
    device_.check_state(step_, layer, states(layer, HeadPart::kSsm));
    device_.check_state(step_, layer, states(layer, HeadPart::kConv));
}

void CudaBackend::gated_norm(int32_t layer, const reference::MambaConfig& mamba, float eps) {
    const Columns z = reference::projected_columns(mamba).z;
    if (rounded_from_ == Buffer::kMixed) rounded_from_.reset();
    device_.gated_norm(gate_kind(mamba.gate), mamba.n_norm_groups,
                       columns(rows(Buffer::kProjected, mamba.in_rows()), z), layers_[layer].gate_norm.data(), eps,
                       rows(Buffer::kMixed, mamba.d_inner()));
}

void CudaBackend::rope(int32_t i, const reference::AttentionConfig& attention) {
    Layer& layer = layers_[i];
    const reference::RopeTable& table = model_.rope_table(i, step_.max_position + 1);
    if (layer.num_angles <= step_.max_position) {
        layer.num_angles = table.num_positions();
        const auto count = static_cast<size_t>(layer.num_angles * table.n_pairs());
        layer.cos = DeviceArray<float>(device_, std::span<const float>(table.cos(0), count));
        layer.sin = DeviceArray<float>(device_, std::span<const float>(table.sin(0), count));
    }
    const auto turn = [&](Buffer buffer, int64_t n_heads) {
        device_.rope(step_, n_heads, attention.head_dim, layer.cos.data(), layer.sin.data(), layer.num_angles,
                     table.n_pairs(), rows(buffer, n_heads * attention.head_dim));
    };
    turn(Buffer::kQ, attention.n_heads);
    turn(Buffer::kK, attention.n_kv_heads);
}

void CudaBackend::store_kv(int32_t layer, const reference::AttentionConfig& attention) {
    device_.store_kv(step_, rows(Buffer::kK, attention.kv_rows()), rows(Buffer::kV, attention.kv_rows()),
                     pages(layer, attention));
}

void CudaBackend::attention(int32_t layer, const reference::AttentionConfig& attention, float scale) {
    const AttentionShape shape{attention.n_heads, attention.n_kv_heads, attention.head_dim, scale};
    float* workspace = workspace_.ensure(device_, attention_floats(batch_.num_rows(), shape, step_.max_position));
    device_.attention(step_, shape, rows(Buffer::kQ, attention.q_rows()), pages(layer, attention), workspace,
                      fresh(Buffer::kMixed, attention.q_rows()));
}

void CudaBackend::activation(int32_t, const reference::MlpConfig& mlp) {
    if (rounded_from_ == Buffer::kUp) rounded_from_.reset();
    const Floats up = rows(Buffer::kUp, mlp.d_ff);
    if (mlp.kind == reference::MlpKind::kReluSquared) return device_.relu_squared(up);
    device_.swiglu(rows(Buffer::kGate, mlp.d_ff), static_cast<float>(mlp.gate_multiplier), up);
}

void CudaBackend::add_branch(float branch_multiplier, float residual_multiplier) {
    device_.add_branch(rows(Buffer::kBranch, config().hidden_size), branch_multiplier, residual_multiplier,
                       rows(Buffer::kResidual, config().hidden_size));
}

void CudaBackend::scale_logits(float multiplier, float divisor) {
    device_.scale_logits(rows(Buffer::kLogits, config().vocab_size), multiplier, divisor);
}

void CudaBackend::check_logits() {
    device_.check_logits(step_, static_cast<int32_t>(config().layers.size()),
                         rows(Buffer::kLogits, config().vocab_size));
}

}  // namespace verbatim::cuda
