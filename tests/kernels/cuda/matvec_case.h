// tests/kernels/cuda/matvec_case.h: matmuls of a few rows fused with the operations before and after them, compared
// with the separate operations of reference/ops bit by bit.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "kernels/cuda/fragments.h"
#include "tests/kernels/cuda/op_cases.h"

namespace verbatim::cuda {

struct MatvecShape {
    int64_t num_rows = 1;
    int64_t num_k = 1;
    std::vector<int64_t> outputs;  // of each matrix
    MatvecEnd end = MatvecEnd::kWrite;
    bool is_normed = false;
    std::optional<reference::MambaGate> gate;  // of a gated norm
    int64_t n_groups = 1;
    reference::Profile profile = reference::Profile::kExact;
};

class MatvecCase {
public:
    MatvecCase(Device& device, const MatvecShape& shape) : device_(device), shape_(shape) {
        const int64_t num_values = shape.num_rows * shape.num_k;
        x_ = draw_values(num_values, 1);
        z_ = draw_values(num_values, 2);
        norm_ = draw_values(shape.num_k, 3);
        residual_ = draw_values(shape.num_rows * shape.outputs[0], 4);
        for (size_t i = 0; i < shape.outputs.size(); ++i) {
            weights_.push_back(reference::draw_bf16(shape.outputs[i] * shape.num_k, 10 + i));
            biases_.push_back(draw_values(shape.outputs[i], 20 + i));
        }
    }

    // Whether all results have the definitions' bits.
    [[nodiscard]] bool is_as_defined() const {
        const auto products = wanted_products();
        const auto got = run();
        if (!device_.synchronize()) return false;
        switch (shape_.end) {
            case MatvecEnd::kWrite: {
                bool same = true;
                for (size_t i = 0; i < products.size(); ++i) {
                    same = same && bits_of(got.outs[i]) == bits_of(products[i]);
                }
                return same;
            }
            case MatvecEnd::kAddBranch: {
                std::vector<float> want = residual_;
                reference::add_branch({.branch = of_output(products[0], 0),
                                       .branch_multiplier = 0.6F,
                                       .residual_multiplier = 0.22F,
                                       .residual = of_output(want, 0)});
                return bits_of(got.residual) == bits_of(want);
            }
            case MatvecEnd::kSwiglu: {
                std::vector<float> want = products[1];
                reference::swiglu(
                    {.gate = of_output(products[0], 0), .gate_multiplier = 0.7F, .up = of_output(want, 1)});
                return got.pairs == rounded_pairs(want, shape_.outputs[0]);
            }
            case MatvecEnd::kReluSquared: {
                std::vector<float> want = products[0];
                reference::relu_squared({.up = of_output(want, 0)});
                return got.pairs == rounded_pairs(want, shape_.outputs[0]);
            }
        }
        return false;
    }

private:
    struct Got {
        std::vector<std::vector<float>> outs;
        std::vector<float> residual;
        std::vector<uint32_t> pairs;
    };
    [[nodiscard]] reference::FloatRows of_output(std::vector<float>& values, size_t i) const {
        return dense_rows(values.data(), shape_.num_rows, shape_.outputs[i]);
    }
    [[nodiscard]] reference::ConstFloatRows of_output(const std::vector<float>& values, size_t i) const {
        return dense_rows(values.data(), shape_.num_rows, shape_.outputs[i]);
    }
    [[nodiscard]] const float* bias(size_t i) const { return i % 2 == 0 ? biases_[i].data() : nullptr; }

    [[nodiscard]] std::vector<std::vector<float>> wanted_products() const {
        std::vector<float> inputs = x_;
        const auto rows = [&](const std::vector<float>& values) {
            return dense_rows(values.data(), shape_.num_rows, shape_.num_k);
        };
        if (shape_.is_normed && shape_.gate) {
            const bool norms = *shape_.gate != reference::MambaGate::kGateOnly;
            reference::gated_norm({.gate = *shape_.gate,
                                   .n_groups = shape_.n_groups,
                                   .z = rows(z_),
                                   .weight = norms ? norm_.data() : nullptr,
                                   .eps = 1e-5F,
                                   .y = dense_rows(inputs.data(), shape_.num_rows, shape_.num_k)});
        } else if (shape_.is_normed) {
            reference::rms_norm({.x = rows(x_),
                                 .weight = norm_.data(),
                                 .eps = 1e-5F,
                                 .out = dense_rows(inputs.data(), shape_.num_rows, shape_.num_k)});
        }
        std::vector<std::vector<float>> products;
        for (size_t i = 0; i < shape_.outputs.size(); ++i) {
            std::vector<float>& out = products.emplace_back(shape_.num_rows * shape_.outputs[i]);
            reference::matmul({.x = rows(inputs),
                               .weight = weights_[i].data(),
                               .bias = bias(i),
                               .in_multiplier = 1.0F,
                               .profile = shape_.profile,
                               .out = of_output(out, i)});
        }
        return products;
    }

