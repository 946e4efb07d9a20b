// tests/kernels/cuda/tensor_case.h: one matmul of tensor.sm90 on an emulated device of its own, and its bits by the definition.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/fragments.h"
#include "reference/numerics/tensor_sm90.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {

struct TensorShape {
    int64_t num_rows, num_outputs, num_k;
};

// One matmul on a device of its own.
struct TensorCase {
    TensorCase(const TensorShape& shape, simt::Schedule schedule, reference::Values kind = reference::Values::kNormal)
        : shape(shape),
          emulator(schedule, 5),
          device(make_emulated_device(emulator)),
          x(reference::draw_values(shape.num_rows * shape.num_k, 1, kind)),
          weight(reference::draw_bf16(shape.num_outputs * shape.num_k, 2, kind)),
          bias(reference::draw_values(shape.num_outputs, 3, kind)),
          row_pairs((shape.num_k + 15) / 16 * 8),
          device_x(*device, std::span<const float>(x)),
          device_pairs(*device, shape.num_rows * row_pairs),
          device_weight(*device,
                        std::span<const uint32_t>(pack_fragments({weight.data(), shape.num_outputs, shape.num_k}))),
          device_bias(*device, std::span<const float>(bias)),
          device_out(*device, shape.num_rows * shape.num_outputs) {
        device->round_rows({device_x.data(), shape.num_rows, shape.num_k, shape.num_k}, 1.0F, row_pairs,
                           device_pairs.data());
    }

    [[nodiscard]] bool has_bias() const { return shape.num_k % 2 == 1; }
    [[nodiscard]] DeviceMatrix matrix() const {
        return {device_weight.data(), has_bias() ? device_bias.data() : nullptr, shape.num_outputs, shape.num_k};
    }
    [[nodiscard]] Floats out() const {
        return {device_out.data(), shape.num_rows, shape.num_outputs, shape.num_outputs};
    }
    // How many outputs have other bits than the definition.
    [[nodiscard]] int64_t num_wrong() const {
        std::vector<float> got(static_cast<size_t>(shape.num_rows * shape.num_outputs));
        device_out.download(0, got);
        int64_t wrong = 0;
        for (int64_t m = 0; m < shape.num_rows; ++m) {
            std::vector<uint16_t> a;
            for (int64_t k = 0; k < shape.num_k; ++k) a.push_back(reference::round_to_bf16(x[m * shape.num_k + k]));
            for (int64_t n = 0; n < shape.num_outputs; ++n) {
                const float total = reference::tensor_dot(a.data(), &weight[n * shape.num_k], shape.num_k);
                const float want = has_bias() ? total + bias[n] : total;
                wrong += reference::bits_from_float(got[m * shape.num_outputs + n]) != reference::bits_from_float(want)
                             ? 1
                             : 0;
            }
        }
        return wrong;
    }
    void expect_bits_of_definition() {
        const Status done = device->synchronize();
        ASSERT_TRUE(done) << done.error().message;
        EXPECT_EQ(num_wrong(), 0) << shape.num_rows << " rows, " << shape.num_outputs << " outputs, K " << shape.num_k;
    }

    TensorShape shape;
    simt::Emulator emulator;
    std::unique_ptr<Device> device;
    std::vector<float> x;
    std::vector<uint16_t> weight;
    std::vector<float> bias;
    int64_t row_pairs;
    DeviceArray<float> device_x;
    DeviceArray<uint32_t> device_pairs, device_weight;
    DeviceArray<float> device_bias, device_out;
};

}  // namespace verbatim::cuda
