#include "kernels/sandbox/operation_parts.h"

#include <algorithm>
#include <initializer_list>

#include "reference/model/presets.h"

namespace verbatim::sandbox {

std::vector<int64_t> single_rows(const Sizes& sizes, Prng&) {
    return std::vector<int64_t>(static_cast<size_t>(sizes[0]), 1);
}

std::vector<int64_t> sequences_of_tokens(const Sizes& sizes, Prng& prng) {
    std::vector<int64_t> rows;
    for (int64_t s = 0; s < sizes[0]; ++s) {
        rows.push_back(s == 0 ? sizes[1] : 1 + static_cast<int64_t>(prng.below(static_cast<uint64_t>(sizes[1]))));
    }
    return rows;
}

// Its width is set with the items.
TensorSpec first_rows() {
    return {.name = "first_row", .dtype = Dtype::kI64, .axis = Axis::kCall, .width = 1, .fill = Fill::kFirstRow};
}

std::vector<int64_t> edges_up_to(int64_t most) {
    std::vector<int64_t> edges;
    for (const int64_t edge : {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 513}) {
        if (edge <= most) edges.push_back(edge);
    }
    return edges;
}

namespace {

std::vector<int64_t> around(std::initializer_list<int64_t> sizes) {
    std::vector<int64_t> found;
    for (const int64_t size : sizes) found.insert(found.end(), {size - 1, size, size + 1});
    return found;
}

}  // namespace

std::vector<int64_t> real_rows() { return around({32, 64, 128, 256, 512}); }
std::vector<int64_t> real_sequences() { return around({32, 64, 128}); }
std::vector<int64_t> real_contexts() { return around({1024, 2048, 4096}); }

std::vector<Sizes> of_published(
    const std::function<void(const reference::ModelConfig& config, std::vector<Sizes>& shapes)>& add) {
    std::vector<Sizes> shapes;
    for (const std::string_view name : reference::preset_names()) {
        std::vector<Sizes> of_model;
        add(*reference::preset(name), of_model);
        for (const Sizes& sizes : of_model) {
            if (std::ranges::find(shapes, sizes) == shapes.end()) shapes.push_back(sizes);
        }
    }
    return shapes;
}

double bytes_of_tensors(const Arguments& arguments) {
    double bytes = 0;
    for (const Tensor& tensor : arguments.tensors) {
        const double once = static_cast<double>(tensor.bytes.size());
        bytes += tensor.spec.role == Role::kInOut ? 2 * once : once;
    }
    return bytes;
}

}  // namespace verbatim::sandbox