    [[nodiscard]] Got run() const {
        const int64_t num_rows = shape_.num_rows;
        const auto x = on_device(device_, x_);
        const auto z = on_device(device_, z_);
        const auto norm = on_device(device_, norm_);
        const DeviceArray<uint32_t> inputs(device_, num_rows * row_pairs_of(shape_.num_k));
        const auto residual = on_device(device_, residual_);
        const DeviceArray<uint32_t> left(device_, num_rows * row_pairs_of(shape_.outputs[0]));
        std::vector<DeviceArray<uint32_t>> words;
        std::vector<DeviceArray<float>> biases;
        std::vector<DeviceArray<float>> outs;
        const auto floats = [&](const DeviceArray<float>& array, int64_t width) {
            return Floats{array.data(), num_rows, width, width};
        };
        Matvec of{.profile = shape_.profile, .num_rows = num_rows};
        for (size_t i = 0; i < shape_.outputs.size(); ++i) {
            words.push_back(on_device(device_, packed_weights(i)));
            biases.push_back(on_device(device_, biases_[i]));
            outs.emplace_back(device_, num_rows * shape_.outputs[i]);
            of.products[i] = {
                {words[i].data(), bias(i) != nullptr ? biases[i].data() : nullptr, shape_.outputs[i], shape_.num_k},
                floats(outs[i], shape_.outputs[i])};
        }
        of.num_products = std::ssize(shape_.outputs);
        if (!shape_.is_normed) device_.round_rows(floats(x, shape_.num_k), 1.0F, inputs.data());
        of.input = {.pairs = inputs.data(),
                    .is_normed = shape_.is_normed,
                    .x = floats(x, shape_.num_k),
                    .z = shape_.gate ? floats(z, shape_.num_k) : Floats{},
                    .gate = gate_kind(),
                    .n_groups = shape_.n_groups,
                    .weight = norm.data(),
                    .eps = 1e-5F};
        of.end = shape_.end;
        of.branch_multiplier = 0.6F;
        of.residual_multiplier = 0.22F;
        of.residual = floats(residual, shape_.outputs[0]);
        of.gate_multiplier = 0.7F;
        of.pairs = left.data();
        device_.matvec(of);
        Got got;
        const auto values_of = [](const DeviceArray<float>& array) {
            std::vector<float> values(static_cast<size_t>(array.count()));
            array.download(0, values);
            return values;
        };
        if (shape_.end == MatvecEnd::kWrite) {
            for (const auto& out : outs) got.outs.push_back(values_of(out));
        } else if (shape_.end == MatvecEnd::kAddBranch) {
            got.residual = values_of(residual);
        } else {
            got.pairs = words_of(left);
        }
        return got;
    }
    [[nodiscard]] std::vector<uint32_t> packed_weights(size_t i) const {
        if (shape_.profile == reference::Profile::kExact) return packed(weights_[i], shape_.outputs[i], shape_.num_k);
        reference::WorkerPool threads(1);
        return pack_fragments({weights_[i].data(), shape_.outputs[i], shape_.num_k}, threads);
    }
    [[nodiscard]] GateKind gate_kind() const {
        if (!shape_.gate || *shape_.gate == reference::MambaGate::kGateOnly) return GateKind::kGateOnly;
        return *shape_.gate == reference::MambaGate::kGateThenNorm ? GateKind::kGateThenNorm : GateKind::kNormThenGate;
    }

    Device& device_;
    MatvecShape shape_;
    std::vector<float> x_, z_, norm_, residual_;
    std::vector<std::vector<uint16_t>> weights_;
    std::vector<std::vector<float>> biases_;
};

}  // namespace verbatim::cuda
