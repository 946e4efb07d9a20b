// kernels/sandbox/operation_parts.h: owns the shared parts of operations' descriptions: views of placed tensors, items,
// edges of sizes, shapes of published models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/operation.h"
#include "reference/model/model_config.h"

namespace verbatim::sandbox {

template <typename T>
T* placed(const Placed& call, size_t i) {
    return reinterpret_cast<T*>(call.data[i]);
}
inline verbatim_floats placed_rows(const Placed& call, size_t i, int64_t width) {
    return {placed<float>(call, i), call.num_rows, width, call.stride[i]};
}
inline verbatim_const_floats placed_inputs(const Placed& call, size_t i, int64_t width) {
    return {placed<const float>(call, i), call.num_rows, width, call.stride[i]};
}
inline verbatim_sequences placed_sequences(const Placed& call, size_t i) {
    return {placed<const int64_t>(call, i), call.num_items};
}

// sizes[0] items of one row.
std::vector<int64_t> single_rows(const Sizes& sizes, Prng& prng);
// sizes[0] sequences: the first of sizes[1] tokens, the rest of 1 ... sizes[1].
std::vector<int64_t> sequences_of_tokens(const Sizes& sizes, Prng& prng);

// kFirstRow's: [num_sequences + 1].
TensorSpec first_rows();

// Edges of blocks, chunks and groups: 1, odd, around powers of two.
std::vector<int64_t> edges_up_to(int64_t most);
// Around 32, 64, 128, 256 and 512: the rows of a step's batch.
std::vector<int64_t> real_rows();
// Around 32, 64 and 128: the sequences of a step's batch.
std::vector<int64_t> real_sequences();
// Around 1024, 2048 and 4096: the positions of a long context.
std::vector<int64_t> real_contexts();
// Collects `add` of every published model, without repeats.
std::vector<Sizes> of_published(
    const std::function<void(const reference::ModelConfig& config, std::vector<Sizes>& shapes)>& add);
// The first layer that has the part that `part` selects, or null.
template <typename T>
const T* first_of(const reference::ModelConfig& config, std::optional<T> reference::LayerConfig::*part) {
    for (const reference::LayerConfig& layer : config.layers) {
        if ((layer.*part).has_value()) return &*(layer.*part);
    }
    return nullptr;
}

// The contract's bounds of integers: each element of a tensor is in [least, end).
template <typename T>
Status in_range(const Arguments& arguments, std::string_view tensor, int64_t least, int64_t end) {
    for (const T value : arguments.tensor(tensor).as<T>()) {
        if (value < least || value >= end) return error("`{}` {} is not in {} ... {}", tensor, value, least, end - 1);
    }
    return {};
}

// Bytes of every tensor once: the minimum traffic of a call.
double bytes_of_tensors(const Arguments& arguments);

// Row r of a C struct's rows.
template <typename Rows>
auto* row_of(const Rows& rows, int64_t r) {
    return rows.data + r * rows.stride;
}

}  // namespace verbatim::sandbox
