#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/base/check.h"
#include "kernels/cuda/cuda_backend.h"

// The backend's memory of KV blocks and state rows: where they lie, and what is read of them.
namespace verbatim::cuda {

using reference::StateKind;
using reference::StatePer;
using reference::StateTensor;

namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr int64_t kValueBytes = sizeof(uint16_t);

}  // namespace

// --- sizes

// K of one layer is a section, and so is V. Layers of different shapes have none.
UnitSize block_size_of(const reference::ModelConfig& config, int32_t block_size) {
    int64_t section = 0;
    int64_t num_sections = 0;
    for (const reference::LayerConfig& layer : config.layers) {
        if (!layer.attention) continue;
        section = layer.attention->kv_rows() * block_size * kValueBytes;
        num_sections += 2;
    }
    return {num_sections * section, std::max<int64_t>(section, 1)};
}

UnitSize row_size_of(const reference::StateTensors& tensors) {
    return {row_layout(tensors, kSectorBytes).row_bytes, kSectorBytes};
}

std::vector<std::string> unsupported_budget(const reference::ModelConfig& config, const PooledExecutorConfig& pooled,
                                            const CudaLimits& limits) {
    std::vector<std::string> problems;
    std::optional<reference::AttentionConfig> first;
    for (size_t i = 0; i < config.layers.size(); ++i) {
        const auto& attention = config.layers[i].attention;
        if (!attention) continue;
        if (!first) first = attention;
        if (attention->head_dim % 2 != 0)
            problems.push_back(
                fmt::format("layer {}: one budget needs an even head_dim, this is {}", i, attention->head_dim));
        if (attention->n_kv_heads != first->n_kv_heads || attention->head_dim != first->head_dim)
            problems.push_back(fmt::format("layer {}: one budget needs layers of one KV shape", i));
    }
    if (!problems.empty() || !first) return problems;
    const reference::StateTensors tensors = state_tensors(config);
    const UnitSize block = block_size_of(config, pooled.pools.block_size);
    const UnitPlaces places({pooled.pools, pooled.budget, block, row_size_of(tensors)});
    const int64_t slots = places.num_places(UnitKind::kBlock) * (places.stride(UnitKind::kBlock) / block.alignment) *
                          first->n_kv_heads * pooled.pools.block_size;
    if (places.is_shared() && slots > limits.kv_slots)
        problems.push_back(
            fmt::format("a cache of {} bytes has {} slots in its sections, the CUDA kernels take up to {}",
                        pooled.budget.total_bytes, slots, limits.kv_slots));
    return problems;
}

// --- pools

// Blocks and rows: in one arena, or in separate arrays.
void CudaBackend::make_pools(const UnitPlaces& places) {
    if (places.is_shared()) {
        CHECK_EQ(places.arena_bytes() % kValueBytes, 0);
        CHECK_EQ(places.stride(UnitKind::kRow) % kFloatBytes, 0);
        arena_ = DeviceArray<uint16_t>(device_, places.arena_bytes() / kValueBytes);
        rows_ = reinterpret_cast<float*>(arena_.data() + places.first_byte(UnitKind::kRow) / kValueBytes);
        row_floats_ = places.stride(UnitKind::kRow) / kFloatBytes;
        num_row_places_ = places.num_places(UnitKind::kRow);
        return place_pages(places);
    }
    row_floats_ = row_layout_.row_bytes / kFloatBytes;
    num_row_places_ = pools_.num_state_rows;
    if (row_floats_ > 0) state_pool_ = DeviceArray<float>(device_, num_row_places_ * row_floats_);
    rows_ = state_pool_.data();
    for (size_t i = 0; i < layers_.size(); ++i) {
        const auto& attention = config().layers[i].attention;
        if (!attention) continue;
        Layer& layer = layers_[i];
        const int64_t slots = int64_t{pools_.num_blocks} * attention->n_kv_heads * pools_.block_size;
        layer.own_k = DeviceArray<uint32_t>(device_, slots * ((attention->head_dim + 1) / 2));
        layer.own_v = DeviceArray<uint16_t>(device_, slots * attention->head_dim);
        layer.pages = {layer.own_k.data(), layer.own_v.data(),    pools_.num_blocks,
                       pools_.block_size,  attention->n_kv_heads, attention->head_dim};
    }
}

