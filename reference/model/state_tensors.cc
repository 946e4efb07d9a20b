#include "reference/model/state_tensors.h"

#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "reference/model/shape.h"
#include "reference/numerics/bf16.h"

namespace verbatim::reference {
namespace {

template <typename T>
T read(std::span<const std::byte> bytes, int64_t i) {
    T value;
    std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
}

}  // namespace

std::string_view dtype_name(StateDtype dtype) {
    switch (dtype) {
        case StateDtype::kFloat32: return "float32";
        case StateDtype::kBf16: return "bf16";
        case StateDtype::kInt32: return "int32";
    }
    CHECK(false, "state dtype {}", static_cast<int>(dtype));
}

int64_t element_bytes(StateDtype dtype) { return dtype == StateDtype::kBf16 ? 2 : 4; }

double element(StateDtype dtype, std::span<const std::byte> tensor, int64_t i) {
    switch (dtype) {
        case StateDtype::kFloat32: return read<float>(tensor, i);
        case StateDtype::kBf16: return bf16_to_float(read<uint16_t>(tensor, i));
        case StateDtype::kInt32: return read<int32_t>(tensor, i);
    }
    CHECK(false, "state dtype {}", static_cast<int>(dtype));
}

bool is_finite(StateDtype dtype, std::span<const std::byte> tensor) {
    const auto all = [&](auto is_finite_at) {
        const auto count = static_cast<int64_t>(tensor.size()) / element_bytes(dtype);
        for (int64_t i = 0; i < count; ++i) {
            if (!is_finite_at(i)) return false;
        }
        return true;
    };
    switch (dtype) {
        case StateDtype::kFloat32: return all([&](int64_t i) { return is_finite(read<float>(tensor, i)); });
        case StateDtype::kBf16:
            return all([&](int64_t i) { return is_finite(bf16_to_float(read<uint16_t>(tensor, i))); });
        case StateDtype::kInt32: return true;
    }
    CHECK(false, "state dtype {}", static_cast<int>(dtype));
}

int64_t StateTensor::num_elements() const { return num_elements_of(shape); }

int64_t StateTensor::num_bytes() const { return num_elements() * element_bytes(dtype); }

StateTensors::StateTensors(std::vector<StateTensor> tensors) : tensors_(std::move(tensors)) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const auto layer = static_cast<size_t>(tensors_[i].layer);
        CHECK(layer + 1 >= first_of_layer_.size(), "layer {} after layer {}", layer, first_of_layer_.size() - 1);
        first_of_layer_.resize(layer + 1, i);
        for (size_t j = first_of_layer_[layer]; j < i; ++j) {
            CHECK(tensors_[j].kind != tensors_[i].kind, "layer {} has {} twice", layer, tensors_[i].kind.name);
        }
    }
    first_of_layer_.push_back(tensors_.size());
}

size_t StateTensors::find(int32_t layer, StateKind kind) const {
    if (layer < 0 || static_cast<size_t>(layer) + 1 >= first_of_layer_.size()) return size();
    for (size_t i = first_of_layer_[layer]; i < first_of_layer_[layer + 1]; ++i) {
        if (tensors_[i].kind == kind) return i;
    }
    return size();
}

size_t StateTensors::place(int32_t layer, StateKind kind) const {
    const size_t found = find(layer, kind);
    CHECK(found < size(), "layer {} has no {}", layer, kind.name);
    return found;
}

int64_t StateTensors::num_bytes(StatePer per) const {
    int64_t sum = 0;
    for (const StateTensor& tensor : tensors_) sum += tensor.per == per ? tensor.num_bytes() : 0;
    return sum;
}

StateTensors state_tensors(const ModelConfig& config) {
    std::vector<StateTensor> all;
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const auto add = [&](StateKind kind, StatePer per, StateDtype dtype, std::vector<int64_t> shape) {
            all.push_back({static_cast<int32_t>(i), kind, per, dtype, std::move(shape)});
        };
        if (const auto& mamba = config.layers[i].mamba) {
            add(StateKind::kSsm, StatePer::kSequence, StateDtype::kFloat32,
                {mamba->n_heads, mamba->d_state, mamba->head_dim});
            add(StateKind::kConv, StatePer::kSequence, StateDtype::kFloat32, {mamba->d_conv - 1, mamba->conv_dim()});
        }
        if (const auto& delta = config.layers[i].delta) {
            add(StateKind::kDelta, StatePer::kSequence, StateDtype::kFloat32,
                {delta->n_value_heads, delta->key_dim, delta->value_dim});
            add(StateKind::kConv, StatePer::kSequence, StateDtype::kFloat32, {delta->d_conv - 1, delta->conv_dim()});
        }
        if (const auto& attention = config.layers[i].attention) {
            add(StateKind::kK, StatePer::kToken, StateDtype::kBf16, {attention->n_kv_heads, attention->head_dim});
            add(StateKind::kV, StatePer::kToken, StateDtype::kBf16, {attention->n_kv_heads, attention->head_dim});
        }
    }
    return StateTensors(std::move(all));
}

StateRowLayout row_layout(const StateTensors& tensors, int64_t alignment_bytes) {
    StateRowLayout layout;
    for (const StateTensor& tensor : tensors) {
        const bool in_row = tensor.per == StatePer::kSequence;
        layout.offsets.push_back(in_row ? layout.row_bytes : -1);
        if (!in_row) continue;
        layout.row_bytes += (tensor.num_bytes() + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
    }
    return layout;
}

}  // namespace verbatim::reference
