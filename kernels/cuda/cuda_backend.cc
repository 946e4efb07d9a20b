#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cuda/fragments.h"

namespace verbatim::cuda {

using reference::Buffer;
using reference::Columns;
using reference::HeadPart;
using reference::MatrixId;

namespace {

constexpr int32_t kNoFault = std::numeric_limits<int32_t>::max();

DeviceArray<float> floats_of(Device& device, std::span<const float> values) {
    return values.empty() ? DeviceArray<float>() : DeviceArray<float>(device, values);
}

// For Device::matmul.
std::vector<uint32_t> pack_pairs(const reference::MatrixView& weight) {
    std::vector<uint32_t> pairs(static_cast<size_t>(cpu::PackedMatrix::num_pairs_of(weight.rows, weight.cols)));
    const cpu::PackedMatrix packed(weight.rows, weight.cols, pairs.data());
    for (int64_t i = 0; i < packed.num_panels(); ++i) {
        cpu::pack_panel(weight, i, pairs.data() + i * packed.panel_pairs());
    }
    return pairs;
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

CudaBackend::CudaBackend(const reference::ReferenceModel& model, Device& device, const PoolSizes& pools,
                         reference::Profile profile)
    : model_(model),
      device_(device),
      pools_(pools),
      profile_(profile),
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
        const std::vector<uint32_t> words =
            on_tensor_cores() ? pack_fragments(linear.weight) : pack_pairs(linear.weight);
        matrices_.push_back({DeviceArray<uint32_t>(device_, std::span<const uint32_t>(words)),
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

void CudaBackend::begin(const reference::WalkBatch& batch) {
    PooledBackend::begin(batch);
    rounded_from_.reset();
    const std::vector<int32_t> positions(this->positions().begin(), this->positions().end());
    const std::vector<int32_t> row_sequences(sequence_of_row().begin(), sequence_of_row().end());
    std::vector<int32_t> blocks;
    std::vector<DeviceSequence> parts;
    std::vector<DeviceStateWrite> writes;
    step_ = {};
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const reference::WalkSequence& part = batch.sequences[i];
        parts.push_back({part.first_row, part.num_rows, static_cast<int32_t>(part.first_position),
                         static_cast<int32_t>(blocks.size()), index(sequences()[i].state_src),
                         index(sequences()[i].state_dst), static_cast<int32_t>(writes.size()),
                         static_cast<int32_t>(sequences()[i].writes.size())});
        step_.max_position = std::max(step_.max_position, part.first_position + part.num_rows - 1);
        for (const BlockId block : sequences()[i].blocks) blocks.push_back(index(block));
        for (const StateWrite& write : sequences()[i].writes) {
            writes.push_back({static_cast<int32_t>(write.length), index(write.dst)});
        }
    }
    host_faults_.assign(sequences().size(), kNoFault);
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
    step_.sequences = upload(device_sequences_, std::span(parts));
    step_.writes = upload(device_writes_, std::span(writes));
    step_.logit_rows = upload(logit_rows_, batch.logit_rows);
    step_.faults = upload(faults_, std::span(host_faults_));
    step_.num_rows = batch.num_rows();
    step_.num_sequences = static_cast<int64_t>(parts.size());
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

void CudaBackend::finish() {
    faults_.download(0, host_faults_);
    host_logits_.resize(static_cast<size_t>(batch().num_logit_rows() * config().vocab_size));
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

std::span<const float> CudaBackend::read_state(int32_t layer, HeadPart part, StateIndex row) {
    const DeviceStates tensor = states(layer, part);
    host_floats_.resize(static_cast<size_t>(tensor.size));
    state_pool_.download(tensor.data - state_pool_.data() + index(row) * row_floats_, host_floats_);
    return host_floats_;
}

void CudaBackend::read_kv(int32_t layer, HeadPart part, BlockId block, int32_t num_slots, std::span<uint16_t> out) {
    const reference::AttentionConfig& attention = *config().layers[layer].attention;
    const int64_t num_pairs = (attention.head_dim + 1) / 2;
    const int64_t block_size = pools_.block_size;
    const int64_t first_page = int64_t{index(block)} * attention.n_kv_heads;
    const bool is_k = part == HeadPart::kK;
    host_pairs_.resize(static_cast<size_t>(attention.n_kv_heads * num_pairs * block_size));
    host_values_.resize(static_cast<size_t>(attention.n_kv_heads * block_size * attention.head_dim));
    if (is_k) layers_[layer].k_pages.download(first_page * num_pairs * block_size, host_pairs_);
    if (!is_k) layers_[layer].v_pages.download(first_page * block_size * attention.head_dim, host_values_);
    for (int64_t slot = 0; slot < num_slots; ++slot) {
        for (int64_t i = 0; i < attention.kv_rows(); ++i) {
            const int64_t head = i / attention.head_dim;
            const int64_t dim = i % attention.head_dim;
            const uint32_t pair = is_k ? host_pairs_[(head * num_pairs + dim / 2) * block_size + slot] : 0;
            out[slot * attention.kv_rows() + i] =
                is_k ? static_cast<uint16_t>(pair >> (dim % 2 == 0 ? 0 : 16))
                     : host_values_[(head * block_size + slot) * attention.head_dim + dim];
        }
    }
}

// --- buffers

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

reference::ConstFloatRows CudaBackend::host_rows(Buffer buffer) {
    const Activations& activations = buffers_[static_cast<size_t>(buffer)];
    host_floats_.resize(static_cast<size_t>(num_rows(buffer) * activations.width));
    activations.floats.download(0, host_floats_);
    return reference::dense_rows<const float>(host_floats_.data(), num_rows(buffer), activations.width);
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
    const int64_t row_pairs = on_tensor_cores() ? (width + 15) / 16 * 8 : (width + 1) / 2;
    uint32_t* pairs = rounded_.ensure(device_, x.num_rows * row_pairs);
    if (rounded_from_ != in || rounded_multiplier_ != multiplier) device_.round_rows(x, multiplier, row_pairs, pairs);
    rounded_from_ = in;
    rounded_multiplier_ = multiplier;
    return pairs;
}

void CudaBackend::matmul(MatrixId id, Buffer in, float in_multiplier, Buffer out) {
    const Matrix& matrix = matrices_[place_[id.layer][static_cast<size_t>(id.matrix)]];
    const uint32_t* pairs = rounded(in, matrix.num_k, in_multiplier);
    const DeviceMatrix packed{matrix.words.data(), matrix.bias.data(), matrix.num_outputs, matrix.num_k};
    const Floats y = fresh(out, matrix.num_outputs);
    on_tensor_cores() ? device_.tensor_matmul(profile_, pairs, packed, y) : device_.matmul(pairs, packed, y);
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
    const int64_t num_steps = batch().num_rows() * mamba.n_heads;
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
    float* workspace = workspace_.ensure(device_, attention_floats(batch().num_rows(), shape, step_.max_position));
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