void CudaBackend::place_pages(const UnitPlaces& places) {
    const int64_t section = block_size_of(config(), pools_.block_size).alignment;
    CHECK_EQ(places.stride(UnitKind::kBlock) % section, 0);
    block_scale_ = places.stride(UnitKind::kBlock) / section;
    lists_.set_block_scale(block_scale_);
    int64_t first = 0;  // section
    for (size_t i = 0; i < layers_.size(); ++i) {
        const auto& attention = config().layers[i].attention;
        if (!attention) continue;
        uint16_t* k = arena_.data() + (places.first_byte(UnitKind::kBlock) + first * section) / kValueBytes;
        layers_[i].pages = {reinterpret_cast<uint32_t*>(k),
                            k + section / kValueBytes,
                            places.num_places(UnitKind::kBlock) * block_scale_ - first - 1,
                            pools_.block_size,
                            attention->n_kv_heads,
                            attention->head_dim};
        first += 2;
    }
    CHECK_LE(first, block_scale_);  // the sections of all layers are in the block's
}

void CudaBackend::change(std::span<const MemoryChange> changes) {
    for (const MemoryChange& change : changes) {
        const int64_t arena_bytes = arena_.count() * kValueBytes;
        CHECK(change.to >= 0 && change.to + change.count <= arena_bytes && change.from + change.count <= arena_bytes,
              "{} bytes to {} of {}", change.count, change.to, arena_bytes);
        uint16_t* to = arena_.data() + change.to / kValueBytes;
        if (change.kind == MemoryChange::Kind::kClear) {
            device_.clear(to, static_cast<size_t>(change.count));
        } else {
            device_.copy(to, arena_.data() + change.from / kValueBytes, static_cast<size_t>(change.count));
        }
    }
}

// The address of a tensor of a state row.
float* CudaBackend::row_of(size_t place, StateIndex row) const {
    CHECK_GE(row_layout_.offsets[place], 0);
    return rows_ + index(row) * row_floats_ + row_layout_.offsets[place] / kFloatBytes;
}

DeviceStates CudaBackend::states(int32_t layer, StateKind kind) const {
    const size_t place = tensors_.place(layer, kind);
    return {row_of(place, StateIndex{0}), num_row_places_, row_floats_, tensors_[place].num_elements(), layer};
}

// --- reading pools and logits

std::span<const std::byte> CudaBackend::read_row(const StateTensor& tensor, StateIndex row) {
    host_floats_.resize(static_cast<size_t>((tensor.num_bytes() + kFloatBytes - 1) / kFloatBytes));
    const float* first = row_of(tensors_.place(tensor.layer, tensor.kind), row);
    device_.download(host_floats_.data(), first, host_floats_.size() * sizeof(float));
    return std::as_bytes(std::span(host_floats_)).first(static_cast<size_t>(tensor.num_bytes()));
}

// A block's K or V of one layer: the pages of all KV heads, as bf16 values. K's are pairs along head_dim.
CudaBackend::PageValues CudaBackend::page_values(const StateTensor& tensor, BlockId block) const {
    const bool is_k = tensor.kind == StateKind::kK;
    CHECK(is_k || tensor.kind == StateKind::kV, "layer {}: {} is not on the device", tensor.layer, tensor.kind.name);
    const reference::AttentionConfig& attention = *config().layers[tensor.layer].attention;
    const int64_t width = is_k ? (attention.head_dim + 1) / 2 * 2 : attention.head_dim;
    const int64_t count = attention.n_kv_heads * width * pools_.block_size;
    const int64_t first = index(block) * block_scale_ * count;
    const DevicePages& all = pages(tensor.layer);
    return {is_k ? reinterpret_cast<uint16_t*>(all.k) + first : all.v + first, static_cast<size_t>(count)};
}

// The place of a slot's element i, [n_kv_heads, head_dim], among page_values().
size_t CudaBackend::place_in_pages(const StateTensor& tensor, int64_t slot, int64_t i) const {
    const int64_t head_dim = config().layers[tensor.layer].attention->head_dim;
    const int64_t block_size = pools_.block_size;
    const int64_t head = i / head_dim;
    const int64_t dim = i % head_dim;
    const int64_t pair = (head * ((head_dim + 1) / 2) + dim / 2) * block_size + slot;
    const int64_t place =
        tensor.kind == StateKind::kK ? 2 * pair + dim % 2 : (head * block_size + slot) * head_dim + dim;
    return static_cast<size_t>(place);
}

