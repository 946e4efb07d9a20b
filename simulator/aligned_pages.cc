#include "simulator/aligned_pages.h"

#include <algorithm>

namespace verbatim {
namespace {

constexpr int64_t kActivationBytes = 2;

// Per token and layer: the largest, if layers differ.
int64_t kv_bytes(const ModelShape& model) {
    int64_t bytes = 0;
    for (const KvShape& kv : model.kvs) bytes = std::max(bytes, kv.bytes_per_token);
    return bytes;
}

// Per sequence and layer.
int64_t state_bytes(const ModelShape& model, int64_t value_bytes) {
    int64_t bytes = 0;
    for (const StateShape& state : model.states) {
        bytes = std::max(bytes, state.window * kActivationBytes + state.recurrent * value_bytes);
    }
    return bytes;
}

template <typename Shape>
int64_t num_layers(const std::vector<Shape>& shapes) {
    int64_t count = 0;
    for (const Shape& shape : shapes) count += shape.count;
    return count;
}

}  // namespace

std::optional<AlignedPages> aligned_pages(const ModelShape& model, const AlignedPagesConfig& config) {
    const int64_t token_bytes = kv_bytes(model);
    if (token_bytes == 0) return std::nullopt;
    const int64_t unit_bytes = config.alignment * token_bytes;
    const int64_t units =
        std::max<int64_t>(1, (state_bytes(model, config.state_value_bytes) + unit_bytes - 1) / unit_bytes);
    const int64_t page_bytes = units * unit_bytes;
    return AlignedPages{.block_tokens = static_cast<int32_t>(units * config.alignment),
                        .kv_page_bytes = page_bytes * num_layers(model.kvs),
                        .state_page_bytes = page_bytes * num_layers(model.states)};
}

}  // namespace verbatim
