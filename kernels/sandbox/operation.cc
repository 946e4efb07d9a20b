#include "kernels/sandbox/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::sandbox {

int64_t bytes_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::kF8E4m3:
        case Dtype::kF8E5m2:
        case Dtype::kI8: return 1;
        case Dtype::kBf16:
        case Dtype::kF16: return 2;
        case Dtype::kF32:
        case Dtype::kI32:
        case Dtype::kU32: return 4;
        case Dtype::kI64:
        case Dtype::kU64: return 8;
    }
    CHECK(false, "dtype {}", static_cast<int>(dtype));
}

int64_t Arguments::num_rows() const { return std::accumulate(item_rows.begin(), item_rows.end(), int64_t{0}); }

const Tensor& Arguments::tensor(std::string_view name) const {
    const auto found = std::ranges::find_if(tensors, [&](const Tensor& tensor) { return tensor.spec.name == name; });
    CHECK(found != tensors.end(), "{} has no tensor {}", operation->name, name);
    return *found;
}

Tensor& Arguments::tensor(std::string_view name) {
    return const_cast<Tensor&>(static_cast<const Arguments&>(*this).tensor(name));
}

std::span<const Operation> operations() {
    static const std::vector<Operation> kOperations = [] {
        std::vector<Operation> all;
        for (auto* list :
             {dense_operations, sequence_operations, other_operations, delta_operations, expert_operations}) {
            for (Operation& operation : list()) all.push_back(std::move(operation));
        }
        // In the order of the header.
        constexpr std::string_view kOrder[] = {"matmul",       "rms_norm",    "gated_norm", "conv",     "scan",
                                               "rope",         "attention",   "activation", "sampling", "head_digest",
                                               "delta_update", "delta_gates", "l2_norm",    "router",   "choose",
                                               "experts",      "add_routed"};
        std::ranges::sort(all, {}, [&](const Operation& op) { return std::ranges::find(kOrder, op.name); });
        return all;
    }();
    return kOperations;
}

namespace {

// The last one of a name counts; the others may still be referred to.
std::deque<Operation>& added_operations() {
    static std::deque<Operation> added;
    return added;
}

}  // namespace

const Operation* find_operation(std::string_view name) {
    const auto is_it = [&](const Operation& operation) { return operation.name == name; };
    const auto found = std::ranges::find_if(operations(), is_it);
    if (found != operations().end()) return &*found;
    const auto& added = added_operations();
    const auto last = std::find_if(added.rbegin(), added.rend(), is_it);
    return last == added.rend() ? nullptr : &*last;
}

Result<const Operation*> add_operation(Operation operation) {
    const auto is_it = [&](const Operation& known) { return std::string_view(known.name) == operation.name; };
    if (std::ranges::any_of(operations(), is_it))
        return error("{:?} is a built-in operation: a contract needs another name", operation.name);
    return &added_operations().emplace_back(std::move(operation));
}

bool go_together(const Operation& operation, const Sizes& sizes) {
    return operation.go_together == nullptr || operation.go_together(sizes);
}

std::string describe(const Operation& operation, const Sizes& sizes) {
    std::string text;
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", operation.sizes[i].name, sizes[i]);
    }
    return text;
}

}  // namespace verbatim::sandbox
