// tests/kernels/cuda/tensor_case.h: one matmul of tensor.sm90 on a device, and its bits by the definition.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/fragments.h"
#include "reference/ops/matmul.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {

struct TensorShape {
    int64_t num_rows, num_outputs, num_k;
};

struct TensorCase {
    TensorCase(Device& device, const TensorShape& shape, reference::Values kind = reference::Values::kNormal)
        : shape(shape),
          device(device),
          x(reference::draw_values(shape.num_rows * shape.num_k, 1, kind)),
          weight(reference::draw_bf16(shape.num_outputs * shape.num_k, 2, kind)),
          bias(reference::draw_values(shape.num_outputs, 3, kind)),
          row_pairs(row_pairs_of(shape.num_k)),
          device_x(device, std::span<const float>(x)),
          device_pairs(device, shape.num_rows * row_pairs),
          device_weight(device, std::span<const uint32_t>(packed())),
          device_bias(device, std::span<const float>(bias)),
          device_out(device, shape.num_rows * shape.num_outputs) {
        device.round_rows({device_x.data(), shape.num_rows, shape.num_k, shape.num_k}, 1.0F, device_pairs.data());
    }

    [[nodiscard]] std::vector<uint32_t> packed() const {
        reference::WorkerPool threads(1);
        return pack_fragments({weight.data(), shape.num_outputs, shape.num_k}, threads);
    }
    [[nodiscard]] bool has_bias() const { return shape.num_k % 2 == 1; }
    [[nodiscard]] DeviceMatrix matrix() const {
        return {device_weight.data(), has_bias() ? device_bias.data() : nullptr, shape.num_outputs, shape.num_k};
    }
    [[nodiscard]] Floats out() const {
        return {device_out.data(), shape.num_rows, shape.num_outputs, shape.num_outputs};
    }
    [[nodiscard]] std::vector<float> computed() const {
        std::vector<float> got(static_cast<size_t>(shape.num_rows * shape.num_outputs));
        device_out.download(0, got);
        return got;
    }
    [[nodiscard]] std::vector<float> defined(reference::Profile profile = reference::Profile::kTensorSm90) const {
        std::vector<float> want(static_cast<size_t>(shape.num_rows * shape.num_outputs));
        reference::matmul({.x = reference::dense_rows(x.data(), shape.num_rows, shape.num_k),
                           .weight = weight.data(),
                           .bias = has_bias() ? bias.data() : nullptr,
                           .profile = profile,
                           .out = reference::dense_rows(want.data(), shape.num_rows, shape.num_outputs)});
        return want;
    }
    // The number of outputs with other bits than the definition's.
    [[nodiscard]] int64_t num_wrong() const {
        const std::vector<float> got = computed();
        const std::vector<float> want = defined();
        int64_t wrong = 0;
        for (size_t i = 0; i < got.size(); ++i) {
            wrong += reference::bits_from_float(got[i]) != reference::bits_from_float(want[i]) ? 1 : 0;
        }
        return wrong;
    }
    void multiply(reference::Profile profile = reference::Profile::kTensorSm90) {
        device.tensor_matmul(profile, device_pairs.data(), matrix(), out());
    }
    void expect_bits_of_definition() {
        const Status done = device.synchronize();
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_EQ(num_wrong(), 0) << shape.num_rows << " rows, " << shape.num_outputs << " outputs, K " << shape.num_k;
    }

    TensorShape shape;
    Device& device;
    std::vector<float> x;
    std::vector<uint16_t> weight;
    std::vector<float> bias;
    int64_t row_pairs;
    DeviceArray<float> device_x;
    DeviceArray<uint32_t> device_pairs, device_weight;
    DeviceArray<float> device_bias, device_out;
};

}  // namespace verbatim::cuda