// page_values(), with a copy in host_values_.
CudaBackend::PageValues CudaBackend::download_pages(const StateTensor& tensor, BlockId block) {
    const PageValues values = page_values(tensor, block);
    host_values_.resize(values.count);
    device_.download(host_values_.data(), values.first, values.count * sizeof(uint16_t));
    return values;
}

void CudaBackend::read_block(const StateTensor& tensor, BlockId block, int32_t num_slots, std::span<std::byte> bytes) {
    download_pages(tensor, block);
    const int64_t width = tensor.num_elements();
    CHECK(num_slots <= pools_.block_size && std::ssize(bytes) == num_slots * tensor.num_bytes(), "{} bytes of {} slots",
          bytes.size(), num_slots);
    for (int64_t slot = 0; slot < num_slots; ++slot) {
        for (int64_t i = 0; i < width; ++i) {
            std::memcpy(&bytes[static_cast<size_t>(slot * width + i) * sizeof(uint16_t)],
                        &host_values_[place_in_pages(tensor, slot, i)], sizeof(uint16_t));
        }
    }
}

// Slots behind `num_slots`, and what pads a page, stay.
void CudaBackend::write_block(const StateTensor& tensor, BlockId block, int32_t num_slots,
                              std::span<const std::byte> bytes) {
    const PageValues values = download_pages(tensor, block);
    const int64_t width = tensor.num_elements();
    CHECK(num_slots <= pools_.block_size && std::ssize(bytes) == num_slots * tensor.num_bytes(), "{} bytes of {} slots",
          bytes.size(), num_slots);
    for (int64_t slot = 0; slot < num_slots; ++slot) {
        for (int64_t i = 0; i < width; ++i) {
            std::memcpy(&host_values_[place_in_pages(tensor, slot, i)],
                        &bytes[static_cast<size_t>(slot * width + i) * sizeof(uint16_t)], sizeof(uint16_t));
        }
    }
    device_.upload(values.first, host_values_.data(), values.count * sizeof(uint16_t));
}

void CudaBackend::write_row(const StateTensor& tensor, StateIndex row, std::span<const std::byte> bytes) {
    CHECK(bytes.size() % sizeof(float) == 0, "layer {}: {} of {} bytes", tensor.layer, tensor.kind.name, bytes.size());
    host_floats_.resize(bytes.size() / sizeof(float));
    std::memcpy(host_floats_.data(), bytes.data(), bytes.size());
    device_.upload(row_of(tensors_.place(tensor.layer, tensor.kind), row), host_floats_.data(), bytes.size());
}

// The kernels sum words, and K and V in their pages.
bool CudaBackend::sums_heads() const {
    return std::ranges::all_of(tensors_, [](const StateTensor& tensor) {
        return tensor.per == StatePer::kToken || reference::element_bytes(tensor.dtype) == kFloatBytes;
    });
}

// One kernel per part, one transfer for all sums.
bool CudaBackend::sum_head(const HeadImage& image, reference::HeadDigester& digester) {
    std::vector<int32_t> blocks;
    for (const BlockRun& run : image.blocks) {
        for (int32_t i = 0; i < run.count; ++i)
            blocks.push_back(static_cast<int32_t>((index(run.first) + i) * block_scale_));
    }
    const auto parts = digester.parts();
    CHECK_EQ(parts.size(), tensors_.size());       // part i is of the tensor at place i
    std::vector<uint64_t> sums(2 * parts.size());  // low and high half of each
    head_blocks_.ensure(device_, static_cast<int64_t>(blocks.size()));
    head_blocks_.upload(blocks);
    head_sums_.ensure(device_, static_cast<int64_t>(sums.size()));
    head_sums_.upload(sums);
    for (size_t i = 0; i < parts.size(); ++i) {
        const StateTensor& tensor = *parts[i].tensor;
        if (tensor.per == StatePer::kSequence) {
            device_.sum_floats(row_of(i, image.state), tensor.num_elements(), head_sums_.data() + 2 * i);
        } else if (tensor.kind == StateKind::kK && parts[i].num_elements > 0) {  // also V, the next part
            device_.sum_kv(head_blocks_.data(), image.length, pages(tensor.layer), head_sums_.data() + 2 * i);
        }
    }
    head_sums_.download(0, sums);
    if (!device_.synchronize()) return false;
    for (size_t i = 0; i < parts.size(); ++i) {
        if (parts[i].num_elements > 0) digester.add(*parts[i].tensor, {sums[2 * i], sums[2 * i + 1]});
    }
    return true;
}

}  // namespace verbatim::cuda
